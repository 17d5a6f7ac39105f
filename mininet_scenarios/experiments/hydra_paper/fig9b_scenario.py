"""HydRA Fig. 9(b): an all-to-all transfer, slowed by other traffic, and helped by the controller.

Ranks on the servers of r1 and r2 exchange data over a circuit r1–r2 (topology 1 of Fig. 8(b)).
There is a second circuit r1–r3, so traffic from r2 to r3 takes two hops and shares the first
circuit with the ranks. There are three runs: the ranks alone; with background traffic from r2 to
r3; and the same with the controller in periodic mode. The controller gets no request: the counters
have to show the controller that a circuit r2–r3 would serve both (topology 2). In the paper, the
change was triggered by hand, without divert and drain, as in :func:`by_hand`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage import mpi
from mininet_scenarios.stage.alternation import sleep_until
from mininet_scenarios.stage.controller_client import (
    ControllerClient,
    PairDemand,
    ReconfigurationRecord,
)
from mininet_scenarios.stage.stage import (
    CONGESTION,
    Job,
    Losses,
    ScenarioError,
    Stage,
    tcp_transfer,
)
from mininet_scenarios.workloads.alltoall import (
    ProgressSample,
    RankReport,
    rank_report_from_json,
)
from mininet_scenarios.workloads.iperf3 import Sample
from mininet_scenarios.workloads.mesh import Endpoint
from mininet_scenarios.workloads.reports import read_report

RANK_HOSTS: Final = ("h11", "h12", "h21")
_RANK_RACKS: Final = [host[1] for host in RANK_HOSTS]
ONE_WAY: Final = (
    _RANK_RACKS.count("1") * _RANK_RACKS.count("2") / len(RANK_HOSTS) / (len(RANK_HOSTS) - 1)
)
"""Share of all bytes between ranks that goes from r1 to r2 over the circuit."""
BACKGROUND: Final = (("h22", "h31"), ("h22", "h32"))
"""Flows that share only the circuit with the ranks' flows, so topology can help: h22 has no
rank.
"""
TOPOLOGY_1: Final = (
    PairDemand("r1", "r2", 6.0),
    PairDemand("r1", "r3", 3.0),
    PairDemand("r2", "r3", 1.0),
)
"""Demands whose largest get the circuits; r2–r3 is left with two hops over the rest."""
TOPOLOGY_2: Final = (
    PairDemand("r1", "r2", 6.0),
    PairDemand("r2", "r3", 3.0),
)
PERIODIC: Final = "periodic"
RATE_SCALE: Final = 0.5
"""Factor of all links' rates, against Fig. 9(a): here several links are busy at once, and a single
thread that forwards for all bridges would be the bottleneck in place of the circuits.
"""

_RANK_PORT: Final = 5400
_BACKGROUND_PORT: Final = 5210
_SETUP_S: Final = 6.0
_LONGEST: Final = 10.0
"""Multiple of the expected time after which a run is given up."""
_GRID_S: Final = 1.0
"""Step of the series. A step covers several rounds: shorter steps would show single rounds."""


@dataclass(frozen=True, slots=True)
class Fig9bPlan:
    """The work, and the controller's settings for the work."""

    bytes_per_pair: int
    rounds: int
    compute_s: float
    alone_s: float
    """Rough time of the ranks alone."""
    background_streams: int
    """Number of TCP flows to each of the background's destinations."""
    circuit_mbps: float
    background_share: float
    """Most that all background flows would send, as a share of a circuit's rate; with less than the
    full rate, a small machine can forward everything once the traffic no longer shares a circuit.
    """
    epoch_s: float
    """Time between decisions of the periodic mode; the paper's authors looked once, after 15 s."""

    @property
    def expected_s(self) -> float:
        """Wall time of the whole scenario."""
        return self.alone_s * (1 + 2.2 + 1.5) + 3 * _SETUP_S

    @property
    def by_hand_s(self) -> float:
        """Wall time of :func:`by_hand`."""
        return self.alone_s * 1.5 + _SETUP_S

    @property
    def background_flows(self) -> int:
        return len(BACKGROUND) * self.background_streams

    @property
    def stream_mbps(self) -> float:
        """Highest rate of a background flow."""
        return self.circuit_mbps * self.background_share / self.background_flows

    def at_rates(self, times: float) -> Fig9bPlan:
        """The plan with ``times`` the bytes, for links of ``times`` the rate."""
        return replace(
            self,
            bytes_per_pair=max(1, round(self.bytes_per_pair * times)),
            circuit_mbps=self.circuit_mbps * times,
        )


