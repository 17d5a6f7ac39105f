"""Polatis optical circuit switches over SCPI (TCP port 5025, or a serial line)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from operator import itemgetter
from typing import Final, TypeVar

from drivers.codecs import scpi
from drivers.exclusive import exclusive
from drivers.optical.base import ReadBackSwitch
from drivers.optical.changes import Difference, not_made, shortfall, unconfirmed
from drivers.optical.input_power import InputPowerOptions, check_input_power, max_input_dbm
from drivers.transports.addresses import address_problems, stream_to
from drivers.transports.lines import LineTransport
from drivers.transports.serial_line import SerialOptions
from drivers.transports.stream import Stream
from drivers.transports.tcp import TcpStream
from hydra.config.devices import no_login_problems
from hydra.errors import DeviceUnavailable, Problem, ProtocolError
from hydra.model import CrossConnect, Plane
from hydra.roles import DeviceIdentity, OpticalCapabilities, OpticalSwitch, PortState

_log: Final = logging.getLogger(__name__)

CAPABILITIES: Final = OpticalCapabilities(bulk=True, unidirectional=True, power_readings=True)

_STATES: Final = {"E": PortState.ENABLED, "D": PortState.DISABLED, "F": PortState.FAILED}
_SHOWN: Final = 8
"""Largest number of faults in an error message."""

_T = TypeVar("_T")


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``, not connected yet."""
    return PolatisScpi(
        plane.name,
        plane.address,
        stream=stream_to(plane),
        timeout_s=timeout_s,
        max_input_dbm=max_input_dbm(plane),
    )


def check(plane: Plane) -> Iterator[Problem]:
    """Problems of ``plane``'s address, login and options."""
    yield from address_problems(plane, InputPowerOptions, SerialPlaneOptions)
    yield from no_login_problems(plane.login)


class SerialPlaneOptions(SerialOptions, InputPowerOptions):
    """``options`` of a plane at a ``serial:`` address."""


