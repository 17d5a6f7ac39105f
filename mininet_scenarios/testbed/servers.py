"""Servers: Mininet hosts, with the addresses and offloads of the emulation."""

from __future__ import annotations

import sys
import sysconfig
from importlib import import_module
from typing import TYPE_CHECKING

from hydra.model import Server
from mininet_scenarios.testbed.layout import server_interface
from mininet_scenarios.testbed.shell import TestbedError, run

if TYPE_CHECKING:
    from mininet_scenarios.testbed.mininet_host import ServerHost

# On by default, and each wrong here: frames with a checksum still to be filled in, or larger than
# the MTU, are never completed in the userspace datapath, and TCP hangs.
_OFFLOADS = ("tx", "gso", "tso", "gro")


def server_host_class() -> type[ServerHost]:
    """The class of servers. Raises TestbedError if this Python has no Mininet."""
    try:
        module = import_module("mininet_scenarios.testbed.mininet_host")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "mininet":
            raise
        raise TestbedError(
            f"{sys.executable} has no Mininet, which is a package of the operating system: "
            "apt-get install mininet openvswitch-switch; a virtual environment sees it after "
            "ln -s /usr/lib/python3/dist-packages/mininet "
            f"{sysconfig.get_path('purelib')}/mininet. Experiments whose needs are empty in "
            "`hydra experiment list` do without"
        ) from error
    found: type[ServerHost] = module.ServerHost
    return found


def run_in(host: ServerHost, *command: str, stdin: str | None = None) -> str:
    """Run a command in the host's namespace, outside the host's shell."""
    return run(["mnexec", "-a", str(host.pid), *command], stdin=stdin)


def configure(host: ServerHost, server: Server) -> None:
    """Give the host its MAC and addresses, and turn off all spontaneous sending."""
    name = server_interface(server)
    run_in(
        host,
        "sysctl",
        "-qw",
        f"net.ipv6.conf.{name}.accept_dad=0",
        f"net.ipv6.conf.{name}.accept_ra=0",
        f"net.ipv6.conf.{name}.router_solicitations=0",
    )
    run_in(host, "ethtool", "-K", name, *(word for off in _OFFLOADS for word in (off, "off")))
    run_in(host, "ip", "-batch", "-", stdin="".join(f"{li}\n" for li in _ip_lines(server, name)))
    host.adopt(name, server)


def _ip_lines(server: Server, name: str) -> list[str]:
    lines = ["link set dev lo up", f"link set dev {name} address {server.mac}"]
    for address in server.addresses:
        flag = " nodad" if address.version == 6 else ""
        lines.append(f"address add {address.with_prefixlen} dev {name}{flag}")
    return [*lines, f"link set dev {name} up"]
