"""IBM and Lenovo RackSwitch G8264, retagged over NETCONF 1.0 in text mode (port 830).

The switch has no YANG: ``edit-config`` carries command-line text, with ``rollback-on-error``, so a
change is atomic. Reading over NETCONF is undocumented, so membership is read by the command line
over SSH, as in :mod:`drivers.tor.ibm_g8264`.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Final

from pydantic import Field

from drivers.exclusive import exclusive
from drivers.tor.ibm_g8264 import G8264Tor
from drivers.transports.iscli_session import IscliSession
from drivers.transports.netconf import NetconfTransport
from drivers.transports.ssh import SshOptions
from drivers.transports.ssh_shell import SshShell
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, Problem
from hydra.model import Rack
from hydra.roles import PortVlans, TorCapabilities, TorSwitch

CAPABILITIES: Final = TorCapabilities(bulk=True)


class Options(SshOptions):
    """``options`` of a ToR."""

    cli_port: Annotated[int, Field(ge=1, le=65535)] = 22
    """TCP port of the same switch's command line."""


def build(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet. Raises DeviceError without a login."""
    tor = rack.tor
    if tor.login is None:
        raise DeviceError(rack.name, "NETCONF wants a login")
    options = Options.model_validate(dict(tor.options))
    host, _, _ = tor.address.rpartition(":")
    shell = SshShell(rack.name, f"{host}:{options.cli_port}", tor.login, options)
    cli = IscliSession(rack.name, shell, timeout_s=timeout_s)
    netconf = NetconfTransport(
        rack.name, tor.address, tor.login, options, timeout_s=timeout_s, datastore="running"
    )
    return G8264NetconfTor(G8264Tor(rack.name, cli), netconf)


def check(rack: Rack) -> Iterator[Problem]:
    """Problems of the address, login and options of a rack's ToR."""
    yield from endpoint_problems(rack.tor.address)
    yield from login_problems(rack.tor.login, keys=True)
    yield from option_problems(Options, rack.tor.options)


class G8264NetconfTor:
    """A :class:`~hydra.roles.TorSwitch`: read by ``reader``, written in one ``edit-config``."""

    def __init__(self, reader: G8264Tor, netconf: NetconfTransport) -> None:
        self._reader = reader
        self._lock = threading.RLock()
        self._netconf = netconf

    @property
    def name(self) -> str:
        return self._reader.name

    @property
    def capabilities(self) -> TorCapabilities:
        return CAPABILITIES

    @exclusive
    def open(self) -> None:
        """Log in over both protocols; a second call on an open device does nothing."""
        self._reader.open()
        self._netconf.open()

    @exclusive
    def close(self) -> None:
        """Drop both sessions; safe to repeat. The next use logs in again."""
        self._reader.close()
        self._netconf.close()

    def ports(self) -> tuple[str, ...]:
        """Names of the ports in the command line's listing."""
        return self._reader.ports()

    def vlans(self, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """Membership as configured."""
        return self._reader.vlans(ports)

    @exclusive
    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        """Replace the membership of the given ports in one edit, and read it back.

        Raises DeviceError (nothing written) for a bad VLAN or port, or if the switch refuses.
        """
        commands = self._reader.commands(wanted)
        if commands:
            text = "".join(f"{command}\n" for command in commands)
            self._netconf.edit_text(
                text, lambda remaining_s: self._reader.check_result(wanted, remaining_s)
            )

    def link_up(self, ports: Collection[str]) -> Mapping[str, bool]:
        """True by port whose link is up."""
        return self._reader.link_up(ports)