FULL: Final = Fig9bPlan(500_000, 60, 0.1, 17.0, 3, 50.0, 0.78, 4.0)
QUICK: Final = Fig9bPlan(500_000, 25, 0.1, 7.2, 3, 50.0, 0.78, 2.0)
SHORT: Final = Fig9bPlan(500_000, 18, 0.1, 5.2, 3, 50.0, 0.78, 1.4)
"""Short form of the experiment, with an additional run."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of the ranks, from the ranks' own reports."""

    started_s: float
    """Start by ``CLOCK_MONOTONIC``, as all times here."""
    finished_s: float
    progress: tuple[tuple[ProgressSample, ...], ...]
    """Samples of each rank."""
    ranks: tuple[RankReport | mpi.RankReport, ...]


class Ranks(Protocol):
    """A parallel program under way on :data:`RANK_HOSTS`."""

    @property
    def started_s(self) -> float: ...

    def finish(self, timeout_s: float) -> Work:
        """Wait for the end of the program. Raises ScenarioError if the program fails or takes too
        long.
        """


Workload = Callable[[Stage, Fig9bPlan], AbstractContextManager[Ranks]]
"""Starts a parallel program, which runs once the block begins, and ends with the block at the
latest.
"""


@dataclass(frozen=True, slots=True)
class TransferRun:
    """A transfer among the ranks."""

    label: str
    seconds: float
    """Time from all ranks' start to the last one's end."""
    started_unix_s: float
    series: tuple[Sample, ...]
    """Rate received by all ranks together, over time."""
    ranks: tuple[RankReport | mpi.RankReport, ...]
    actions: tuple[ReconfigurationRecord, ...]
    """Changes made by the controller, with or without a request, oldest first."""
    losses: Losses

    @property
    def peak_mbps(self) -> float:
        return max(sample.mbps for sample in self.series)

    @property
    def acted_at_s(self) -> float | None:
        """Time at which the controller began to change the topology, from the start of the run."""
        if not self.actions:
            return None
        return self.actions[0].created_unix_s - self.started_unix_s


@dataclass(frozen=True, slots=True)
class Fig9bResult:
    plan: Fig9bPlan
    alone: TransferRun
    congested: TransferRun
    helped: TransferRun

    def ratio(self, run: TransferRun) -> float:
        """Completion time relative to the time of the ranks alone."""
        return run.seconds / self.alone.seconds

    @property
    def dark_frames(self) -> int:
        """Dark frames of all runs together."""
        return sum(run.losses.dark_frames for run in (self.alone, self.congested, self.helped))


def run(
    stage: Stage, plan: Fig9bPlan, narrator: Narrator, workload: Workload | None = None
) -> Fig9bResult:
    """Play the scenario; raises ScenarioError when a run can't be counted.

    ``workload`` is :func:`exchange` by default.
    """
    transfer = partial(_transfer, stage, plan, workload or exchange)
    on_request = _policy(plan)
    periodic = _policy(plan) | {"mode": PERIODIC}
    with _topology_1(stage, on_request):
        with narrator.phase("(b) all-to-all alone", plan.alone_s + _SETUP_S):
            alone = transfer("alone")
        narrator.say(f"(b) alone: {alone.seconds:.1f} s")
        with narrator.phase("(b) all-to-all with background", plan.alone_s * 2.2):
            congested = transfer("congested", background=True)
        narrator.say(f"(b) congested: {congested.seconds:.1f} s")
    with (
        narrator.phase("(b) the same, the controller watching", plan.alone_s * 1.5 + _SETUP_S),
        _topology_1(stage, periodic) as controller,
    ):
        helped = _helped(partial(transfer, "with HydRA", background=True), controller)
    narrator.say(
        f"(b) with HydRA: {helped.seconds:.1f} s; the controller acted at {helped.acted_at_s:.1f} s"
    )
    return Fig9bResult(plan, alone, congested, helped)


