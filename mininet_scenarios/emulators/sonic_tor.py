"""An emulated SONiC ToR switch: ``python -m mininet_scenarios.emulators.sonic_tor``.

Protocol: gNMI, with TLS and a login (``admin``, ``YourPaSsWoRd``), in front of a real Redis. The
switch has VLANs and links, and forwards no frames. ``--directory`` has ``ca.pem``, the authority of
the switch's certificate, and ``redis.sock``. A second socket takes the experimenter's orders.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Final

from mininet_scenarios.emulators.faults import FaultKind, Faults
from mininet_scenarios.emulators.gnmi_tor import GnmiTorEmulator, command_line, started
from mininet_scenarios.emulators.sonic_databases import DatabaseError, Databases
from mininet_scenarios.emulators.sonic_gnmi import GnmiServer
from mininet_scenarios.emulators.sonic_orchagent import METADATA

_log: Final = logging.getLogger(__name__)
_LANES: Final = 4
"""Ports are numbered by their first lane: Ethernet0, Ethernet4, …"""


class VlanManager:
    """Writes the configuration into the state database, as vlanmgrd and portsyncd do."""

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status."""
    parser = command_line("sonic_tor", __doc__, 8080)
    with started(parser, arguments) as (options, directory):
        try:
            with Databases(directory) as databases:
                faults = Faults()
                manager = VlanManager(databases, faults, options.ports)
                server = GnmiServer(directory, databases, manager, faults)
                more = frozenset({FaultKind.RESERVED, FaultKind.PARTIAL})
                GnmiTorEmulator(server, faults, manager.up, more).serve(options)
        except (DatabaseError, OSError) as error:
            _log.error("%s", error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
