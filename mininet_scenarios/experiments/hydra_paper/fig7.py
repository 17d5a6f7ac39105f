"""HydRA's Fig. 7: MPI programs on circuits set up for them, and on a tree of the same price.

A slice of each network joins four racks. On the tree, a rack's servers share the slice's part of an
oversubscribed tree. On HydRA, the servers' share of the planes makes circuits, which form loops: by
VLANs, the controller keeps all circuits in use, where a spanning tree would block most.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
import yaml
from matplotlib.figure import Figure

from hydra.model import Fabric
from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.claims import judged
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.experiments.hydra_paper.published import HYDRA
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREEN, GREY, VERMILION, legend_below
from mininet_scenarios.reporting.table import Row, ranged
from mininet_scenarios.stage import building, mpi
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.mpi import Kernel, MpiRun
from mininet_scenarios.stage.stage import ScenarioError, Stage
from mininet_scenarios.testbed.links import QueueSize
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

_LINK_MBPS: Final = 10_000.0
_ELECTRICAL_MBPS: Final = 1_000.0
"""Electrical rate of a server: the testbed's management network was the electrical part."""
_RACKS: Final = 4
_RACK_NAMES: Final = tuple(f"r{number}" for number in range(1, _RACKS + 1))
_PAIRS: Final = tuple(combinations(_RACK_NAMES, 2))
_BEST: Final = 1.35
"""Largest speed-up in Fig. 7."""
_RANK_FLOPS: Final = 1e9
"""Assumed speed of a rank: one core of 2013, on a problem too large for the core's caches. Each
server has one rank, since the paper's problems are multiples of the number of servers.
"""
_MAX_HOPS: Final = 3
_SETUP_S: Final = 8.0
_ROUNDS: Final = 2
"""Least number of rounds of each kernel."""
_QUEUES: Final = QueueSize(least_frames=64)
"""Queues of frames, which do not shrink with the rates: 10 ms of frames would be less than the
simultaneous bursts of connections on a circuit.
"""
_JUDGED_FROM: Final = 3
"""Least number of repetitions for a significant difference of a tenth between two networks. A
program's single runs on the same circuits differ by more: connections lose frames in shared queues.
"""
_LONGEST: Final = 10.0
"""Multiple of the expected time after which a run is given up."""

TREE: Final = "tree"
AS_PUBLISHED: Final = "as published"
HITLESS: Final = "hydra"
SPANNING_TREE: Final = "spanning tree"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Two networks of equal cost; a job gets a slice of each."""

    name: str
    planes: int
    """Number of a rack's circuits in the slice."""
    oversubscription: int
    servers: int
    """Number of servers in each rack, in the paper."""
    part: int
    """Number of slices that share a rack's servers."""
    wanted: float
    """Demand of each pair of racks, as a part of a circuit."""
    max_hops: int
    """1 if circuits join all racks: a path over a relay would slow others' flows down."""
    spanning: tuple[tuple[str, ...], ...]
    """Racks whose ports a spanning tree leaves open, plane by plane."""

    @property
    def tree_mbps(self) -> float:
        """Rate of a rack's servers on their uplinks to the tree."""
        return 32 * _LINK_MBPS / self.oversubscription / self.part

    @property
    def busiest_mbps(self) -> float:
        """Sum of the rates at which racks can send to each other."""
        return _RACKS * self.planes * _LINK_MBPS


SCENARIOS: Final = (
    # K = 20 planes: five planes are a quarter. A root reaches the others over one circuit each.
    Scenario("scenario 1", 5, 4, 8, 4, 5 / 3, 1, (("r1", "r2"), ("r1", "r3"), ("r1", "r4"))),
    # K = 6 planes: two planes are a third, and make a ring with one blocked link.
    Scenario("scenario 2", 2, 25, 10, 3, 0.4, 3, (_RACK_NAMES, ("r1", "r3"))),
)


