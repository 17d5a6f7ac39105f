"""Plans for the estimated demand against plans for the true demand, by the same algorithm.

``python -m benchmarks.demand [--cases N] [--first SEED]``. Each case draws a fabric, an electrical
network and traffic with a known offered load; the offered load of greedy TCP is the max-min share
on an ideal switch. A fluid simulation of the present topology makes the counters, with variations
of a tenth among connections. The estimator sees only the counters, and in a quarter of the cases
the number of connections reported by agents. In half of the cases, circuits for another demand
stand at the start. The result is the served part of the offered load, relative to the plan for the
offered load. Then follow a second and a third round, each on the topology planned in the round
before.

Cases served by the electrical network alone are drawn again, since every plan is then equally good.
Other estimators are measured, too: the earlier estimator (each rack pair above a threshold is a
greedy flow), and Hedera's estimator over the true connections, all taken as greedy, which needs
knowledge that counters do not give.

A referee shows the limit of counters. The referee knows the servers of each flow, the number of
connections, the greedy flows, and the offered load of flows visible to counters. For paced TCP held
back by a full resource, the referee knows the offered rates, but not the flow of each rate: as long
as each flow offers more than it gets, counters look the same. The referee plans for the mean over
all possible assignments.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from rich.progress import Progress

from apps.demand.estimator import ANSWERED
from benchmarks._baselines import plain_estimate
from benchmarks._demand_cases import Case, Counted, Floats, Network, draw
from benchmarks._demands import RATE_MBPS
from benchmarks._report import Result, report, run_benchmark
from benchmarks._timing import median_ms
from benchmarks.tournament import ACKNOWLEDGED
from hydra.demand.uncongested_demand import KnownDemand
from hydra.model import EMPTY_TOPOLOGY, DemandMatrix, Topology
from topology.algorithms import algorithm
from topology.demand import along, estimate_flows, max_min_rates, served_mbps
from topology.estimator import FULL, Observation, estimate
from topology.problem import Budget, Reserved

CASES: Final = 10_000
ROUNDS: Final = 3
EPOCH_S: Final = 10.0
MEMORY_S: Final = 60.0
ELEPHANT_MBPS: Final = 15.0
"""Helios' threshold on links of 10 Gb/s."""
MAX_HOPS: Final = 3
_TRIVIAL: Final = 0.999
_SHARE: Final = 10
_SHUFFLES: Final = 100
_SATISFIED: Final = 0.999
SERVERS: Final = 10_240
RACKS: Final = 320
FILLED: Final = 0.05
TARGET_MS: Final = 40.0

Estimator = Callable[[Case, Network, Counted], DemandMatrix]
"""From the counters of each flow to the demand for planning."""


