"""``python -m mininet_scenarios.testbed up [FABRIC]`` and ``… clean``."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from apps.process.configuration import load_configuration
from hydra.errors import HydraError
from mininet_scenarios.testbed import Testbed, clean_up, testbed_lock
from mininet_scenarios.testbed.shell import require_root

_DEMO: Final = Path("configs/demo.yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.verb == "up":
            _up(options.fabric)
        else:
            require_root()
            with testbed_lock():
                clean_up()
    except HydraError as error:
        print(error, file=sys.stderr)
        return 1
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
        print("End with Ctrl-C, or from a script by `kill` (SIGTERM).", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mininet_scenarios.testbed")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="build a fabric and keep it until Ctrl-C")
    up.add_argument("fabric", type=Path, nargs="?", default=_DEMO)
    verbs.add_parser("clean", help="remove whatever a killed run left behind")
    return parser


if __name__ == "__main__":
    sys.exit(main())
