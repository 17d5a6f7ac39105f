"""Glimmerglass optical circuit switches over TL1 (TCP port 10033)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from drivers.codecs import glimmerglass_tl1, tl1
from drivers.codecs.glimmerglass_tl1 import INPUTS, OUTPUTS, CrossConnectRow
from drivers.exclusive import exclusive
from drivers.optical.input_power import InputPowerOptions, max_input_dbm
from drivers.optical.tl1_switch import CrossConnectState, CrossConnectStates, Tl1Switch
from drivers.transports.tcp import TcpStream
from hydra.config.devices import (
    endpoint_problems,
    login_problems,
    option_problems,
)
from hydra.errors import Problem, ProtocolError
from hydra.model import CrossConnect, Plane
from hydra.roles import DeviceIdentity, OpticalCapabilities, OpticalSwitch, PortState

CAPABILITIES: Final = OpticalCapabilities(bulk=True, unidirectional=True, power_readings=True)

_NO_PRIVILEGES: Final = "0x0"


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``, not connected yet."""
    stream = TcpStream(plane.name, plane.address)
    limit_dbm = max_input_dbm(plane)
    return GlimmerglassTl1(
        plane.name, stream, plane.login, timeout_s=timeout_s, max_input_dbm=limit_dbm
    )


def check(plane: Plane) -> Iterator[Problem]:
    """Problems of ``plane``'s address, login and options; a login is optional."""
    yield from endpoint_problems(plane.address)
    if plane.login is not None:  # some switches have no login
        yield from login_problems(plane.login)
    yield from option_problems(InputPowerOptions, plane.options)


class GlimmerglassTl1(Tl1Switch):
    """An :class:`~hydra.roles.OpticalSwitch` that reads power.

    Ingress ``n`` is input ``10000 + n``, egress ``N + n`` is output ``20000 + n``. A change of any
    size is one ``DLT-CRS-FIBER``, answered once carried out, and one ``ENT-CRS-FIBER``, answered at
    once: the driver reads the connections until all are ``steady``. A connection in ``fault``
    exists, and is reported. A connection that is locked by another user, or that leads to a
    multicast port inside the switch, is not touched.
    """

    DIALECT = glimmerglass_tl1.DIALECT
    CAPABILITIES = CAPABILITIES
    LATE = True

    @exclusive
    def identity(self) -> DeviceIdentity:
        system = self._system()
        return DeviceIdentity(
            "Glimmerglass",
            system.get("SystemType", "") or system.get("ChassisType", ""),
            system.get("SerialNumber", ""),
            system.get("SoftwareActiveVersion", ""),
        )

    def _read_port_states(self, ports: list[int]) -> Mapping[int, PortState]:
        """States by the ports' health; a port without rights for this user is DISABLED.

        Software that does not report rights shows no port as DISABLED.
        """
        found = self._records(glimmerglass_tl1.PORTS_QUERY, glimmerglass_tl1.parse_port)
        states = {port.identifier: _state(port) for port in found}
        return {port: states.get(self._identifier(port), PortState.UNKNOWN) for port in ports}

    @exclusive
    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]:
        """Optical power at the given ports, in dBm; None where the switch has no monitor."""
        asked = self._asked(ports)
        if not asked:
            return {}
        query, parse = glimmerglass_tl1.POWERS_QUERY, glimmerglass_tl1.parse_power
        readings = dict(self._records(query, parse))
        return {port: readings.get(self._identifier(port)) for port in asked}

    def _system(self) -> Mapping[str, str]:
        command = glimmerglass_tl1.SYSTEM_QUERY
        try:
            return glimmerglass_tl1.parse_system(self._ask(command).records)
        except tl1.Tl1Error as error:
            raise ProtocolError(self._name, f"{command.name}: {error}") from error

    def _read_size(self) -> tuple[int, int]:
        try:
            return glimmerglass_tl1.parse_matrix(self._system())
        except tl1.Tl1Error as error:
            raise ProtocolError(self._name, str(error)) from error

    def _identifier(self, port: int) -> int:
        inputs, _ = self.size()
        return INPUTS + port if port <= inputs else OUTPUTS + port - inputs

    def _standings(self) -> CrossConnectStates:
        inputs, outputs = self.size()
        query, parse = glimmerglass_tl1.CONNECTIONS_QUERY, glimmerglass_tl1.parse_connection
        standings: dict[CrossConnect, CrossConnectState] = {}
        taken: dict[int, str] = {}
        self._taken = taken
        for found in self._records(query, parse, whole=True):
            if found.source is None or found.target is None:
                continue
            ingress, output = found.source - INPUTS, found.target - OUTPUTS
            if not (1 <= ingress <= inputs and 1 <= output <= outputs):
                why = (
                    f"connected by {found.source} to {found.target}, inside the switch (multicast)"
                )
                taken |= {ingress: why} if 1 <= ingress <= inputs else {}
                taken |= {inputs + output: why} if 1 <= output <= outputs else {}
                continue
            standings[CrossConnect(ingress, inputs + output)] = _standing(found)
        return standings

    def _remove(self, cross_connects: Sequence[CrossConnect]) -> list[str]:
        command = glimmerglass_tl1.delete(self._identifier(c.ingress) for c in cross_connects)
        return self._command({"tearing down": command})[1]

    def _add(self, cross_connects: Sequence[CrossConnect]) -> list[str]:
        ends = [(self._identifier(c.ingress), self._identifier(c.egress)) for c in cross_connects]
        return self._command({"setting up": glimmerglass_tl1.enter(ends)})[1]


def _state(port: glimmerglass_tl1.Port) -> PortState:
    if port.healthy is None:
        return PortState.UNKNOWN
    if not port.healthy:
        return PortState.FAILED
    return PortState.DISABLED if port.privileges == _NO_PRIVILEGES else PortState.ENABLED


def _standing(found: CrossConnectRow) -> CrossConnectState:
    if found.state == "steady":
        return CrossConnectState(works=True, locked_by=found.lock)
    trouble = f"is in {found.state}: {found.cause}"
    may_settle = found.state != "fault"
    return CrossConnectState(
        works=False, trouble=trouble, may_settle=may_settle, locked_by=found.lock
    )
