"""Servers: Mininet hosts, with addresses and offloads as the emulation needs them."""

from __future__ import annotations

import subprocess
import warnings

from hydra.model import Server
from mininet_scenarios.testbed.layout import server_interface
from mininet_scenarios.testbed.shell import member_environment, run

with warnings.catch_warnings():
    # Mininet 2.3 asks the standard library's deprecated distutils to compare versions.
    warnings.simplefilter("ignore", DeprecationWarning)
    from mininet.link import Intf
    from mininet.node import Host

# On by default, and each wrong here: frames with a checksum still to be filled in, or larger than
# the MTU, are never completed in the userspace datapath, and TCP hangs.
_OFFLOADS = ("tx", "gso", "tso", "gro")


class ServerHost(Host):  # type: ignore[misc]  # Mininet is untyped
    """A Mininet host whose processes are all marked as the testbed's."""

    def popen(self, *args: object, **kwargs: object) -> subprocess.Popen[bytes]:
        """Start a process in the server; output that the caller does not ask for is thrown away.

        (Mininet's own default is a pipe, which stops the process once nobody reads it.)
        """
        kwargs.setdefault("stdout", subprocess.DEVNULL)
        kwargs.setdefault("stderr", subprocess.DEVNULL)
        return super().popen(*args, **kwargs)  # type: ignore[no-any-return]

    def _popen(self, cmd: list[str], **params: object) -> subprocess.Popen[bytes]:
        params.setdefault("env", member_environment())
        return super()._popen(cmd, **params)  # type: ignore[no-any-return]


def run_in(host: ServerHost, *command: str, stdin: str | None = None) -> str:
    """Run a command in the host's namespace, apart from its shell."""
    return run(["mnexec", "-a", str(host.pid), *command], stdin=stdin)


def configure(host: ServerHost, server: Server) -> None:
    """Give the host its MAC and addresses, and turn off everything that would send by itself."""
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
    interface = Intf(name, node=host, moveIntfFn=_is_there_already, up=None)
    first = server.addresses[0]
    interface.mac, interface.ip, interface.prefixLen = (
        server.mac,
        str(first.ip),
        str(first.network.prefixlen),
    )


def _ip_lines(server: Server, name: str) -> list[str]:
    lines = ["link set dev lo up", f"link set dev {name} address {server.mac}"]
    for address in server.addresses:
        flag = " nodad" if address.version == 6 else ""
        lines.append(f"address add {address.with_prefixlen} dev {name}{flag}")
    return [*lines, f"link set dev {name} up"]


def _is_there_already(_interface: Intf, _host: ServerHost) -> None:
    """The veth end was created in the host's namespace already."""
