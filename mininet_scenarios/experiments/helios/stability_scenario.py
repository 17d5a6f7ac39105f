"""Helios (SIGCOMM 2010, section 5): patterns of shifting flows, and a controller that follows.

``configs/helios.yaml`` is the network: four pods of four hosts. Every host sends as many flows as a
pod has hosts, with new receivers after each stability period. The controller sees the new demand
in its counters only, plans, and moves circuits.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.helios.patterns import PORT_UP_S
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage import building
from mininet_scenarios.stage.stage import CONGESTION, Job, Stage, sent_bytes, wait_for_file
from mininet_scenarios.testbed.shipped import CONFIGS
from mininet_scenarios.workloads.mesh import Endpoint
from mininet_scenarios.workloads.reports import read_report, write_moment
from mininet_scenarios.workloads.shifting import Sample, samples_from_json

CONFIG: Final = CONFIGS / "helios.yaml"
PODS: Final = 4
HOSTS: Final = 4
"""Number of hosts in each pod, and of flows of each host."""
CIRCUITS: Final[Mapping[str, str]] = MappingProxyType(
    {"unidirectional": "helios", "bidirectional": "edmonds"}
)
"""Planning algorithm by kind of circuit."""
_ELEPHANT: Final = 0.15
"""Share of an uplink's rate, above the acknowledgements for three uplinks."""
LOOP_S: Final = 0.25
"""Time between decisions; the loop of Helios takes 265 ms (section 5.5)."""
GRID_S: Final = 0.25
_PORT: Final = 5700
_LEAD_S: Final = 0.5
"""Time for all ready hosts to learn the start of the first period."""
CONTROLLER_S: Final = 4.0
_SETUP_S: Final = 3.0
_STAGES: Final = "hydra_loop_stage_duration_seconds"
_SUBSTEPS: Final = "hydra_reconfiguration_substep_duration_seconds"

Destinations = list[list[int]]
"""Receivers of each host's flows; hosts are counted through all pods."""