class PolatisScpi(ReadBackSwitch):
    """An :class:`~hydra.roles.OpticalSwitch`.

    Ingress ports are 1..N, egress ports N+1..N+M. A change of any size is three exchanges. The
    first reads the cross-connects and empties the error queue, where an earlier client may have
    left errors. The second is one ``sub``, one ``add``, and ``*opc?``, since the device does not
    answer set commands. The third reads the error queue and the cross-connects: a set command
    without effect looks like success.

    ``timeout_s`` covers one command, the mirrors' switching time included. ``stream`` leads to a
    device that is not reached by TCP at ``address``.
    """

    CAPABILITIES = CAPABILITIES

    def __init__(
        self,
        name: str,
        address: str,
        *,
        timeout_s: float,
        stream: Stream | None = None,
        max_input_dbm: float | None = None,
    ) -> None:
        super().__init__(name)
        self._max_input_dbm = max_input_dbm
        self._reports_start = True
        self._expected: str | None = None
        """Text of the reply that means :attr:`_last`."""
        self._last: frozenset[CrossConnect] = frozenset()
        self._transport = LineTransport(
            name,
            stream or TcpStream(name, address),
            decoder=scpi.ReplyDecoder,
            decode_error=scpi.ScpiError,
            timeout_s=timeout_s,
        )

    @exclusive
    def open(self) -> None:
        """Connect; a second call on an open device does nothing. Raises DeviceUnavailable.

        Warns of a device that loses its cross-connects with its power. A device that does not
        report its start-up mode is used without a warning.
        """
        was_connected = self._transport.connected
        self._transport.open()
        if was_connected or not self._reports_start:
            return
        try:
            start = self._query(scpi.START_QUERY, str, follows=True, is_part=scpi.is_part_of_start)
        except (DeviceUnavailable, ProtocolError) as error:
            _log.info("%s does not report a start-up mode: %s", self._name, error)
            self._reports_start = False
            self._transport.close()
            self._transport.open()
            return
        if scpi.starts_dark(start):
            _log.warning(
                "%s starts without cross-connects (%s): a power cycle cuts every circuit; set its "
                "start-up mode to restore them",
                self._name,
                start.partition(";")[0],
            )

    def _drop(self) -> None:
        self._transport.close()

    @exclusive
    def identity(self) -> DeviceIdentity:
        found = self._query(scpi.IDENTITY_QUERY, scpi.parse_identity)
        return DeviceIdentity(found.vendor, found.model, found.serial, found.firmware)

    def _read_size(self) -> tuple[int, int]:
        return self._query(scpi.SIZE_QUERY, scpi.parse_size)

    @exclusive
    def cross_connects(self) -> frozenset[CrossConnect]:
        """Read from the device, never from memory."""
        return self._query(scpi.CONNECTIONS_QUERY, self._understood)

    def _check_light(self, added: Collection[CrossConnect]) -> None:
        if self._max_input_dbm is not None:
            check_input_power(self._name, self._max_input_dbm, added, self.power_dbm)
            self._present()  # clears the error that asking a port without a monitor leaves

    def _make(self, change: Difference) -> None:
        self._write(scpi.change_command(_by_ingress(change.removed), _by_ingress(change.added)))
        self._expect(change.wanted)
        self._check_result(change)

    def _read_port_states(self, ports: list[int]) -> Mapping[int, PortState]:
        """States of the given ports; letters that the manual does not list read as UNKNOWN."""
        letters = self._query(scpi.port_state_query(ports), scpi.parse_port_states)
        if len(letters) != len(ports):
            raise ProtocolError(
                self._name, f"asked for {len(ports)} port states, got {len(letters)}"
            )
        return {
            port: _STATES.get(letter, PortState.UNKNOWN)
            for port, letter in zip(ports, letters, strict=True)
        }

    @exclusive
    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]:
        """Optical power at the given ports, in dBm; None where the switch has no monitor.

        Many models have monitors at egress ports only, some have none.
        """
        asked = self._asked(ports)
        if not asked:
            return {}
        ingress, _ = self.size()
        readings: dict[int, float | None] = dict.fromkeys(asked)
        for side in ([p for p in asked if p <= ingress], [p for p in asked if p > ingress]):
            for first in range(0, len(side), scpi.MAX_POWER_PORTS):
                readings |= self._read_power(side[first : first + scpi.MAX_POWER_PORTS])
        return readings

    def _read_power(self, ports: list[int]) -> dict[int, float | None]:
        command = scpi.synchronised(scpi.power_query(ports))
        parse, is_part = scpi.parse_powers_if_any, scpi.is_part_of_powers
        readings = self._query(command, parse, is_part=is_part)
        if readings is None:
            return {}
        if len(readings) != len(ports):
            raise ProtocolError(
                self._name, f"asked for power at {len(ports)} ports, got {len(readings)} readings"
            )
        return dict(zip(ports, readings, strict=True))

    def _present(self) -> frozenset[CrossConnect]:
        """Standing cross-connects; the error queue is empty afterwards."""
        return self._query(scpi.CLEARED_CONNECTIONS_QUERY, self._understood)

    def _check_result(self, change: Difference) -> None:
        try:
            queue, present = self._query(
                scpi.RESULT_QUERY, self._result, follows=True, is_part=scpi.is_part_of_result
            )
        except (DeviceUnavailable, ProtocolError) as error:
            raise unconfirmed(self._name, error) from error
        faults = [fault for fault in queue if fault.code != 0]
        problems = shortfall(change, present)
        if faults or problems:
            reported = ", ".join(f"{f.code} {f.message}" for f in faults[:_SHOWN]) or "no error"
            raise not_made(self._name, [f"the device reports {reported}", *problems])

    def _result(self, text: str) -> tuple[tuple[scpi.DeviceFault, ...], frozenset[CrossConnect]]:
        faults, connections = scpi.parse_result(text)
        return faults, self._understood(connections)

    def _expect(self, present: frozenset[CrossConnect]) -> None:
        self._expected = scpi.format_connections(_by_ingress(present))
        self._last = present

    def _understood(self, text: str) -> frozenset[CrossConnect]:
        """Cross-connects in a reply, which is parsed only if it differs from the expected reply."""
        if text != self._expected:
            present = frozenset(map(CrossConnect._make, scpi.parse_connections(text)))
            self._expected, self._last = text, present
        return self._last

    def _query(
        self,
        command: str,
        parse: Callable[[str], _T],
        *,
        follows: bool = False,
        is_part: Callable[[str], bool] = lambda _: False,
    ) -> _T:
        line = scpi.encode_line(command)
        reply = self._transport.query(line, follows=follows, is_part=is_part)
        try:
            return parse(reply)
        except scpi.ScpiError as error:
            # A reply to another command: no later reply can be trusted.
            self._transport.close()
            raise ProtocolError(self._name, f"{command}: {error}") from error

    def _write(self, command: str) -> None:
        reply = self._transport.write(scpi.encode_line(command), follows=True)
        try:
            scpi.parse_complete(reply)
        except scpi.ScpiError as error:
            self._transport.close()
            raise unconfirmed(self._name, ProtocolError(self._name, str(error))) from error


def _by_ingress(cross_connects: Collection[CrossConnect]) -> list[CrossConnect]:
    """Cross-connects in the device's order."""
    return sorted(cross_connects, key=itemgetter(0))
