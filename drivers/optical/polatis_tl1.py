"""Polatis optical circuit switches over TL1 (TCP port 3082, SSH port 6252, or a serial line)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from drivers.codecs import polatis_tl1, tl1
from drivers.exclusive import exclusive
from drivers.optical import light
from drivers.optical.changes import across
from drivers.optical.light import (
    AlarmThresholds,
    Attenuator,
    AttenuatorMode,
    LightLimits,
    LightOptions,
)
from drivers.optical.tl1_switch import WORKS, CrossConnectStates, Tl1Switch, standing_alarm
from drivers.transports.addresses import address_problems, stream_to
from drivers.transports.serial_line import SerialOptions
from drivers.transports.ssh import SshOptions
from drivers.transports.ssh_shell import SshShell
from drivers.transports.stream import Stream
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, Problem
from hydra.model import CrossConnect, Login, Plane
from hydra.roles import (
    Alarm,
    DeviceIdentity,
    OpticalCapabilities,
    OpticalSwitch,
    PortState,
)

CAPABILITIES: Final = OpticalCapabilities(
    bulk=True, unidirectional=True, power_readings=True, alarms=True
)

_SHUTTERS: Final = {"OPEN": PortState.ENABLED, "CLOSED": PortState.DISABLED}

_ATTENUATORS: Final = {
    "NONE": AttenuatorMode.NONE,
    "ABS": AttenuatorMode.POWER,
    "CONV": AttenuatorMode.POWER,
    "REL": AttenuatorMode.RELATIVE,
    "MAX": AttenuatorMode.MAXIMUM,
}
"""Modes by their first letters: some clients spell the mode out."""
_NO_ATTENUATORS: Final = "NONE"

_SSH: Final = "ssh:"

_NOTHING_EXPECTED: Final = LightLimits()

_T = TypeVar("_T")


class SshPlaneOptions(SshOptions, LightOptions):
    """``options`` of a plane at an ``ssh:`` address."""


class SerialPlaneOptions(SerialOptions, LightOptions):
    """``options`` of a plane at a ``serial:`` address."""


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``, not connected yet. Raises DeviceError for SSH without a login."""
    endpoint = _ssh_endpoint(plane.address)
    stream: Stream
    login: Login | None
    if endpoint is None:
        stream, login = stream_to(plane), plane.login
    elif plane.login is None:
        raise DeviceError(plane.name, "SSH wants a login")
    else:
        options = SshPlaneOptions.model_validate(dict(plane.options))
        # SSH has logged in already: a TL1 session over SSH needs no ACT-USER.
        stream, login = SshShell(plane.name, endpoint, plane.login, options), None
    return PolatisTl1(plane.name, stream, login, timeout_s=timeout_s, limits=light.limits(plane))


def check(plane: Plane) -> Iterator[Problem]:
    """Problems of ``plane``'s address, login and options."""
    if (endpoint := _ssh_endpoint(plane.address)) is not None:
        yield from endpoint_problems(endpoint)
        yield from login_problems(plane.login, keys=True)
        yield from option_problems(SshPlaneOptions, plane.options)
        return
    yield from address_problems(plane, LightOptions, SerialPlaneOptions)
    yield from login_problems(plane.login)


