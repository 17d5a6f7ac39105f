"""An emulated SONiC optical circuit switch: ``python -m mininet_scenarios.emulators.sonic``.

Protocol: gNMI or RESTCONF (``--protocol``), with TLS and a login (``admin``, ``YourPaSsWoRd``), in
front of a real Redis; in the words of SONiC's working group or of Molex (``--dialect``).
``--directory`` has ``ca.pem``, the authority of the switch's certificate, and ``redis.sock``, where
``redis-cli -s`` shows the databases. Options and common behaviour:
:mod:`mininet_scenarios.emulators.process`.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from mininet_scenarios.emulators.certificate import new_directory
from mininet_scenarios.emulators.faults import OF_SWITCHES, FaultKind
from mininet_scenarios.emulators.ocs import EmulatedOcs
from mininet_scenarios.emulators.process import Product, run
from mininet_scenarios.emulators.sonic_databases import DatabaseError, Databases
from mininet_scenarios.emulators.sonic_gnmi import GnmiServer
from mininet_scenarios.emulators.sonic_orchagent import DIALECTS, Orchagent
from mininet_scenarios.emulators.sonic_restconf import RestconfServer
from mininet_scenarios.emulators.sonic_switch import SonicServer

_log: Final = logging.getLogger(__name__)
_SERVERS: Final = {"gnmi": (GnmiServer, 8080), "restconf": (RestconfServer, 443)}
"""Servers and ports by protocol, with the ports of real devices."""
FAULTS: Final = OF_SWITCHES | {FaultKind.RESERVED, FaultKind.IDLE_LOGOUT}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--protocol", choices=sorted(_SERVERS), default="gnmi")
    parser.add_argument("--dialect", choices=sorted(DIALECTS), default="working-group")
    parser.add_argument("--directory", type=Path, help="for its certificate and databases; new")
    own, others = parser.parse_known_args(arguments)
    server, port = _SERVERS[own.protocol]
    with ExitStack() as stack:
        directory = stack.enter_context(new_directory(parser, own.directory))
        try:
            databases = stack.enter_context(Databases(directory))
        except DatabaseError as error:
            _log.error("%s", error)
            return 1

        def serve(ocs: EmulatedOcs, serial: str) -> SonicServer:
            orchagent = Orchagent(ocs, databases, DIALECTS[own.dialect], serial)
            return server(directory, databases, orchagent, ocs.faults)

        description = f"{__doc__}\n{parser.format_usage()}"
        return run(Product("sonic", description, own.protocol, port, serve, FAULTS), others)


if __name__ == "__main__":
    sys.exit(main())