@dataclass(frozen=True, slots=True)
class Form:
    """Size of a repetition."""

    scenarios: tuple[Scenario, ...]
    most_servers: int
    """Most servers in a rack; with fewer servers than the paper's, links are faster in
    proportion.
    """
    kernels: tuple[str, ...]
    """Names of :data:`PROGRAMS`."""
    run_s: float
    """Time of a program on the tree, by rates alone."""

    def servers(self, scenario: Scenario) -> int:
        return min(scenario.servers, self.most_servers)

    def job_s(self, scenario: Scenario) -> float:
        """Wall time of a run on the tree."""
        ranks = _RACKS * self.servers(scenario)
        return self.run_s + mpi.START_S + ranks * mpi.START_S_EACH

    @property
    def expected_s(self) -> float:
        return sum(
            3 * building.BUILD_S + 4 * _SETUP_S + 4.0 * len(self.kernels) * self.job_s(scenario)
            for scenario in self.scenarios
        )


FFT: Final = "fft"
FFT_COMPUTING: Final = "fft, computing"
ALLTOALL: Final = "alltoall"


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the paper, or a kernel without computing."""

    kernel: str
    """A kernel of ``mpi_kernels.c``."""
    operations: float = 0.0
    """Operations for each byte sent by a rank."""
    claim: str = ""
    """End of the key of the paper's claim."""

    @property
    def computing_share(self) -> float:
        """Operations of a rank a second, for each byte a second."""
        return self.operations / _RANK_FLOPS


def _mg_bytes() -> float:
    """Bytes sent in NPB's MG of class D, by 4 × 4 × 2 ranks: 50 times the faces of three passes."""
    faces = 2 * (4 + 4 + 2) * 1024**2 * 8
    return 50 * 3 * Kernel("multigrid", faces, 1).bytes_out(32) / 6