class Ours:
    """An estimator with its memory over the rounds; ``planned``: the part of the estimate to plan
    for.
    """

    def __init__(self, case: Case) -> None:
        n, flows = case.fabric.n_racks, case.flows
        key = flows.src * n + flows.dst // case.servers
        rows, self._row_of = np.unique(key, return_inverse=True)
        self._sender, self._to = np.divmod(rows, n)
        self._pair = self._sender // case.servers, self._to
        self._any_flow = np.zeros(len(rows), dtype=np.intp)
        self._any_flow[self._row_of] = np.arange(len(key))
        self._known = KnownDemand(n, MEMORY_S)
        self._round = 0
        self.wanted: DemandMatrix = np.zeros((n, n))

    def __call__(self, case: Case, network: Network, counted: Counted) -> DemandMatrix:
        n, links = case.fabric.n_racks, case.fabric.n_racks * case.servers
        sent = np.bincount(self._row_of, counted.sent_mbps, len(self._sender))
        uses, load, capacity = self._seen(case, network, counted.load_mbps)
        by_rack = np.zeros((n, n))
        np.add.at(by_rack, self._pair, sent)
        now_s = self._round * EPOCH_S
        self._round += 1
        share = np.divide(sent, by_rack[self._pair], out=np.zeros(len(sent)), where=sent > 0)
        most = self._known.most_mbps(by_rack, now_s)[self._pair]
        traffic = Observation(
            self._sender,
            self._to,
            sent,
            uses,
            self._connections(case),
            np.multiply(most, share, out=np.full(len(share), np.inf), where=share > 0),
            unanswered=self._unanswered(case, counted, sent),
        )
        into = counted.load_mbps[links : 2 * links].reshape(n, case.servers)
        ports_mbps = np.full(links, RATE_MBPS), receiving(into) * RATE_MBPS
        found = estimate(traffic, load, capacity, *ports_mbps, self._came(case, uses, load, sent))
        self.wanted = np.zeros((n, n))
        np.add.at(self.wanted, self._pair, found.mbps)
        clear = np.ones((n, n), dtype=bool)
        np.logical_and.at(clear, self._pair, found.clear)
        self._known.learn(self.wanted, clear, now_s)
        expected = np.zeros((n, n))
        np.add.at(expected, self._pair, found.expected_mbps)
        return expected

    def _came(self, case: Case, uses: np.ndarray, load: Floats, sent: Floats) -> Floats:
        """Counts at vswitches of traffic for each electrical uplink."""
        links = 2 * case.fabric.n_racks * case.servers
        uplinks = case.fabric.n_racks * (1 if case.shared else case.servers)
        first = uses[:, 2]
        electrical = (first >= links) & (first < links + uplinks)
        return np.bincount(first, np.where(electrical, sent, 0.0), len(load))

    def _unanswered(self, case: Case, counted: Counted, sent: Floats) -> np.ndarray:
        """Rows whose server receives next to nothing, not even acknowledgements of TCP."""
        flows, links = case.flows, case.fabric.n_racks * case.servers
        received = counted.load_mbps[links : 2 * links].copy()
        acknowledged = ACKNOWLEDGED * np.where(flows.paced, 0.0, counted.sent_mbps)
        np.add.at(received, flows.src, acknowledged)
        return received[self._sender] < ANSWERED * sent

    def _connections(self, case: Case) -> Floats | None:
        if not case.agents:
            return None
        flows = case.flows
        tcp = np.where(np.isinf(flows.offered_mbps), flows.connections, 0.0)
        return np.bincount(self._row_of, tcp, len(self._sender))

    def _seen(
        self, case: Case, network: Network, load: Floats
    ) -> tuple[np.ndarray, Floats, Floats]:
        """Resources of each row. Only the rack of a row's end is known, so the fullest server of
        the rack stands for all.
        """
        n, links = case.fabric.n_racks, case.fabric.n_racks * case.servers
        uses = network.uses[self._any_flow].copy()
        uses[:, 1] = len(load) + self._to
        fullest = load[links : 2 * links].reshape(n, case.servers).max(axis=1)
        load, capacity = (
            np.concatenate([load, fullest]),
            np.concatenate([network.capacity, np.full(n, RATE_MBPS)]),
        )
        if not case.shared:
            down = slice(3 * links, 4 * links)
            electrical = (uses[:, 3] >= down.start) & (uses[:, 3] < down.stop)
            uses[electrical, 3] = len(load) + self._to[electrical]
            fullest = load[down].reshape(n, case.servers).max(axis=1)
            load = np.concatenate([load, fullest])
            capacity = np.concatenate([capacity, np.full(n, case.electrical_mbps)])
        return uses, load, capacity


def receiving(into: Floats) -> Floats:
    """Number of servers of each rack that receive traffic; ``into`` has shape (racks, servers)."""
    enough = into >= 0.1 * into.max(axis=1, keepdims=True)
    return enough.sum(axis=1).astype(np.float64)


