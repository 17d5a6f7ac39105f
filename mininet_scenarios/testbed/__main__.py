"""``python -m mininet_scenarios.testbed up [FABRIC]``, ``… fault PLANE FAULT``, ``… clean``."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from apps.process.configuration import load_configuration
from hydra.errors import HydraError
from mininet_scenarios.testbed import Testbed, clean_up, testbed_lock
from mininet_scenarios.testbed.fault import ORDERS, order_fault
from mininet_scenarios.testbed.shell import require_root
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.verb == "up":
            _up(options.fabric)
        elif options.verb == "fault":
            times, delay_s = options.times, options.delay_s
            order_fault(options.plane, options.fault, options.port, times=times, delay_s=delay_s)
        else:
            require_root()
            with testbed_lock(wait=False):
                clean_up()
    except HydraError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _up(path: Path) -> None:
    """Build a fabric's data plane and keep it until Ctrl-C or SIGTERM."""
    loaded = load_configuration(path)
    with Testbed(loaded.fabric, loaded.controller, fdb_age_s=loaded.policy.fdb_age_s):
        print(f"{loaded.fabric.name} is up. Start a controller with `hydra run --config {path}`.")
        for server in loaded.fabric.servers:
            addresses = " ".join(str(address.ip) for address in server.addresses)
            print(f"  {server.name}: {addresses}")
        first = loaded.fabric.servers[0].name
        print(f"A shell in a server: mnexec -a $(pgrep -f 'mininet:{first}$') bash")
        print(f"End with Ctrl-C, or from elsewhere: kill {os.getpid()}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mininet_scenarios.testbed")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="build a fabric and keep it until Ctrl-C")
    up.add_argument("fabric", type=Path, nargs="?", default=DEFAULT_CONFIG)
    fault = verbs.add_parser(
        "fault", help="have the emulator of a plane fail, while a fabric is up"
    )
    fault.add_argument("plane", help="a plane of the fabric, or an emulator's --admin HOST:PORT")
    fault.add_argument(
        "fault", choices=ORDERS, help="docs/devices.md, Emulated devices", metavar="FAULT"
    )
    fault.add_argument("port", type=int, nargs="?", help="for close and open: whose shutter")
    fault.add_argument("--times", type=int, help="for this many commands; default: until clear")
    fault.add_argument("--delay-s", type=float, default=0.0, help="for slow and late")
    verbs.add_parser("clean", help="remove the remains of a killed run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