def _sp_bytes() -> float:
    """Bytes sent in NPB's SP of class D, by 36 ranks of 6 cells: two layers of five variables."""
    face = 6 * (408 // 6) ** 2 * 2 * 5 * 8
    return 500 * 36 * Kernel("sweeps", face, 1).bytes_out(36)


_FT_POINTS: Final = 2048 * 1024 * 1024
PROGRAMS: Final[Mapping[str, Program]] = {
    FFT: Program(FFT),
    ALLTOALL: Program(ALLTOALL),
    # 5 n log2 n operations for a transform of n points, of 16 bytes each, with one transpose.
    FFT_COMPUTING: Program(FFT, 5 * math.log2(_FT_POINTS) / 16, "fftw"),
    # Operations of class D as the benchmarks count them: 26 transforms, 50 and 500 iterations.
    "NPB FT": Program(ALLTOALL, 8.963e12 / (26 * 16 * _FT_POINTS), "npb-ft"),
    "NPB MG": Program("multigrid", 58 * 50 * 1024**3 / _mg_bytes(), "npb-mg"),
    "NPB SP": Program("sweeps", 2.954e13 / _sp_bytes(), "npb-sp"),
}
"""Programs by name."""
_COMPUTING: Final = tuple(name for name, program in PROGRAMS.items() if program.operations)
_PROCESSORS: Final = os.cpu_count() or 1
FULL: Final = Form(SCENARIOS, max(2, 2 * _PROCESSORS), (*_COMPUTING, ALLTOALL), 18.0)
SHORT: Final = Form(SCENARIOS[1:], 2, (FFT, ALLTOALL), 5.0)
"""Short form, whose shortest run is ten time-outs of TCP."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A kernel's run on one network."""

    scenario: str
    network: str
    kernel: str
    circuits: int
    run: MpiRun


@dataclass(frozen=True, slots=True)
class Fig7:
    scale: Scale
    outcomes: tuple[Outcome, ...]

    def run(self, scenario: str, network: str, kernel: str) -> MpiRun:
        wanted = (scenario, network, kernel)
        return next(
            outcome.run
            for outcome in self.outcomes
            if (outcome.scenario, outcome.network, outcome.kernel) == wanted
        )

    def speedup(self, scenario: str, network: str, kernel: str) -> float:
        """Completion time on the tree over the time on ``network``."""
        tree = self.run(scenario, TREE, kernel)
        return tree.seconds / self.run(scenario, network, kernel).seconds

    @property
    def cases(self) -> tuple[tuple[str, str], ...]:
        """(scenario, kernel) of all runs."""
        return tuple(dict.fromkeys((outcome.scenario, outcome.kernel) for outcome in self.outcomes))


# --- the networks -----------------------------------------------------------------------------


def _network(
    base: str, scenario: Scenario, servers: int, scale: Scale, electrical_mbps: float
) -> dict[str, Any]:
    """The file ``base``, with the scenario's racks, planes and rates."""
    config: dict[str, Any] = yaml.safe_load(
        DEFAULT_CONFIG.with_name(base).read_text(encoding="utf-8")
    )
    names = f"p[1-{scenario.planes}]"
    config["racks"][0]["servers"][0]["names"] = f"h{{rack}}[1-{servers}]"
    config["planes"][0] |= {"names": names, "rate_mbps": scale.mbps(_LINK_MBPS)}
    config["wiring"][0]["planes"] = names
    config["electrical"]["rate_mbps"] = scale.mbps(electrical_mbps)
    config["server_rate_mbps"] = scale.mbps(_LINK_MBPS) * scenario.servers / servers
    return config


def tree(scenario: Scenario, servers: int, scale: Scale) -> dict[str, Any]:
    """The oversubscribed tree: a single uplink per rack, and no circuits."""
    return _network("single-homed.yaml", scenario, servers, scale, scenario.tree_mbps)


def hybrid(scenario: Scenario, servers: int, scale: Scale) -> dict[str, Any]:
    """HydRA: the scenario's planes beside a low-rate electrical network."""
    electrical_mbps = _ELECTRICAL_MBPS * scenario.servers / servers
    return _network("demo.yaml", scenario, servers, scale, electrical_mbps)


def spanning_tree(scenario: Scenario, servers: int, scale: Scale) -> dict[str, Any]:
    """HydRA without the ports blocked by a spanning tree."""
    config = hybrid(scenario, servers, scale)
    [wiring] = config["wiring"]
    config["wiring"] = [
        {**wiring, "racks": list(racks), "planes": [f"p{plane}"]}
        for plane, racks in enumerate(scenario.spanning, start=1)
    ]
    config["planes"][0]["names"] = f"p[1-{len(scenario.spanning)}]"
    return config


# --- the runs ---------------------------------------------------------------------------------


def kernel_of(name: str, scenario: Scenario, servers: int, scale: Scale, run_s: float) -> Kernel:
    """The kernel of a program with duration ``run_s`` on the tree by rates alone; the same kernel
    on each network.

    The kernel has few rounds of large messages, as in the paper, where problems filled the servers'
    memory. Ranks pause as long as the paper's ranks would compute, slowed down as the links are.
    """
    ranks = _RACKS * servers
    program = PROGRAMS[name]
    leaving = (ranks - servers) / (ranks - 1)
    sending = leaving / (_RACKS * scenario.tree_mbps * 1e6 / 8)
    computing = program.computing_share / (_RACKS * scenario.servers)
    # Seconds for each byte of all ranks, at the scale of the rates
    each_s = scale.divisor * (sending + computing)
    round_bytes = run_s / each_s / _ROUNDS / ranks
    kernel = _of_size(program.kernel, ranks, round_bytes)
    rounds = max(1, round(_ROUNDS * round_bytes / kernel.bytes_out(ranks)))
    pause_s = scale.divisor * computing * ranks * kernel.bytes_out(ranks)
    return replace(kernel, rounds=rounds, pause_s=pause_s)


def _of_size(name: str, ranks: int, round_bytes: float) -> Kernel:
    """A kernel whose ranks send about ``round_bytes`` in a round, and at least a byte."""
    if name == FFT:
        side = (round_bytes / (ranks - 1) * ranks**2 / 32) ** (1 / 3)
        return Kernel(FFT, ranks * max(1, int(side / ranks)), 1)
    each = round_bytes / Kernel(name, 1_000_000, 1).bytes_out(ranks) * 1_000_000
    return Kernel(name, max(1, round(each)), 1)


def placement(fabric: Fabric, name: str, seed: int) -> list[str]:
    """The server of each rank, the same on all networks.

    Ranks that send from each to each are dealt out in turn, so that the simultaneous receivers of a
    rank are in different racks. Ranks of other kernels come in a random order, as from a scheduler
    that gives out servers as they come free: filled rack by rack, all of a rack's ranks would
    exchange with the ranks of one or two others at a time, over a part of the rack's circuits. The
    paper does not give its placement.
    """
    racks = [[server.name for server in rack.servers] for rack in fabric.racks]
    places = [server for group in zip(*racks, strict=True) for server in group]
    if PROGRAMS[name].kernel == ALLTOALL:
        return places
    return [places[number] for number in np.random.default_rng(seed).permutation(len(places))]


@contextmanager
def _circuits(
    stage: Stage, policy: Mapping[str, Any], cycle: CycleName, wanted_mbps: float
) -> Iterator[ControllerClient]:
    """A controller asked for circuits between all pairs of racks, with a path for each pair.

    Raises ScenarioError if a pair is left to the electrical network.
    """
    with stage.controller({"mode": "on-request", **policy}, cycle) as controller:
        controller.reconfigure([PairDemand(a, b, wanted_mbps) for a, b in _PAIRS])
        missing = [f"{a} - {b}" for a, b in _PAIRS if not controller.path_between(a, b).planes]
        if missing:
            raise ScenarioError(f"no path over circuits between {', '.join(missing)}")
        yield controller


SPANNING_WANTED: Final = 0.2
"""Demand of each pair, as a part of a circuit, if all have to share three."""
POLICIES: Final[Mapping[str, Mapping[str, Any]]] = {
    AS_PUBLISHED: {"algorithm": "hydra-bfs", "paths_per_pair": 2},
    HITLESS: {"algorithm": "hydra-bfs+", "paths_per_pair": 2},
    SPANNING_TREE: {"algorithm": "hydra-bfs", "paths_per_pair": 1},
}
CYCLES: Final[Mapping[str, CycleName]] = {
    AS_PUBLISHED: CycleName.AS_PUBLISHED,
    HITLESS: CycleName.HITLESS,
    SPANNING_TREE: CycleName.AS_PUBLISHED,
}


@dataclass(frozen=True, slots=True)
class _Runner:
    """Player of a scenario's runs."""

    scenario: Scenario
    form: Form
    scale: Scale
    program: Path
    seed: int
    work_dir: Path
    narrator: Narrator

    @property
    def servers(self) -> int:
        return self.form.servers(self.scenario)

    def outcomes(self) -> Iterator[Outcome]:
        with self._stage(tree, TREE) as stage, stage.controller({"mode": "on-request"}):
            yield from self._kernels(stage, TREE, 0)
        with self._stage(spanning_tree, SPANNING_TREE) as stage:
            yield from self._on_circuits(stage, SPANNING_TREE, SPANNING_WANTED)
        with self._stage(hybrid, HITLESS) as stage:
            for network in (AS_PUBLISHED, HITLESS):
                yield from self._on_circuits(
                    stage, network, self.scenario.wanted, self.scenario.max_hops
                )

    @contextmanager
    def _stage(
        self, network: Callable[[Scenario, int, Scale], dict[str, Any]], name: str
    ) -> Iterator[Stage]:
        config = network(self.scenario, self.servers, self.scale)
        work_dir = self.work_dir / f"{self.scenario.name}-{name}".replace(" ", "-")
        with building.stage_with(config, work_dir, self.narrator, _QUEUES) as stage:
            yield stage

    def _on_circuits(
        self, stage: Stage, network: str, wanted: float, max_hops: int = _MAX_HOPS
    ) -> Iterator[Outcome]:
        wanted_mbps = wanted * self.scale.mbps(_LINK_MBPS)
        policy = {**POLICIES[network], "max_hops": max_hops}
        with _circuits(stage, policy, CYCLES[network], wanted_mbps) as controller:
            circuits = controller.circuits_per_plane().total()
            yield from self._kernels(stage, network, circuits)

    def _kernels(self, stage: Stage, network: str, circuits: int) -> Iterator[Outcome]:
        window_bytes = mpi.window_bytes(self.scale.mbps(_LINK_MBPS))
        for name in self.form.kernels:
            job = mpi.Job(self.program, placement(stage.fabric, name, self.seed), window_bytes)
            kernel = kernel_of(name, self.scenario, self.servers, self.scale, self.form.run_s)
            job_s = self.form.job_s(self.scenario)
            with self.narrator.phase(f"{self.scenario.name}, {network}: {name}", job_s):
                run = mpi.run_kernel(stage, job, kernel, _LONGEST * job_s)
            self.narrator.say(f"{self.scenario.name}, {network}: {name} in {run.seconds:.1f} s")
            yield Outcome(self.scenario.name, network, name, circuits, run)


def _form(full: bool) -> Form:
    return FULL if full else SHORT


def _measure(setting: Setting, narrator: Narrator) -> Fig7:
    form = _form(setting.full)
    scale = setting.rates.scale(max(scenario.busiest_mbps for scenario in form.scenarios))
    program = mpi.compile_kernels(setting.work_dir)
    outcomes = [
        outcome
        for scenario in form.scenarios
        for outcome in _Runner(
            scenario, form, scale, program, setting.seed, setting.work_dir, narrator
        ).outcomes()
    ]
    return Fig7(scale, tuple(outcomes))


# --- conclusions ------------------------------------------------------------------------------

_ANOTHER_SPEED: Final = "Ranks computed at another speed than assumed now: repeat the run."
_MORE: Final = (
    "The paper does not say how fast its ranks computed. With these times of sending, the speed-up "
    "is {best:g} at {needed:.1f} billion operations a second on each server; here it is "
    "{assumed:.1f} billion."
)
_SINGLE: Final = (
    f"Held against the run as published with {_JUDGED_FROM} repetitions or more: single runs on "
    "the same circuits differ by a tenth."
)
_LOOPS: Final = (
    "The paper says that loops give higher throughput and prints no figure. An all-to-all exchange "
    "fills all circuits at once; FFTW's ranks exchange two by two, so that of many circuits few "
    "are busy at any time."
)


def _conclude(found: Sequence[Fig7]) -> Findings:
    return Findings(tuple(_rows(found)), (_table(found),))


def _speedups(found: Sequence[Fig7], scenario: str, network: str, kernel: str) -> list[float]:
    return [measured.speedup(scenario, network, kernel) for measured in found]


def _rows(found: Sequence[Fig7]) -> Iterator[Row]:
    yield found[0].scale.row(_LINK_MBPS, "circuits")
    for scenario, kernel in found[0].cases:
        speedups = _speedups(found, scenario, AS_PUBLISHED, kernel)
        speedup = fmean(speedups)
        figure = f"{scenario}, as published: {kernel}, time on the tree / on HydRA"
        number = scenario.rpartition(" ")[2]
        ours, program = ranged(speedups, ".2f"), PROGRAMS[kernel]
        if program.claim:
            key = f"hydra/speedup-{number}-{program.claim}"
            why = _why(found, scenario, kernel) if speedup > _BEST else ""
            yield judged(key, speedup, figure, ours, why)
        else:
            yield Row(figure, "", ours)
        blocked = _speedups(found, scenario, SPANNING_TREE, kernel)
        loops = [
            with_loops / blocked_speedup
            for with_loops, blocked_speedup in zip(speedups, blocked, strict=True)
        ]
        yield judged(
            f"hydra/loops-{number}",
            fmean(loops),
            f"{scenario}: {kernel}, time with a spanning tree / with loops, as published",
            ranged(loops, ".2f"),
            _LOOPS,
        )
        hitless = _speedups(found, scenario, HITLESS, kernel)
        compared = len(found) >= _JUDGED_FROM
        yield Row(
            f"{scenario}, hydra: {kernel}, time on the tree / on HydRA",
            "",
            ranged(hitless, ".2f"),
            target=f"≥ 0.9 of as published, {speedup:.2f}" if compared else "",
            met=fmean(hitless) >= 0.9 * speedup if compared else None,
            why="" if compared else _SINGLE,
        )
    outcomes = [outcome for measured in found for outcome in measured.outcomes]
    least = min(outcome.run.least_on_wire for outcome in outcomes)
    yield Row(
        "bytes at servers' ports / sent by their ranks, least of all runs",
        "",
        f"{least:.3f}",
        target="≥ 1: nothing through shared memory",
        met=least >= 1,
    )
    optical = min(
        outcome.run.optical_share
        for outcome in outcomes
        if outcome.network in (AS_PUBLISHED, HITLESS)
    )
    yield Row("of that by optical uplinks, least of HydRA's runs", "", f"{optical:.1%}")


def _why(found: Sequence[Fig7], scenario: str, kernel: str) -> str:
    """Speed of a server at which the measured times of sending would give the paper's best."""
    [servers] = (_RACKS * played.servers for played in SCENARIOS if played.name == scenario)
    needed = []
    for measured in found:
        tree, circuits = (measured.run(scenario, name, kernel) for name in (TREE, AS_PUBLISHED))
        made, ranks = tree.kernel, len(tree.ranks)
        paused_s = made.rounds * made.pause_s
        sent = ranks * made.rounds * made.bytes_out(ranks)
        billions = 1e-9 * PROGRAMS[kernel].operations * sent * measured.scale.divisor / servers
        sending_s = tree.seconds - paused_s - _BEST * (circuits.seconds - paused_s)
        if not math.isclose(billions / paused_s, 1e-9 * _RANK_FLOPS, rel_tol=0.01):
            return _ANOTHER_SPEED
        needed.append(billions * (_BEST - 1) / sending_s)
    return _MORE.format(best=_BEST, needed=fmean(needed), assumed=1e-9 * _RANK_FLOPS)


def _table(found: Sequence[Fig7]) -> Table:
    return Table(
        "All runs" if len(found) == 1 else "All runs, mean of all repetitions",
        ("network", "kernel", "circuits", "ranks", "s", "in MPI", "MB sent by ranks", "speed-up"),
        tuple(_line(found, outcome) for outcome in found[0].outcomes),
    )


def _line(found: Sequence[Fig7], first: Outcome) -> tuple[str, ...]:
    """Line of the first repetition's case, with means over all repetitions."""
    case = first.scenario, first.network, first.kernel
    runs = [measured.run(*case) for measured in found]
    sent_bytes = fmean(sum(rank.sent_bytes for rank in run.ranks) for run in runs)
    return (
        f"{first.scenario}, {first.network}",
        first.kernel,
        str(first.circuits),
        str(len(first.run.ranks)),
        f"{fmean(run.seconds for run in runs):.1f}",
        f"{fmean(run.inside_share for run in runs):.0%}",
        f"{sent_bytes / 1e6:.1f}",
        f"{fmean(_speedups(found, *case)):.2f}",
    )


def _draw(found: Sequence[Fig7], directory: Path) -> Sequence[Path]:
    """Draw the mean of all repetitions, and the range of several."""
    figure = Figure(figsize=(8.0, 4.5), dpi=150, layout="constrained")
    axes = figure.subplots()
    colours = {SPANNING_TREE: GREY, AS_PUBLISHED: VERMILION, HITLESS: GREEN}
    cases = found[0].cases
    for index, (network, colour) in enumerate(colours.items()):
        speedups = [_speedups(found, scenario, network, kernel) for scenario, kernel in cases]
        heights = [fmean(values) for values in speedups]
        below = [mean - min(values) for mean, values in zip(heights, speedups, strict=True)]
        above = [max(values) - mean for mean, values in zip(heights, speedups, strict=True)]
        bars = axes.bar(
            [place + (index - 1) * 0.27 for place in range(len(heights))],
            heights,
            0.25,
            yerr=[below, above] if len(found) > 1 else None,
            capsize=2,
            label=network,
            color=colour,
        )
        axes.bar_label(bars, fmt="%.2f", fontsize=8)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.axhline(_BEST, color=BLUE, linestyle="--", label="the paper's best")
    labels = [f"{kernel}\n{scenario}" for scenario, kernel in cases]
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylabel("speed-up over the tree")
    legend_below(figure, axes, 4)
    written = directory / "fig7.png"
    figure.savefig(written)
    return [written]


EXPERIMENT: Final = Experiment(
    name="fig7",
    title="MPI on circuits, and on a tree of the same price",
    source=f"{HYDRA}, section V.A, Fig. 6 and 7",
    topology="four racks: 5 circuits each against a tree at 1:4, and 2 against one at 1:25; the "
    "same circuits with what a spanning tree leaves open",
    workload="real MPI, one rank a server, each in namespaces of its own, over TCP: FFTW's "
    "transform of a cube there and back, NPB's FT, MG and SP, and an all-to-all exchange",
    policy="circuits set up before, on request: as published, and hydra",
    measured="completion time; bytes at the servers' ports against those that the ranks sent",
    needs_data_plane=True,
    expected_s=lambda full: _form(full).expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
    needs_mpi=True,
)