def by_hand(
    stage: Stage,
    plan: Fig9bPlan,
    at_s: float,
    narrator: Narrator,
    workload: Workload | None = None,
) -> TransferRun:
    """Play the congested transfer, with the change made as by the paper's authors.

    The change is made on request, ``at_s`` after the ranks' start, while frames are under way.
    Raises ScenarioError for a run that can't be counted.
    """
    with (
        narrator.phase("(b) the same, changed by hand as published", plan.by_hand_s),
        _topology_1(stage, _policy(plan), CycleName.AS_PUBLISHED) as controller,
    ):
        done: list[ReconfigurationRecord] = []

        def change(started_s: float) -> None:
            sleep_until(started_s + at_s)
            done.append(controller.reconfigure(TOPOLOGY_2))

        run = _transfer(
            stage,
            plan,
            workload or exchange,
            "as published",
            background=True,
            meanwhile=change,
        )
        route = controller.path_between("r2", "r3")
    if len(route.planes) != 1:
        raise ScenarioError(f"topology 2 of Fig. 8(b) did not come about: r2 - r3 over {route}")
    narrator.say(f"(b) as published: {run.seconds:.1f} s; changed at {at_s:.1f} s")
    return replace(run, actions=tuple(done))


def _policy(plan: Fig9bPlan) -> dict[str, Any]:
    """Policy on request, with the periodic mode's settings scaled with the epoch.

    The run is shorter than the paper's.
    """
    return {
        "mode": "on-request",
        "epoch_s": plan.epoch_s,
        "poll_interval_s": plan.epoch_s / 8,
        "demand_window_s": plan.epoch_s / 2,
        "minimum_circuit_life_s": plan.epoch_s / 2,
    }


@contextmanager
def _topology_1(
    stage: Stage, policy: Mapping[str, Any], cycle: CycleName = CycleName.HITLESS
) -> Iterator[ControllerClient]:
    """A controller, and the common initial topology of all three runs."""
    with stage.controller(policy, cycle) as controller:
        controller.reconfigure(TOPOLOGY_1)
        routes = [controller.path_between(pair.a, pair.b) for pair in TOPOLOGY_1]
        if [route.relays for route in routes] != [(), (), ("r1",)]:
            found = "; ".join(
                f"{pair.a} - {pair.b} over {route}"
                for pair, route in zip(TOPOLOGY_1, routes, strict=True)
            )
            raise ScenarioError(f"topology 1 of Fig. 8(b) did not come about: {found}")
        yield controller


@contextmanager
def _background(stage: Stage, plan: Fig9bPlan) -> Iterator[None]:
    """Traffic from r2 to r3 for the length of the block."""
    with ExitStack() as flows:
        for number, (source, destination) in enumerate(BACKGROUND):
            flows.enter_context(
                tcp_transfer(
                    stage,
                    source,
                    destination,
                    _BACKGROUND_PORT + number,
                    plan.alone_s * _LONGEST,
                    streams=plan.background_streams,
                    rate_mbps=plan.stream_mbps,
                    congestion=CONGESTION,
                )
            )
        yield


def _helped(transfer: Callable[[], TransferRun], controller: ControllerClient) -> TransferRun:
    before = {record.id for record in controller.reconfigurations()}
    run = transfer()
    actions = [
        record
        for record in reversed(controller.reconfigurations())
        if record.id not in before and record.trigger == PERIODIC and record.timeline
    ]
    if not actions:
        raise ScenarioError(
            "the controller did not act by itself; GET /v1/decisions and its log say why"
        )
    route = controller.path_between("r2", "r3")
    if len(route.planes) != 1:
        raise ScenarioError(f"the controller acted, but r2 - r3 runs over {route}")
    return replace(run, actions=tuple(actions))