def pod_stride(period: int, _chance: np.random.Generator) -> Destinations:
    """PStride: from each host of pod i to each of pod i + k, k cycling through 1 to 3."""
    stride = 1 + period % (PODS - 1)
    return [
        [(host // HOSTS + stride) % PODS * HOSTS + other for other in range(HOSTS)]
        for host in range(PODS * HOSTS)
    ]


def host_stride(period: int, _chance: np.random.Generator) -> Destinations:
    """HStride: all flows of host i to host i + n + k, n hosts in a pod, k from 0 on and around."""
    hosts = PODS * HOSTS
    shift = HOSTS + period % (hosts - 2 * HOSTS + 1)
    return [[(host + shift) % hosts] * HOSTS for host in range(hosts)]


def random_hosts(_period: int, chance: np.random.Generator) -> Destinations:
    """Random: all flows of a host to a host in another pod; several senders may share a
    receiver.
    """
    hosts = np.arange(PODS * HOSTS)
    away = chance.integers(HOSTS, PODS * HOSTS, len(hosts))
    # A step of ``away`` hosts from the first host of a pod never ends in the same pod.
    to = (hosts // HOSTS * HOSTS + away) % len(hosts)
    return [[int(host)] * HOSTS for host in to]


PATTERNS: Final[Mapping[str, Callable[[int, np.random.Generator], Destinations]]] = (
    MappingProxyType({"PStride": pod_stride, "HStride": host_stride, "Random": random_hosts})
)


@dataclass(frozen=True, slots=True)
class Case:
    pattern: str
    stability_s: float
    cycle: CycleName | None
    """CycleName; None: the packet switch alone."""
    port_up: str = "neither"
    """Condition that keeps ports down after the return of light."""
    circuits: str = "unidirectional"
    """A key of :data:`CIRCUITS`."""

    @property
    def way(self) -> str:
        return "packets alone" if self.cycle is None else self.cycle.value


@dataclass(frozen=True, slots=True)
class Run:
    """Result of a case."""

    pattern: str
    stability_s: float
    way: str
    port_up: str
    circuits: str
    mbps: float
    """Mean rate received by all hosts together, without headers."""
    series: tuple[float, ...]
    """The same rate in each :data:`GRID_S`."""
    on_circuits: tuple[float, ...]
    """Rate sent by pods on circuits, in Mb/s, with headers and acknowledgements."""
    changes: int
    dark_frames: int
    loop_ms: Mapping[str, float]
    """Mean of each stage of the control loop, and of each substep of a change."""


@dataclass(frozen=True, slots=True)
class Length:
    """Length of a run."""

    least_s: float
    least_periods: int

    def periods(self, stability_s: float) -> int:
        """Number of periods: whole rounds of the three strides."""
        wanted = max(self.least_periods, int(np.ceil(self.least_s / stability_s)))
        return -(-wanted // (PODS - 1)) * (PODS - 1)

    def expected_s(self, stability_s: float) -> float:
        return _SETUP_S + _LEAD_S + self.periods(stability_s) * stability_s


@contextmanager
def stage_of(scale: float, port_up_s: float, work_dir: Path, narrator: Narrator) -> Iterator[Stage]:
    """The testbed, with ports up ``port_up_s`` after light."""
    with building.stage_of(
        CONFIG, scale, work_dir, narrator, debounce_ms=1000 * port_up_s
    ) as stage:
        yield stage


@contextmanager
def with_circuits(stage: Stage, circuits: str) -> Iterator[Stage]:
    """The testbed for controllers with the given kind of circuits."""
    directory = stage.work_dir / circuits
    directory.mkdir()
    policy = {**stage.config["policy"], "algorithm": CIRCUITS[circuits]}
    config = {**stage.config, "circuits": circuits, "policy": policy}
    view = Stage(stage.testbed, stage.fabric, config, directory)
    with view.one_controller():
        yield view


def run(stage: Stage, case: Case, length: Length, seed: int, narrator: Narrator) -> Run:
    """Play one case; raises ScenarioError for a run that can't be counted."""
    title = f"{case.pattern}, {case.stability_s:g} s, {case.way}"
    if case.port_up != "neither":
        title += f", {case.port_up}"
    if case.circuits != "unidirectional":
        title += f", {case.circuits}"
    chance = np.random.default_rng(seed)
    periods = length.periods(case.stability_s)
    plans = [PATTERNS[case.pattern](period, chance) for period in range(periods)]
    with (
        narrator.phase(title, length.expected_s(case.stability_s)),
        stage.controller(_policy(stage, case), case.cycle or CycleName.HITLESS) as client,
    ):
        client.reconfigure([])  # circuits of the previous case
        before, earlier = stage.losses(), client.changes_done()
        metrics = client.metrics()
        with _on_circuits(stage) as sent:
            start_s, received = _play(stage, plans, case.stability_s)
        changes = len(client.changes_done() - earlier)
        loop_ms = loop_split(metrics, client.metrics())
        dark_frames = stage.losses().since(before).dark_frames
    end_s = start_s + periods * case.stability_s
    series = throughput_mbps(received, start_s, end_s)
    mbps = float(series.mean())
    narrator.say(f"{title}: {mbps:.1f} Mb/s, {changes} changes")
    return Run(
        pattern=case.pattern,
        stability_s=case.stability_s,
        way=case.way,
        port_up=case.port_up,
        circuits=case.circuits,
        mbps=mbps,
        series=tuple(series.tolist()),
        on_circuits=tuple(throughput_mbps([sent], start_s, end_s).tolist()),
        changes=changes,
        dark_frames=dark_frames,
        loop_ms=loop_ms,
    )


def _policy(stage: Stage, case: Case) -> dict[str, Any]:
    """The case's policy; all differences are reloadable, so one controller is enough for all
    cases.
    """
    enough_mbps = 0.02 * stage.fabric.electrical_rate_mbps
    return {
        "mode": "on-request" if case.cycle is None else "periodic",
        "epoch_s": LOOP_S,
        "poll_interval_s": LOOP_S / 2,
        "demand_window_s": LOOP_S / 2,
        "elephant_mbps": _ELEPHANT * stage.fabric.electrical_rate_mbps,
        "minimum_circuit_life_s": 0.0,
        "minimum_gain_mbps": enough_mbps,
        "gain_factor": 0.0,
        "audit_interval_s": 0,
        # Late ports are part of the experiment, not dead.
        "timeouts": {"port_up_s": 2 * PORT_UP_S[case.port_up] + _SETUP_S},
    }


def _play(
    stage: Stage, plans: Sequence[Destinations], stability_s: float
) -> tuple[float, list[tuple[Sample, ...]]]:
    """(start of the first period, received data of each host)."""
    servers = [server.name for server in stage.fabric.servers]
    addresses = [str(Endpoint(stage.address(name), _PORT)) for name in servers]
    with ExitStack() as stack:
        start = stage.file("start", "")
        jobs = []
        for number, name in enumerate(servers):
            orders = stage.file(f"shifting-{name}", ".json")
            receivers = [[addresses[to] for to in plan[number]] for plan in plans]
            orders.write_text(json.dumps(receivers), encoding="utf-8")
            jobs.append(stack.enter_context(_host(stage, name, orders, start, stability_s)))
        for job, ready, _ in jobs:
            wait_for_file(ready, job)
        start_s = time.monotonic() + _LEAD_S
        write_moment(start, start_s)
        for job, _, _ in jobs:
            job.finish(_LEAD_S + len(plans) * stability_s + PATIENCE_S)
    return start_s, [samples_from_json(read_report(report)) for _, _, report in jobs]


@contextmanager
def _host(
    stage: Stage, name: str, orders: Path, start: Path, stability_s: float
) -> Iterator[tuple[Job, Path, Path]]:
    ready, report = stage.file(f"ready-{name}", ""), stage.file(f"received-{name}", ".json")
    options = ["--bind", stage.address(name), "--port", str(_PORT), "--ready", str(ready)]
    options += ["--orders", str(orders), "--start", str(start)]
    options += ["--stability-s", f"{stability_s:g}", "--congestion", CONGESTION]
    with stage.workload(name, "shifting", [*options, "--report", str(report)]) as job:
        yield job, ready, report


@contextmanager
def _on_circuits(stage: Stage) -> Iterator[list[Sample]]:
    """A list, continuously extended by the total bytes sent by all pods on circuits."""
    ports = [port.tor_port for port in stage.fabric.ports]
    samples: list[Sample] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(GRID_S / 2):
            at_s = time.monotonic()
            samples.append(Sample(at_s, sent_bytes(ports)))

    watcher = threading.Thread(target=watch, name="circuits")
    watcher.start()
    try:
        yield samples
    finally:
        ended.set()
        watcher.join()


def throughput_mbps(
    received: Sequence[Sequence[Sample]], begin_s: float, end_s: float
) -> NDArray[np.float64]:
    """Sum of the receivers' rates in each :data:`GRID_S` from ``begin_s`` on."""
    times = begin_s + GRID_S * np.arange(round((end_s - begin_s) / GRID_S) + 1)
    total = np.zeros(len(times))
    for samples in received:
        at_s = [sample.at_s for sample in samples]
        total += np.interp(times, at_s, [sample.received_bytes for sample in samples])
    return np.asarray(np.diff(total) * 8 / 1e6 / GRID_S)


def asymmetric_mbps(series: Sequence[float], stability_s: float) -> float:
    """Mean of a series of PStride in the later half of each asymmetric period.

    In an asymmetric period, pods do not send to the pods that send to them.
    """
    samples = round(stability_s / GRID_S)
    chosen = [
        series[first + samples // 2 : first + samples]
        for period, first in enumerate(range(0, len(series), samples))
        if 2 * (1 + period % (PODS - 1)) % PODS
    ]
    return float(np.mean(np.concatenate(chosen)))


def loop_split(before: str, after: str) -> dict[str, float]:
    """Mean ms of the control loop's stages and of a change's substeps.

    The texts are Prometheus' before and after.
    """
    earlier, means = _durations(before), {}
    for what, (sum_s, count) in _durations(after).items():
        sum_before_s, count_before = earlier.get(what, (0.0, 0.0))
        if count > count_before:
            means[what] = 1e3 * (sum_s - sum_before_s) / (count - count_before)
    return means


def _durations(metrics: str) -> dict[str, tuple[float, float]]:
    """(sum of seconds, count) of each stage and substep."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(metrics):
        if family.name not in {_STAGES, _SUBSTEPS}:
            continue
        for sample in family.samples:
            what = sample.labels.get("stage") or sample.labels.get("substep") or ""
            found.setdefault(what, {})[sample.name.rpartition("_")[2]] = sample.value
    return {what: (values["sum"], values["count"]) for what, values in found.items()}
