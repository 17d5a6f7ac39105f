"""Sized TCP transfers between servers of the stage, with their times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from mininet_scenarios.stage.stage import CONGESTION, Stage, wait_for_file
from mininet_scenarios.workloads.mesh import Endpoint
from mininet_scenarios.workloads.reports import read_report, write_moment
from mininet_scenarios.workloads.transfers import Done, Order

_PORT: Final = 5600
_LEAD_S: Final = 0.5
"""Time for all ready processes to learn the start time."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A transfer to make."""

    source: str
    destination: str
    size_bytes: int
    kind: str
    """Name for the reader of the result."""
    made_mbps: float | None = None
    """Rate at which the application makes its data; None: all data exist at once."""
    begins_s: float = 0.0
    """Begin, after the common begin of all transfers."""
    unit_bytes: int | None = None
    """Size of the application's blocks in bytes: it makes a block after the arrival of the last
    block; None: without such waits.
    """
    disk: str | None = None
    """Disk of the source; a disk's transfers make their data in turn, with the sum of their
    rates.
    """


@dataclass(frozen=True, slots=True)
class Transferred:
    """A finished transfer; seconds count from the start of the first transfer."""

    source: str
    destination: str
    size_bytes: int
    kind: str
    started_s: float
    finished_s: float

    @property
    def seconds(self) -> float:
        return self.finished_s - self.started_s

    @property
    def mbps(self) -> float:
        return self.size_bytes * 8 / 1e6 / self.seconds


def transfer_all(stage: Stage, wishes: Sequence[Wish], timeout_s: float) -> tuple[Transferred, ...]:
    """Begin all transfers at once, or each at its time, and wait for the last.

    Raises ScenarioError if a transfer fails, or has not ended after ``timeout_s``.
    """
    sources = list(dict.fromkeys(wish.source for wish in wishes))
    with ExitStack() as stack:
        for server in dict.fromkeys(wish.destination for wish in wishes):
            stack.enter_context(_receiver(stage, server))
        begin, running = stage.file("begin", ""), []
        for source in sources:
            report = stage.file(f"transfers-{source}", ".json")
            orders = stage.file(f"orders-{source}", ".json")
            orders.write_text(json.dumps(_orders(stage, wishes, source)))
            options = ["send", "--orders", str(orders), "--report", str(report)]
            ready = stage.file(f"ready-{source}", "")
            options += ["--congestion", CONGESTION, "--ready", str(ready), "--begin", str(begin)]
            job = stack.enter_context(stage.workload(source, "transfers", options))
            running.append((job, ready, report))
        for job, ready, _ in running:
            wait_for_file(ready, job)
        write_moment(begin, time.monotonic() + _LEAD_S)  # timed: all begin at the same time
        for job, _, _ in running:
            job.finish(timeout_s)
    done = {
        source: [Done(**transfer) for transfer in read_report(report)["transfers"]]
        for source, (_, _, report) in zip(sources, running, strict=True)
    }
    return _joined(wishes, done)


def _orders(stage: Stage, wishes: Sequence[Wish], source: str) -> list[dict[str, object]]:
    return [
        Order(
            Endpoint(stage.address(wish.destination), _PORT),
            wish.size_bytes,
            wish.made_mbps,
            wish.begins_s,
            wish.unit_bytes,
            wish.disk,
        ).to_json()
        for wish in wishes
        if wish.source == source
    ]


def _joined(wishes: Sequence[Wish], done: dict[str, list[Done]]) -> tuple[Transferred, ...]:
    first_s = min(transfer.started_s for some in done.values() for transfer in some)
    of_source = {source: iter(some) for source, some in done.items()}
    joined = []
    for wish in wishes:
        transfer = next(of_source[wish.source])
        times_s = transfer.started_s - first_s, transfer.finished_s - first_s
        joined.append(
            Transferred(wish.source, wish.destination, wish.size_bytes, wish.kind, *times_s)
        )
    return tuple(joined)


@contextmanager
def _receiver(stage: Stage, server: str) -> Iterator[None]:
    ready = stage.file(f"receiving-{server}", "")
    options = ["receive", "--bind", stage.address(server), "--port", str(_PORT)]
    with stage.workload(server, "transfers", [*options, "--ready", str(ready)]) as job:
        wait_for_file(ready, job)
        yield
        job.stop()