def _transfer(
    stage: Stage,
    plan: Fig9bPlan,
    workload: Workload,
    label: str,
    *,
    background: bool = False,
    meanwhile: Callable[[float], None] | None = None,
) -> TransferRun:
    """Run all ranks to the end; the ``background`` begins as soon as the ranks have begun.

    ``meanwhile`` is called then, with the start time of the ranks.
    """
    before = stage.losses()
    to_unix_s = time.time() - time.monotonic()
    with ExitStack() as stack:
        ranks = stack.enter_context(workload(stage, plan))
        if background:
            stack.enter_context(_background(stage, plan))
        if meanwhile is not None:
            meanwhile(ranks.started_s)
        work = ranks.finish(plan.alone_s * _LONGEST)
    return TransferRun(
        label=label,
        seconds=work.finished_s - work.started_s,
        started_unix_s=work.started_s + to_unix_s,
        series=throughput_of(work.progress, work.started_s, work.finished_s),
        ranks=work.ranks,
        actions=(),
        losses=stage.losses().since(before),
    )


@dataclass(frozen=True, slots=True)
class _Exchange:
    jobs: tuple[tuple[Job, Path], ...]

    @property
    def started_s(self) -> float:
        return self.jobs[0][0].started_s

    def finish(self, timeout_s: float) -> Work:
        for job, _ in self.jobs:
            job.finish(timeout_s)
        reports = tuple(rank_report_from_json(read_report(path)) for _, path in self.jobs)
        for report in reports:
            if not (report.complete and report.verified):
                reason = report.reason or "bytes arrived that were not sent"
                raise ScenarioError(f"rank {report.rank}: {reason}")
        return Work(
            min(report.started_s for report in reports),
            max(report.finished_s for report in reports),
            tuple(report.samples for report in reports),
            reports,
        )


@contextmanager
def exchange(stage: Stage, plan: Fig9bPlan) -> Iterator[Ranks]:
    """All-to-all transfers in rounds, without MPI."""
    peers = ",".join(str(Endpoint(stage.address(host), _RANK_PORT)) for host in RANK_HOSTS)
    with ExitStack() as stack:
        yield _Exchange(
            tuple(
                stack.enter_context(_rank(stage, plan, rank, peers))
                for rank in range(len(RANK_HOSTS))
            )
        )


@contextmanager
def _rank(stage: Stage, plan: Fig9bPlan, rank: int, peers: str) -> Iterator[tuple[Job, Path]]:
    report = stage.file(f"rank{rank}", ".json")
    arguments = ["--rank", str(rank), "--peers", peers, "--bytes", str(plan.bytes_per_pair)]
    arguments += ["--rounds", str(plan.rounds), "--compute-ms", f"{plan.compute_s * 1e3:g}"]
    arguments += ["--congestion", CONGESTION, "--report", str(report)]
    with stage.workload(RANK_HOSTS[rank], "alltoall", arguments) as job:
        yield job, report


def throughput_of(
    progress: Sequence[Sequence[ProgressSample]], started_s: float, finished_s: float
) -> tuple[Sample, ...]:
    """Rate of all ranks, in Mbps on a common grid of whole seconds from ``started_s``."""
    times = np.append(np.arange(started_s, finished_s, _GRID_S), finished_s)
    if len(times) > 2 and times[-1] - times[-2] < _GRID_S / 2:
        times = np.delete(times, -2)  # a sliver at the end would show as a spike
    received = np.zeros(len(times))
    for samples in progress:
        at_s = [sample.at_s for sample in samples]
        received += np.interp(times, at_s, [sample.received_bytes for sample in samples])
    mbps = np.diff(received) * 8 / 1e6 / np.diff(times)
    return tuple(
        Sample(float(start - started_s), float(end - started_s), float(value))
        for start, end, value in zip(times[:-1], times[1:], mbps, strict=True)
    )
