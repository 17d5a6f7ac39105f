"""Open MPI's ring all-reduce, with hosts in the job's order and in the order of `hydra ranks`.

``python -m benchmarks.ring [RUNS]`` (root). The shape ring r1, r3, r2, r4 is reserved on the demo
fabric, at a fifth of its rates; the job's hosts are h11, h21, h31, h41. In the job's order, two of
four steps of the ring take the electrical network. Both orders run in turn; figures are medians.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console

from benchmarks._report import Result, report, run_benchmark
from hydra_hybrid_network_client import HydraClient
from hydra_hybrid_network_client.requests import WAIT_S
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.reporting.narrator import ConsoleNarrator
from mininet_scenarios.stage import building, mpi
from mininet_scenarios.stage.mpi import Kernel
from mininet_scenarios.stage.stage import Stage

SCALE: Final = 0.2
RUNS: Final = 3
RING: Final = ("r1", "r3", "r2", "r4")
HOSTS: Final = ("h11", "h21", "h31", "h41")
ALL_REDUCE: Final = Kernel("allreduce", 1_000_000, 2)
FASTER: Final = 2.0
"""Target ratio of the order: circuits have ten times the electrical rate."""
_RUN_S: Final = 20.0


def ordered(stage: Stage, url: str) -> Sequence[str]:
    """HOSTS in the order of `hydra ranks`."""
    hosts = stage.file("hosts", "")
    hosts.write_text("".join(f"{host} slots=1\n" for host in HOSTS))
    command = [sys.executable, "-m", "apps.cli", "ranks", "--hosts", str(hosts), "--url", url]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in output.splitlines()]


def main(arguments: Sequence[str] = ()) -> int:
    runs = int(arguments[0]) if arguments else RUNS
    with (
        tempfile.TemporaryDirectory() as directory,
        ConsoleNarrator(Console(), 2 * runs * _RUN_S) as narrator,
    ):
        folder = Path(directory)
        program = mpi.compile_kernels(folder)
        config = building.scaled_config(SCALE)
        with (
            building.stage_with(config, folder / "stage", narrator) as stage,
            stage.process({"mode": "on-request"}) as process,
            HydraClient(process.base_url) as client,
        ):
            client.reserve_shape("ring", RING, "most", wait_s=WAIT_S)
            orders = {"as named": HOSTS, "ranks": ordered(stage, process.base_url)}
            times: dict[str, list[float]] = {name: [] for name in orders}
            window = mpi.window_bytes(max(plane.rate_mbps for plane in stage.fabric.planes))
            for _ in range(runs):
                for name, hosts in orders.items():
                    job = mpi.Job(program, hosts, window)
                    with narrator.phase(f"hosts {name}: {' '.join(hosts)}", _RUN_S):
                        run = mpi.run_kernel(stage, job, ALL_REDUCE, PATIENCE_S)
                    times[name].append(run.seconds / ALL_REDUCE.rounds)
    before, after = median(times["as named"]), median(times["ranks"])
    case = f"all-reduce of 1 MB, hosts {' '.join(orders['ranks'])}"
    result = Result(case, "time", "s", "lower", after, before, " ".join(HOSTS), before / FASTER)
    return report("ring", [result])


if __name__ == "__main__":
    run_benchmark(main)
