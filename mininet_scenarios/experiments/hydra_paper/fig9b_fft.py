"""The workload of HydRA's Fig. 9(b) as in the paper: FFTW's transform on real MPI.

Throughput over time comes from the ports of the ranks' servers, without other traffic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mininet_scenarios.experiments.hydra_paper.fig9b_scenario import (
    RANK_HOSTS,
    Fig9bPlan,
    Ranks,
    Work,
    Workload,
)
from mininet_scenarios.stage import mpi
from mininet_scenarios.stage.mpi import Kernel
from mininet_scenarios.stage.stage import Stage, sent_bytes
from mininet_scenarios.testbed.layout import uplink_interfaces
from mininet_scenarios.workloads.alltoall import SAMPLE_S, ProgressSample

_MEETING_S: Final = 60.0


def kernel_of(plan: Fig9bPlan) -> Kernel:
    """Transforms of about the same duration as the plan's exchanges, with pauses as long.

    The transforms move half the bytes: FFTW's ranks exchange two by two, so that links are idle at
    times.
    """
    ranks = len(RANK_HOSTS)
    side = max(1, round((plan.bytes_per_pair * ranks**2 / 32) ** (1 / 3) / ranks)) * ranks
    round_bytes = Kernel("fft", side, 1).bytes_between(ranks)
    rounds = max(1, round(plan.rounds * plan.bytes_per_pair / round_bytes / 2))
    return Kernel("fft", side, rounds, plan.compute_s)


def workload(program: Path) -> Workload:
    """The compiled kernels as a workload for Fig. 9(b): ``fig9b_scenario.run``."""

    @contextmanager
    def ranks(stage: Stage, plan: Fig9bPlan) -> Iterator[Ranks]:
        rate_mbps = max(plane.rate_mbps for plane in stage.fabric.planes)
        job = mpi.Job(program, RANK_HOSTS, mpi.window_bytes(rate_mbps))
        with mpi.running(stage, job, kernel_of(plan)) as running:
            running.wait_until_begun(_MEETING_S)
            with _watched(stage) as progress:
                yield _Transforms(running, progress, time.monotonic())

    return ranks


@dataclass(frozen=True, slots=True)
class _Transforms:
    running: mpi.Running
    progress: Mapping[str, list[ProgressSample]]
    started_s: float

    def finish(self, timeout_s: float) -> Work:
        run = self.running.finish(timeout_s)
        return Work(
            min(rank.began_s for rank in run.ranks),
            max(rank.ended_s for rank in run.ranks),
            tuple(tuple(samples) for samples in self.progress.values()),
            run.ranks,
        )


@contextmanager
def _watched(stage: Stage) -> Iterator[Mapping[str, list[ProgressSample]]]:
    """Bytes sent by each rank's server, read continuously until the end of the block."""
    progress: dict[str, list[ProgressSample]] = {name: [] for name in RANK_HOSTS}
    stop = threading.Event()

    def watch() -> None:
        while True:
            for name, samples in progress.items():
                samples.append(ProgressSample(time.monotonic(), _sent_bytes(stage, name)))
            if stop.wait(SAMPLE_S):
                return

    watcher = threading.Thread(target=watch, name="port counters", daemon=True)
    watcher.start()
    try:
        yield progress
    finally:
        stop.set()
        watcher.join()


def _sent_bytes(stage: Stage, server: str) -> int:
    return sent_bytes(set(uplink_interfaces(stage.fabric, stage.fabric.server_by_name[server])))
