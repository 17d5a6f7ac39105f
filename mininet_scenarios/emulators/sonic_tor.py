"""An emulated SONiC ToR switch: ``python -m mininet_scenarios.emulators.sonic_tor``.

It speaks gNMI, with TLS and a login (``admin``, ``YourPaSsWoRd``), in front of a real Redis. It has
VLANs and links, and forwards no frames. In ``--directory`` are ``ca.pem``, which its certificate is
signed with, and ``redis.sock``. A second socket takes the experimenter's orders.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from mininet_scenarios.emulators.admin import AdminError, AdminServer
from mininet_scenarios.emulators.faults import FaultKind, Faults
from mininet_scenarios.emulators.process import endpoint
from mininet_scenarios.emulators.sonic_databases import DatabaseError, Databases
from mininet_scenarios.emulators.sonic_gnmi import GnmiServer
from mininet_scenarios.emulators.sonic_orchagent import METADATA
from mininet_scenarios.emulators.sonic_switch import CA

_log: Final = logging.getLogger(__name__)
_LANES: Final = 4
"""Ports are numbered by their first lane: Ethernet0, Ethernet4, …"""


class VlanManager:
    """Tells in the state database what was configured, as vlanmgrd and portsyncd do."""

    def __init__(self, databases: Databases, faults: Faults, ports: int) -> None:
        self.operations: frozenset[str] = frozenset()
        self.up = dict.fromkeys((f"Ethernet{_LANES * number}" for number in range(ports)), True)
        self._databases = databases
        self._faults = faults

    async def start(self) -> None:
        metadata = {"type": "ToRRouter", "hwsku": "emulated", "mac": "02:00:00:00:00:01"}
        self._databases.write("CONFIG_DB", METADATA, [], {"localhost": metadata})
        rows = {
            port: {"lanes": port.removeprefix("Ethernet"), "admin_status": "up"} for port in self.up
        }
        self._databases.write("CONFIG_DB", "PORT", [], rows)

    def refresh(self) -> None:
        links = {p: {"netdev_oper_status": "up" if up else "down"} for p, up in self.up.items()}
        self._databases.write("STATE_DB", "PORT_TABLE", [], links)
        if self._faults.active(FaultKind.RESERVED):
            return
        wanted = self._databases.keys("CONFIG_DB", "VLAN_MEMBER")
        made = self._databases.keys("STATE_DB", "VLAN_MEMBER_TABLE")
        new = {key: {"state": "ok"} for key in wanted - made}
        if new or made - wanted:
            self._databases.write("STATE_DB", "VLAN_MEMBER_TABLE", made - wanted, new)


class SonicTorEmulator:
    """The device together with its control socket."""

    def __init__(self, directory: Path, databases: Databases, ports: int) -> None:
        self._faults = Faults()
        self._manager = VlanManager(databases, self._faults, ports)
        self._server = GnmiServer(directory, databases, self._manager, self._faults)
        self._admin = AdminServer(
            {
                "commands": self._commands,
                "fault": self._fault,
                "clear": self._clear,
                "link": self._link,
            }
        )

    async def run(
        self, listen: tuple[str, int], admin: tuple[str, int] | None, stop: asyncio.Event
    ) -> None:
        """Serve until ``stop``; prints the addresses once both are listening."""
        words = ["gnmi {}:{}".format(*await self._server.listen(*listen))]
        if admin is not None:
            words.append("admin {}:{}".format(*await self._admin.listen(*admin)))
        print("listening", *words, flush=True)
        await stop.wait()
        await self._admin.close()
        await self._server.die()

    async def _commands(self, _request: Mapping[str, Any]) -> Mapping[str, object]:
        return {"commands": self._server.changes}

    async def _fault(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        try:
            kind = FaultKind(request.get("fault"))
        except ValueError:
            known = ", ".join(kind.value for kind in FaultKind)
            raise AdminError(f"no fault {request.get('fault')!r}; there are {known}") from None
        self._faults.arm(kind, request.get("times"), float(request.get("delay_s", 0.0)))
        if kind is FaultKind.DEAD:
            await self._server.die()
        return {}

    async def _clear(self, _request: Mapping[str, Any]) -> Mapping[str, object]:
        self._faults.clear()
        await self._server.revive()
        return {}

    async def _link(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        port, up = request.get("port"), request.get("up")
        if port not in self._manager.up or type(up) is not bool:
            raise AdminError(f"no port {port!r}, or up {up!r} is neither true nor false")
        self._manager.up[port] = up
        return {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="sonic_tor", description=__doc__)
    parser.add_argument("--listen", type=endpoint, default=("127.0.0.1", 8080), metavar="H:P")
    parser.add_argument("--admin", type=endpoint, metavar="H:P", help="control socket")
    parser.add_argument("--directory", type=Path, help="for its certificate and databases; new")
    parser.add_argument("--ports", type=int, default=32)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with ExitStack() as stack:
        directory = options.directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if (directory / CA).exists():
            parser.error(
                f"--directory {directory}: another emulator has been there, name a new one"
            )
        directory.mkdir(parents=True, exist_ok=True)
        try:
            databases = stack.enter_context(Databases(directory))
            asyncio.run(_serve(SonicTorEmulator(directory, databases, options.ports), options))
        except (DatabaseError, OSError) as error:
            _log.error("%s", error)
            return 1
    return 0


async def _serve(emulator: SonicTorEmulator, options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await emulator.run(options.listen, options.admin, stop)


if __name__ == "__main__":
    sys.exit(main())