class PolatisTl1(Tl1Switch):
    """An :class:`~hydra.roles.OpticalSwitch` that reads power and reports alarms.

    Ingress ports are 1..N, egress ports N+1..N+M. A change of any size is one ``DLT-PATCH`` and one
    ``ENT-PATCH``. On an any-to-any switch the lower half of the ports are ingress and the upper
    half egress; a port connected within its half by another client is in use.
    """

    DIALECT = polatis_tl1.DIALECT
    CAPABILITIES = CAPABILITIES

    def __init__(
        self,
        name: str,
        stream: Stream,
        login: Login | None,
        *,
        timeout_s: float,
        limits: LightLimits = _NOTHING_EXPECTED,
    ) -> None:
        super().__init__(
            name, stream, login, timeout_s=timeout_s, max_input_dbm=limits.max_input_dbm
        )
        self._limits = limits

    @exclusive
    def open(self) -> None:
        """Connect and log in; a second call on an open device does nothing.

        Warns of attenuators and alarm thresholds that contradict the owner's expectations.
        """
        was_connected = self._session.connected
        super().open()
        if not was_connected:
            light.warn_at_attach(
                self._name, self._limits, self.size, self._attenuators, self._thresholds
            )

    @exclusive
    def identity(self) -> DeviceIdentity:
        found = self._record(polatis_tl1.TYPE_QUERY, polatis_tl1.parse_type)
        serial = self._record(polatis_tl1.INVENTORY_QUERY, polatis_tl1.parse_serial)
        return DeviceIdentity(found.vendor, found.model, serial, found.firmware)

    def _read_port_states(self, ports: list[int]) -> Mapping[int, PortState]:
        """States by shutter: a port with a closed shutter reads as DISABLED."""
        shutters = self._per_port(ports, polatis_tl1.shutter_query, polatis_tl1.parse_shutter)
        return {
            port: _SHUTTERS.get(shutter, PortState.UNKNOWN) for port, shutter in shutters.items()
        }

    @exclusive
    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]:
        """Optical power at the given ports, in dBm; None where the switch has no monitor."""
        readings = self._per_port(ports, polatis_tl1.power_query, polatis_tl1.parse_power)
        return {port: readings.get(port) for port in set(ports)}

    @exclusive
    def alarms(self) -> tuple[Alarm, ...]:
        """Standing alarms."""
        records = self._ask(polatis_tl1.ALARMS_QUERY).records
        return tuple(standing_alarm(record, polatis_tl1.port_of) for record in records)

    @exclusive
    def reports(self) -> tuple[Alarm, ...]:
        """Alarms reported since the last call, while there was a session."""
        return self._reported(polatis_tl1.port_of)

    def _check_light(self, added: Collection[CrossConnect]) -> None:
        super()._check_light(added)
        light.check_attenuators(self._name, self._limits, added, self._attenuators, self.power_dbm)

    def _attenuators(self, ports: Collection[int]) -> Mapping[int, Attenuator]:
        """Attenuators at the given egress ports; empty if the switch has none, or knows of none."""
        reply = self._session.query(polatis_tl1.ATTENUATORS_QUERY)
        if reply.completion is tl1.Completion.DENIED:
            return {}
        modes = self._parsed(
            polatis_tl1.ATTENUATORS_QUERY, reply.records, polatis_tl1.parse_attenuator_modes
        )
        if modes in ([], [_NO_ATTENUATORS]):
            return {}
        query = polatis_tl1.attenuator_query(sorted(set(ports)))
        return {
            row.port: Attenuator(_attenuator_mode(row.mode), row.level, row.mode)
            for row in self._records(query, polatis_tl1.parse_attenuator)
        }

    def _thresholds(self) -> Mapping[int, AlarmThresholds]:
        rows = self._records(polatis_tl1.THRESHOLDS_QUERY, polatis_tl1.parse_thresholds)
        return {
            row.port: AlarmThresholds(row.on, low_dbm=row.low_dbm, high_dbm=row.high_dbm)
            for row in rows
        }

    def _per_port(
        self,
        ports: Collection[int],
        query: Callable[[Sequence[int]], tl1.Command],
        parse: Callable[[str], tuple[int, _T]],
    ) -> Mapping[int, _T]:
        asked = self._asked(ports)
        return dict(self._records(query(asked), parse)) if asked else {}

    def _read_size(self) -> tuple[int, int]:
        ports, egress = self._record(polatis_tl1.SIZE_QUERY, polatis_tl1.parse_size)
        return (ports // 2, ports // 2) if egress is None else (ports, egress)

    def _standings(self) -> CrossConnectStates:
        ingress, _ = self.size()
        present, taken = across(
            self._records(polatis_tl1.PATCHES_QUERY, polatis_tl1.parse_patch, whole=True), ingress
        )
        self._taken = taken
        return dict.fromkeys(present, WORKS)

    def _remove(self, cross_connects: Sequence[CrossConnect]) -> list[str]:
        command = polatis_tl1.delete_patches([c.ingress for c in cross_connects])
        return self._command({"tearing down": command})[1]

    def _add(self, cross_connects: Sequence[CrossConnect]) -> list[str]:
        command = polatis_tl1.enter_patches([(c.ingress, c.egress) for c in cross_connects])
        return self._command({"setting up": command})[1]


def _attenuator_mode(word: str) -> AttenuatorMode:
    known = (mode for name, mode in _ATTENUATORS.items() if word.startswith(name))
    return next(known, AttenuatorMode.FIXED)


def _ssh_endpoint(address: str) -> str | None:
    return address.removeprefix(_SSH) if address.startswith(_SSH) else None
