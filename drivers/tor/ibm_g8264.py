"""IBM and Lenovo RackSwitch G8264 (Networking OS): retagged by its command line.

The driver reaches the switch over SSH, or by its serial console (``serial:/dev/NAME``).

A change is one block of commands for each set of ports with the same wanted VLANs. The switch knows
no transaction, so an interrupted change may stand in part. The untagged VLAN of a trunk is written
into the trunk's list of allowed VLANs as well; otherwise these switches drop its frames. A trunk
without an untagged VLAN has VLAN 1 as native VLAN, and does not carry VLAN 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from pydantic import Field

from drivers.codecs import iscli
from drivers.codecs.iscli import IscliError
from drivers.exclusive import exclusive
from drivers.tor import membership
from drivers.tor.session import SessionTor
from drivers.transports.iscli_session import IscliSession
from drivers.transports.serial_line import SerialOptions, SerialStream
from drivers.transports.ssh import SshOptions
from drivers.transports.ssh_shell import SshShell
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, Problem, ProtocolError
from hydra.model import Rack, VlanId
from hydra.roles import PortVlans, TorCapabilities, TorSwitch

CAPABILITIES: Final = TorCapabilities()

_SERIAL: Final = "serial:"
_PORTS: Final = 64
_UNUSED_NATIVE: Final = 1


class ConsoleOptions(SerialOptions):
    """``options`` at ``serial:`` addresses."""

    baud: int = Field(9600, ge=50, le=4_000_000)


def build(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet. Raises DeviceError without a login."""
    if rack.tor.login is None:
        raise DeviceError(rack.name, "SSH wants a login")
    name, login, settings = rack.name, rack.tor.login, dict(rack.tor.options)
    path = _console(rack.tor.address)
    if path is None:
        shell = SshShell(name, rack.tor.address, login, SshOptions.model_validate(settings))
        return G8264Tor(name, IscliSession(name, shell, timeout_s=timeout_s))
    line = SerialStream(name, path, ConsoleOptions.model_validate(settings))
    return G8264Tor(name, IscliSession(name, line, timeout_s=timeout_s, console=login))


def check(rack: Rack) -> Iterator[Problem]:
    """Problems of the address, login and options of a rack's ToR."""
    path = _console(rack.tor.address)
    if path is None:
        yield from endpoint_problems(rack.tor.address)
    elif not PurePosixPath(path).is_absolute():
        yield Problem("address", f"{rack.tor.address!r} is not {_SERIAL}/dev/NAME")
    yield from login_problems(rack.tor.login, keys=path is None)
    yield from option_problems(SshOptions if path is None else ConsoleOptions, rack.tor.options)


class G8264Tor(SessionTor):
    """A :class:`~hydra.roles.TorSwitch`; ports are ``1`` to ``64``, as printed on the switch."""

    CAPABILITIES = CAPABILITIES

    def __init__(self, name: str, cli: IscliSession) -> None:
        super().__init__(name, cli)
        self._cli = cli

    @exclusive
    def ports(self) -> tuple[str, ...]:
        """Ports of ``show interface status`` that carry VLANs: all but the management port."""
        return tuple(filter(_is_port, self._links()))

    @exclusive
    def vlans(self, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """Membership as configured."""
        return self._vlans(ports)

    def _vlans(
        self, ports: Collection[str], timeout_s: float | None = None
    ) -> Mapping[str, PortVlans]:
        numbers = self.numbers(ports)
        lines = self._cli.show("show running-config", timeout_s)
        try:
            found = iscli.parse_memberships(lines, numbers.values())
        except IscliError as error:
            raise ProtocolError(self._name, f"show running-config: {error}") from error
        return {
            port: _membership(found.get(number, iscli.DEFAULT_MEMBERSHIP))
            for port, number in numbers.items()
        }

    @exclusive
    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        """Replace the membership of the given ports, and read it back.

        Raises DeviceError (nothing written) for a bad VLAN or port, and OutcomeUnknown if the
        switch refuses or is lost in the middle.
        """
        commands = self.commands(wanted)
        if commands:
            self._cli.configure(commands)
            self.check_result(wanted)

    @exclusive
    def link_up(self, ports: Collection[str]) -> Mapping[str, bool]:
        """True for each port whose link is up. Raises DeviceError for a missing port."""
        self.numbers(ports)
        found = self._links()
        missing = sorted(set(ports) - found.keys())
        if missing:
            raise DeviceError(self._name, f"the switch shows no port {', '.join(missing)}")
        return {port: found[port] for port in ports}

    def _links(self) -> Mapping[str, bool]:
        lines = self._cli.show("show interface status")
        try:
            return iscli.parse_links(lines)
        except IscliError as error:
            raise ProtocolError(self._name, f"show interface status: {error}") from error

    def commands(self, wanted: Mapping[str, PortVlans]) -> list[str]:
        """Commands for the ports not yet as wanted; empty if there are none. Raises DeviceError."""
        membership.check_memberships(self._name, wanted)
        numbers = self.numbers(wanted)
        self._check_native(wanted)
        present = self.vlans(wanted)
        alike: dict[PortVlans, list[int]] = {}
        for port, vlans in wanted.items():
            if present[port] != vlans:
                alike.setdefault(vlans, []).append(numbers[port])
        return [
            command
            for vlans, ports in alike.items()
            for command in iscli.trunk_commands(ports, *_configured(vlans))
        ]

    @exclusive
    def check_result(self, wanted: Mapping[str, PortVlans], timeout_s: float | None = None) -> None:
        """Raises DeviceError if a port does not read back as written, within ``timeout_s`` if
        given.
        """
        try:
            present = self._vlans(wanted, timeout_s)
        except (DeviceUnavailable, ProtocolError) as error:
            raise OutcomeUnknown(
                self._name, f"a change was made and could not be read back: {error}"
            ) from error
        membership.check_result(self._name, wanted, present)

    def numbers(self, ports: Collection[str]) -> dict[str, int]:
        """Port numbers by name. Raises DeviceError for a name of no port."""
        for port in ports:
            if not _is_port(port):
                raise DeviceError(
                    self._name, f"there is no port {port}: this switch has 1..{_PORTS}"
                )
        return {port: int(port) for port in ports}

    def _check_native(self, wanted: Mapping[str, PortVlans]) -> None:
        for port, vlans in wanted.items():
            if vlans.native is None and _UNUSED_NATIVE in vlans.tagged:
                raise DeviceError(
                    self._name,
                    f"port {port}: this switch can't tag VLAN {_UNUSED_NATIVE} on a trunk without "
                    "an untagged VLAN; use another VLAN",
                )


def _is_port(name: str) -> bool:
    return name.isascii() and name.isdigit() and 1 <= int(name) <= _PORTS


def _console(address: str) -> str | None:
    return address.removeprefix(_SERIAL) if address.startswith(_SERIAL) else None


def _membership(found: iscli.Membership) -> PortVlans:
    native = VlanId(found.native)
    if not found.trunk:
        return PortVlans(frozenset(), native)
    allowed = frozenset(VlanId(vlan) for vlan in found.allowed)
    return PortVlans(allowed - {native}, native if native in allowed else None)


def _configured(vlans: PortVlans) -> tuple[frozenset[int], int]:
    """(allowed, native) that the switch has to be configured with for the given membership."""
    if vlans.native is None:
        return frozenset(vlans.tagged), _UNUSED_NATIVE
    return frozenset({*vlans.tagged, vlans.native}), vlans.native