class Referee:
    """Plans for known flows, except for the order of the rates offered by paced TCP that is held
    back.
    """

    def __init__(self, case: Case) -> None:
        flows = case.flows
        self._known = np.isinf(flows.offered_mbps) | flows.paced
        self._least = np.zeros(len(flows.src))
        """The highest rate seen of each flow."""
        self._random = np.random.default_rng(_SHUFFLES)

    def __call__(self, case: Case, network: Network, counted: Counted) -> DemandMatrix:
        flows, sent = case.flows, counted.sent_mbps
        full = counted.load_mbps >= FULL * network.capacity
        satisfied = sent >= _SATISFIED * (1 - flows.swing) * flows.offered_mbps
        self._known |= satisfied | ~along(np.logical_or, full, network.uses)
        self._least = np.maximum(self._least, sent / (1 + flows.swing))
        hidden = np.flatnonzero(~self._known)
        offered = flows.offered_mbps.copy()
        offered[hidden] = self._mean(offered[hidden], self._least[hidden])
        return case.by_racks(case.truth(offered))

    def _mean(self, mbps: Floats, least: Floats) -> Floats:
        """Mean rates over all orders in which no rate is below its minimum."""
        count, total = len(mbps), np.zeros(len(mbps))
        least, mbps = np.minimum(least, mbps), mbps.copy()
        for number in range(2 * _SHUFFLES if count > 1 else 0):
            order = self._random.permutation(count)
            first, second = order[: count // 2], order[count // 2 : count // 2 * 2]
            may = (mbps[first] >= least[second]) & (mbps[second] >= least[first])
            first, second = first[may], second[may]
            mbps[first], mbps[second] = mbps[second], mbps[first]
            total += mbps if number >= _SHUFFLES else 0.0
        return total / _SHUFFLES if count > 1 else mbps


def replaced(case: Case, _network: Network, counted: Counted) -> DemandMatrix:
    rates = case.by_racks(counted.sent_mbps)
    capacity = np.full(case.fabric.n_racks, RATE_MBPS * case.servers)
    return estimate_flows(*np.nonzero(rates >= ELEPHANT_MBPS), capacity, capacity)


def hedera(case: Case, _network: Network, counted: Counted) -> DemandMatrix:
    mbps = counted.sent_mbps
    flows, links = case.flows, case.fabric.n_racks * case.servers
    big = np.flatnonzero(mbps >= ELEPHANT_MBPS / 10)
    ports = np.stack([flows.src[big], links + flows.dst[big]], axis=1)
    rates = np.zeros(len(mbps))
    greedy = np.full(len(big), np.inf)
    capacity = np.full(2 * links, RATE_MBPS)
    rates[big] = max_min_rates(ports, capacity, greedy, flows.connections[big])
    return case.by_racks(rates)


OURS: Final = "ours"
REPLACED: Final = "the estimator before"
HEDERA: Final = "Hedera's over true flows"
REFEREE: Final = "a referee that is told much"
OTHERS: Final = (REPLACED, HEDERA, REFEREE)
WAYS: Final[dict[str, Callable[[Case], Estimator]]] = {
    OURS: Ours,
    REPLACED: lambda _: replaced,
    HEDERA: lambda _: hedera,
    REFEREE: Referee,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    kind: str
    shares: dict[str, tuple[float, ...]]
    """By estimator and round: served rate relative to the oracle's plan."""
    errors: dict[str, float]
    """Sum over pairs of the first estimate's error, as a part of the offered load."""


def planned(case: Case, demand: DemandMatrix, current: Topology) -> Topology:
    budget = Budget(MAX_HOPS)
    plan = algorithm(case.algorithm)
    return plan(case.fabric, demand, current, Reserved(), budget).topology


def served_by(case: Case, truth: DemandMatrix, topology: Topology) -> float:
    """Mbps of the true demand carried by circuits and the electrical network."""
    electrical = case.electrical_rack_mbps
    return float(served_mbps(case.fabric, topology, truth, electrical, electrical).sum())


def trivial(case: Case, truth: DemandMatrix) -> bool:
    """True if the electrical network alone carries all traffic."""
    return served_by(case, truth, EMPTY_TOPOLOGY) > _TRIVIAL * float(truth.sum())


def start_of(case: Case, random: np.random.Generator) -> Topology:
    """The topology at the start: in half of the cases empty, else planned for another demand."""
    n = case.fabric.n_racks
    if random.random() >= 0.5:
        return EMPTY_TOPOLOGY
    others = np.where(random.random((n, n)) < 4 / n, random.random((n, n)), 0.0)
    return planned(case, others * (1 - np.eye(n)), EMPTY_TOPOLOGY)


def judge(seed: int) -> Outcome | None:
    """The result of a case; None if every plan is equally good."""
    case, random = draw(seed)
    if not len(case.flows.src):
        return None
    truth = case.by_racks(case.truth())
    if trivial(case, truth):
        return None
    served = partial(served_by, case, truth)
    start = start_of(case, random)
    best = served(planned(case, truth, start))
    shares, errors = {}, {}
    for name, prepare in WAYS.items():
        estimator = prepare(case)
        moods, topology, reached = np.random.default_rng(seed), start, []
        for number in range(ROUNDS):
            network = Network(case, topology)
            demand = estimator(case, network, network.counted(case.flows, moods))
            if number == 0:
                wanted = estimator.wanted if isinstance(estimator, Ours) else demand
                errors[name] = float(np.abs(wanted - truth).sum() / truth.sum())
            topology = planned(case, demand, topology)
            reached.append(served(topology) / best)
        shares[name] = tuple(reached)
    return Outcome(seed, case.kind, shares, errors)


def outcomes(seeds: range) -> list[Outcome]:
    found = []
    with multiprocessing.Pool() as pool, Progress(transient=True) as progress:
        bar = progress.add_task("demand", total=len(seeds))
        for outcome in pool.imap_unordered(judge, seeds, chunksize=_SHARE):
            progress.advance(bar)
            if outcome is not None:
                found.append(outcome)
    return sorted(found, key=lambda judged: judged.seed)


def rows(found: Sequence[Outcome]) -> Iterator[Result]:
    for kind in ("all", *sorted({judged.kind for judged in found})):
        those = [judged for judged in found if kind in ("all", judged.kind)]
        case = f"{kind}, {len(those)} cases"
        for rounds, median, worst in ((1, 98.0, 90.0), (ROUNDS, 99.5, 95.0)):
            figures: list[tuple[str, Callable[[list[float]], object], float | None]] = [
                ("mean", np.mean, None),
                ("worst hundredth", partial(np.percentile, q=1), worst),
            ]
            if kind == "all":
                figures.insert(0, ("median", np.median, median))
            shares = {
                name: [100 * judged.shares[name][rounds - 1] for judged in those] for name in WAYS
            }
            for metric, figure, target in figures:
                values = {name: float(str(figure(shares[name]))) for name in WAYS}
                metric_name = f"served of the oracle's, round {rounds}, {metric}"
                for other in OTHERS:
                    wanted = target if kind == "all" else None
                    yield Result(
                        case, metric_name, "%", "higher", values[OURS], values[other], other, wanted
                    )
        errors = {name: 100 * float(np.median([o.errors[name] for o in those])) for name in WAYS}
        for other in OTHERS:
            metric_name = "error over all pairs, round 1, median"
            yield Result(case, metric_name, "%", "lower", errors[OURS], errors[other], other)


def speed() -> Result:
    """An estimate for the largest fabric, with half of the flows held back by electrical
    uplinks.
    """
    random = np.random.default_rng(1)
    here, there = np.nonzero(random.random((SERVERS, RACKS)) < FILLED)
    each = SERVERS // RACKS
    away = here // each != there
    sender, to = here[away], there[away]
    mbps = random.lognormal(0.0, 1.5, len(sender))
    half = random.random(SERVERS) < 0.5
    out = np.bincount(sender, mbps, SERVERS)
    capacity = np.concatenate([np.where(half, out, 2 * out), np.full(RACKS, np.inf), [np.inf]])
    load = np.concatenate([out, np.bincount(to, mbps, RACKS), [0.0]])
    traffic = Observation(sender, to, mbps, np.stack([sender, SERVERS + to], axis=1))
    links = np.full(SERVERS, RATE_MBPS), np.full(RACKS, each * RATE_MBPS)
    times = median_ms(
        {
            "ours": lambda _: estimate(traffic, load, capacity, *links),
            "plain": lambda _: plain_estimate(sender // each, to, RACKS, each * RATE_MBPS),
        },
        3,
    )
    case = f"{SERVERS:,} servers x {RACKS} racks, {len(sender):,} rates"
    name = "Hedera's loop in Python"
    return Result(
        case, "estimation time", "ms", "lower", times["ours"], times["plain"], name, TARGET_MS
    )


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demand")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    given = parser.parse_args(argv)
    started_s = time.monotonic()
    found = outcomes(range(given.first, given.first + given.cases))
    print(
        f"{given.cases} cases from seed {given.first}, {given.cases - len(found)} of them trivial, "
        f"in {time.monotonic() - started_s:.0f} s; the worst after {ROUNDS} rounds:"
    )
    for judged in sorted(found, key=lambda judged: judged.shares[OURS][-1])[:10]:
        print(f"  seed {judged.seed}, {judged.kind}: {100 * judged.shares[OURS][-1]:.0f} %")
    results = [*rows(found), speed()]
    return report("demand", results)


if __name__ == "__main__":
    run_benchmark(main)
