"""Polatis optical circuit switches over SCPI (TCP port 5025)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from drivers.codecs import scpi
from drivers.transports.tcp import TcpLineTransport
from hydra.config.devices import (
    NoOptions,
    endpoint_problems,
    no_login_problems,
    option_problems,
)
from hydra.errors import (
    DeviceError,
    DeviceUnavailable,
    OutcomeUnknown,
    Problem,
    ProtocolError,
)
from hydra.model import CrossConnect, Plane
from hydra.roles import DeviceIdentity, OpticalCapabilities, OpticalSwitch, PortState

CAPABILITIES: Final = OpticalCapabilities(bulk=True, unidirectional=True)

_STATES: Final = {"E": PortState.ENABLED, "D": PortState.DISABLED, "F": PortState.FAILED}
_SHOWN: Final = 8
"""Cross-connects or faults that an error message spells out."""

_T = TypeVar("_T")


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``, not connected yet."""
    return PolatisScpi(plane.name, plane.address, timeout_s=timeout_s)


def check(plane: Plane) -> Iterator[Problem]:
    """What can't work in ``plane``'s configuration."""
    yield from endpoint_problems(plane.address)
    yield from no_login_problems(plane.login)
    yield from option_problems(NoOptions, plane.options)


class PolatisScpi:
    """An :class:`~hydra.roles.OpticalSwitch`.

    Ingress ports are 1..N, egress ports N+1..N+M. A change is one ``sub`` and one ``add``, whatever
    its size. The device answers nothing to either, so each is followed by ``*opc?``, then the error
    queue and the cross-connects are read: a set command that did nothing looks like success.

    ``timeout_s`` covers one command, the mirrors' switching time included.
    """

    def __init__(self, name: str, address: str, *, timeout_s: float) -> None:
        self._name = name
        self._size: tuple[int, int] | None = None
        self._transport = TcpLineTransport(
            name,
            address,
            decoder=scpi.ReplyDecoder,
            decode_error=scpi.ScpiError,
            timeout_s=timeout_s,
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> OpticalCapabilities:
        return CAPABILITIES

    def open(self) -> None:
        """Connect; a second call on an open device does nothing. Raises DeviceUnavailable."""
        self._transport.open()

    def close(self) -> None:
        """Drop the connection; safe to repeat. The next use connects again."""
        self._transport.close()
        self._size = None

    def identity(self) -> DeviceIdentity:
        found = self._query(scpi.IDENTITY_QUERY, scpi.parse_identity)
        return DeviceIdentity(found.vendor, found.model, found.serial, found.firmware)

    def size(self) -> tuple[int, int]:
        """Numbers of (ingress, egress) ports; asked once until closed."""
        if self._size is None:
            self._size = self._query(scpi.SIZE_QUERY, scpi.parse_size)
        return self._size

    def cross_connects(self) -> frozenset[CrossConnect]:
        """Read from the device, never from memory."""
        pairs = self._query(scpi.CONNECTIONS_QUERY, scpi.parse_connections)
        return frozenset(CrossConnect(ingress, egress) for ingress, egress in pairs)

    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        """Tear down, then set up; returns once the mirrors have settled and were read back.

        What is already as wanted is left alone, so repeating a change moves nothing.
        """
        self._check_ports({*disconnect, *connect})
        present = self.cross_connects()
        kept = present - (set(disconnect) - set(connect))
        added = set(connect) - kept
        self._check_free(kept, added)
        removed = present - kept
        if removed or added:
            self._carry_out(removed, added)
            self._check_result(wanted=kept | added, removed=removed, added=added)

    def port_states(self, ports: Collection[int]) -> Mapping[int, PortState]:
        """States of these ports; letters the manual does not list read as UNKNOWN."""
        asked = sorted(set(ports))
        if not asked:
            return {}
        self._check_numbers(asked, 1, sum(self.size()), "port")
        letters = self._query(scpi.port_state_query(asked), scpi.parse_port_states)
        if len(letters) != len(asked):
            raise ProtocolError(
                self._name, f"asked for {len(asked)} port states, got {len(letters)}"
            )
        return {
            port: _STATES.get(letter, PortState.UNKNOWN)
            for port, letter in zip(asked, letters, strict=True)
        }

    def _check_ports(self, touched: Collection[CrossConnect]) -> None:
        ingress, egress = self.size()
        self._check_numbers((c.ingress for c in touched), 1, ingress, "ingress port")
        self._check_numbers(
            (c.egress for c in touched), ingress + 1, ingress + egress, "egress port"
        )

    def _check_numbers(self, ports: Iterable[int], first: int, last: int, kind: str) -> None:
        for port in ports:
            if not first <= port <= last:
                raise DeviceError(
                    self._name, f"there is no {kind} {port}: this switch has {first}..{last}"
                )

    def _check_free(self, kept: frozenset[CrossConnect], added: Collection[CrossConnect]) -> None:
        """Refuse to touch a port in use: the device might steal it from somebody else's circuit."""
        peers = {c.ingress: c.egress for c in kept} | {c.egress: c.ingress for c in kept}
        claimed: set[int] = set()
        for new in sorted(added):
            for port in (new.ingress, new.egress):
                what = f"can't connect {new.ingress} to {new.egress}: port {port}"
                if port in peers:
                    raise DeviceError(
                        self._name,
                        f"{what} is connected to {peers[port]}; disconnect it in the same change, "
                        "or find out who uses it",
                    )
                if port in claimed:
                    raise DeviceError(self._name, f"{what} is used twice in this change")
                claimed.add(port)

    def _carry_out(
        self, removed: Collection[CrossConnect], added: Collection[CrossConnect]
    ) -> None:
        # An error left in the queue by an earlier client would be taken for ours.
        self._query(scpi.synchronised(scpi.CLEAR), scpi.parse_complete)
        if removed:
            self._write(scpi.disconnect_command(_pairs(removed)))
        if added:
            try:
                self._write(scpi.connect_command(_pairs(added)))
            except DeviceUnavailable as error:
                if removed:  # half of the change is made
                    raise self._unconfirmed(error) from error
                raise

    def _unconfirmed(self, error: DeviceError) -> OutcomeUnknown:
        return OutcomeUnknown(
            self._name, f"a change was begun and could not be confirmed: {error}; read it back"
        )

    def _check_result(
        self,
        wanted: frozenset[CrossConnect],
        removed: Collection[CrossConnect],
        added: Collection[CrossConnect],
    ) -> None:
        try:
            told = self._query(scpi.ERRORS_QUERY, scpi.parse_faults)
            present = self.cross_connects()
        except (DeviceUnavailable, ProtocolError) as error:
            raise self._unconfirmed(error) from error
        # Others may use the same switch: only what this change was about is compared.
        faults = [fault for fault in told if fault.code != 0]
        missing = sorted(set(added) - present)
        left = sorted((set(removed) & present) - wanted)
        if not faults and not missing and not left:
            return
        reported = ", ".join(f"{f.code} {f.message}" for f in faults[:_SHOWN]) or "no error"
        problems = [f"the device reports {reported}"]
        if missing:
            problems.append(f"not connected: {_shown(missing)}")
        if left:
            problems.append(f"still connected: {_shown(left)}")
        raise DeviceError(self._name, "the change was not made as asked: " + "; ".join(problems))

    def _query(self, command: str, parse: Callable[[str], _T]) -> _T:
        reply = self._transport.query(scpi.encode_line(command))
        try:
            return parse(reply)
        except scpi.ScpiError as error:
            # A reply that belongs to another command: nothing that follows can be trusted.
            self._transport.close()
            raise ProtocolError(self._name, f"{command}: {error}") from error

    def _write(self, command: str) -> None:
        reply = self._transport.write(scpi.encode_line(scpi.synchronised(command)))
        try:
            scpi.parse_complete(reply)
        except scpi.ScpiError as error:
            self._transport.close()
            raise self._unconfirmed(ProtocolError(self._name, str(error))) from error


def _pairs(cross_connects: Collection[CrossConnect]) -> list[tuple[int, int]]:
    return [(c.ingress, c.egress) for c in sorted(cross_connects)]


def _shown(cross_connects: Collection[CrossConnect]) -> str:
    listed = [f"{c.ingress} to {c.egress}" for c in cross_connects]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
