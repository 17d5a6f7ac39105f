"""Mininet's hosts, adapted to the emulation: the only module that imports Mininet."""

from __future__ import annotations

import subprocess
import warnings

from hydra.model import Server
from mininet_scenarios.testbed.shell import member_environment

with warnings.catch_warnings():
    # Mininet 2.3 asks the standard library's deprecated distutils to compare versions.
    warnings.simplefilter("ignore", DeprecationWarning)
    from mininet.link import Intf
    from mininet.node import Host


class ServerHost(Host):  # type: ignore[misc]  # Mininet is untyped
    """A Mininet host whose processes are all marked as the testbed's."""

    def popen(self, *args: object, **kwargs: object) -> subprocess.Popen[bytes]:
        """Start a process in the server; without a request by the caller, output is thrown away.

        (Mininet's own default is a pipe; an unread pipe stops the process.)
        """
        kwargs.setdefault("stdout", subprocess.DEVNULL)
        kwargs.setdefault("stderr", subprocess.DEVNULL)
        return super().popen(*args, **kwargs)  # type: ignore[no-any-return]

    def _popen(self, cmd: list[str], **params: object) -> subprocess.Popen[bytes]:
        params.setdefault("env", member_environment())
        return super()._popen(cmd, **params)  # type: ignore[no-any-return]

    def adopt(self, interface: str, server: Server) -> None:
        """Give Mininet an interface with addresses."""
        adopted = Intf(interface, node=self, moveIntfFn=_is_there_already, up=None)
        first = server.addresses[0]
        adopted.mac, adopted.ip = server.mac, str(first.ip)
        adopted.prefixLen = str(first.network.prefixlen)


def _is_there_already(_interface: Intf, _host: ServerHost) -> None:
    """The veth end was created in the host's namespace already."""
