"""The tournament's policies, with the given demand and with the estimate from counters.

``python -m benchmarks.tournament [--racks N] [--planes N] [--periods N]``. Every way of sharing
circuits with every algorithm, on the tournament's workloads, each period of which lasts for five
decisions. In one run the loop gets the true demand. In the other run the loop gets the controller's
estimate from the counters of a fluid simulation: each rack pair's traffic is TCP paced by its
application, max-min fair over the present topology. Both runs are judged by the true demand:
traffic served by circuits and packets together, less the cost of changes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from apps.demand.estimator import DemandEstimator, Found
from apps.demand.poller import Inlet
from apps.offline.rehearsal import Rehearsal
from apps.planning.rates import Rates
from apps.traces.windows import Window
from benchmarks._demands import RATE_MBPS
from benchmarks._report import Result, report, run_benchmark
from hydra.decisions.decision import Action
from hydra.demand.counters import Sent
from hydra.demand.reported_backlog import Believed
from hydra.model import (
    DatapathId,
    DemandMatrix,
    Fabric,
    NetworkState,
    PortId,
    Topology,
    VSwitch,
)
from hydra.policy import CurrentPolicy, Policy
from mininet_scenarios.experiments.tournament import policy_matrix
from mininet_scenarios.experiments.tournament.experiment import Size, workloads
from topology.demand import max_min_rates, routes
from topology.problem import FabricArrays

SIZE: Final = Size(16, 4, 4, 10.0)
ELECTRICAL_SHARE: Final = 0.1
PERIOD_S: Final = 10.0
POLL_S: Final = 0.5
SEED: Final = 1
_UNEVEN: Final = 0.05
ACKNOWLEDGED: Final = 1e-3
"""Rate of acknowledgements, as a part of TCP's rate, if acknowledgements are few."""
_NOBODY: Final = Believed(*np.zeros((2, 0), dtype=np.intp), *np.zeros((3, 0)))


@dataclass(frozen=True, slots=True)
class Counters:
    pairs: tuple[NDArray[np.intp], NDArray[np.intp]]
    sent_mbps: NDArray[np.float64]
    """Number of connections of each pair."""
    ports_mbps: Mapping[PortId, float]
    received_mbps: Mapping[Inlet, float]


class Network:
    """Counters for a demand, with one server in each of the fabric's racks."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._arrays = FabricArrays.of(fabric)
        self._random = np.random.default_rng(SEED)

    def counted(self, topology: Topology, demand: DemandMatrix) -> Counters:
        racks, fabric = len(self._fabric.racks), self._fabric
        circuits = sorted({circuit for path in topology.paths for circuit in path.circuits})
        rates = np.repeat([self._arrays.rate_of(circuit) for circuit in circuits], 2)
        capacity = np.concatenate(
            [
                np.full(2 * racks, fabric.server_rate_mbps),
                np.full(2 * racks, fabric.electrical_rate_mbps),
                rates,
                [np.inf],
            ]
        )
        src, dst = np.nonzero(demand)
        way_of = routes(self._arrays, topology)
        longest = max([2, *(len(ways[0]) for ways in way_of.values())])
        uses = np.full((len(src), 2 + longest), len(capacity) - 1)
        uses[:, 0], uses[:, 1] = src, racks + dst
        electrical = np.zeros(len(src), dtype=bool)
        for number, pair in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
            way = way_of.get(pair)
            electrical[number] = way is None
            links = (
                [2 * racks + pair[0], 3 * racks + pair[1]]
                if way is None
                else [4 * racks + link for link in way[0]]
            )
            uses[number, 2 : 2 + len(links)] = links
        weight = self._random.lognormal(0.0, _UNEVEN, len(src))
        sent = max_min_rates(uses, capacity, demand[src, dst], weight)
        load = np.bincount(uses.ravel(), np.repeat(sent, uses.shape[1]), len(capacity))
        ends = [end for circuit in circuits for end in circuit.ends]
        ports = dict(zip(ends, load[4 * racks :].tolist(), strict=False))
        into = np.bincount(dst, sent, racks), np.bincount(dst, sent * electrical, racks)
        into[0][:] += np.bincount(src, ACKNOWLEDGED * sent, racks)
        received = {
            Inlet(server, bool(which)): float(into[which][server])
            for which in (0, 1)
            for server in range(racks)
        }
        return Counters((src, dst), sent, ports, received)


class Eyes:
    """The demand as measured by the controller."""

    def __init__(self, fabric: Fabric, policy: Policy) -> None:
        self._network = Network(fabric)
        policy = replace(policy, poll_interval_s=POLL_S)
        self._estimator = DemandEstimator(fabric, CurrentPolicy(policy))

    def look(self, loop: Rehearsal, now_s: float, demand: DemandMatrix) -> Found:
        """With slots, each slot is read once; else the first and the last reading since a
        decision.
        """
        if loop.week is not None:
            states = [slot.state for slot in loop.week.slots]
            times_s = now_s + loop.period_s / len(states) * np.arange(len(states))
        else:
            states, times_s = [loop.state] * 2, now_s - np.array([loop.period_s - POLL_S, 0.0])
        counted = [self._network.counted(state.topology, demand) for state in states]
        mean = np.mean([window.sent_mbps for window in counted], axis=0)
        looks = [
            self._find(state, seen, mean, at_s)
            for state, seen, at_s in zip(states, counted, times_s.tolist(), strict=True)
        ]
        return looks[-1]

    def _find(
        self, state: NetworkState, seen: Counters, mean: NDArray[np.float64], now_s: float
    ) -> Found:
        return self._estimator.find(
            Sent(*seen.pairs, mean, seen.sent_mbps, mean),
            seen.ports_mbps,
            seen.received_mbps,
            _NOBODY,
            state,
            now_s,
            {},
        )


def served(fabric: Fabric, policy: Policy, cut: Sequence[Window], *, known: bool) -> float:
    """Served part of the demand, less the cost of changes."""
    loop = Rehearsal(fabric, policy, policy_matrix.OUTAGE_S)
    judge, eyes = Rates(fabric), Eyes(fabric, policy)
    wanted_mbit = served_mbit = 0.0
    steps = round(len(cut) * PERIOD_S / loop.period_s)
    for number in range(steps):
        now_s = number * loop.period_s
        demand = cut[int(now_s // PERIOD_S)].demand_mbps
        if known:
            elephants = np.where(demand >= policy.elephant_mbps, demand, 0.0)
            loop.see(now_s, demand, elephants)
        else:
            found = eyes.look(loop, now_s, demand)
            loop.see(now_s, found.sent_mbps, found.wanted_mbps, found.expected_mbps)
        decision = loop.step(now_s)
        if decision.proposal is not None and decision.action is Action.CHANGE:
            served_mbit -= decision.proposal.verdict.cost_mbit
        wanted_mbit += float(demand.sum()) * loop.period_s
        served_mbit += loop.served_mbps(judge, demand) * loop.period_s
    return max(0.0, served_mbit) / wanted_mbit


def policies(size: Size) -> Iterator[tuple[Fabric, str, Policy]]:
    for one_way in (False, True):
        network = policy_matrix.fabric(
            size.racks, size.planes, RATE_MBPS, ELECTRICAL_SHARE, one_way=one_way
        )
        way = "one-way" if one_way else "duplex"
        for variant in policy_matrix.variants(network):
            if variant.policy is not None:
                yield _counting(network), f"{variant.name}, {way}", variant.policy


def _counting(network: Fabric) -> Fabric:
    """The same fabric with switches, to read counters from."""
    racks = []
    for rack in network.racks:
        switch = VSwitch(DatapathId(1 + rack.id), f"s{rack.id}", "host", "optical", "electrical")
        tor = replace(rack.tor, datapath_id=DatapathId(1 + len(network.racks) + rack.id))
        servers = tuple(replace(server, vswitch=switch) for server in rack.servers)
        racks.append(replace(rack, tor=tor, servers=servers))
    return replace(network, racks=tuple(racks))


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tournament")
    for key in ("racks", "planes", "periods"):
        parser.add_argument(f"--{key}", type=int, default=getattr(SIZE, key))
    given = parser.parse_args(argv)
    size = Size(given.racks, given.planes, given.periods, SIZE.window_s)
    cuts = {name: make() for name, make in workloads(size, SEED).items()}
    contestants = list(policies(size))
    results = []
    with Progress(transient=True) as progress:
        bar = progress.add_task("tournament", total=len(contestants) * len(cuts))
        for network, name, policy in contestants:
            shares = []
            for cut in cuts.values():
                both = (served(network, policy, cut, known=known) for known in (False, True))
                shares.append(tuple(100 * share for share in both))
                progress.advance(bar)
            mean = np.mean(shares, axis=0)
            worst = min(range(len(shares)), key=lambda place: shares[place][0] - shares[place][1])
            for what, (ours, known) in (
                ("mean over workloads", mean),
                (f"{list(cuts)[worst]}, where it loses most", shares[worst]),
            ):
                metric = f"served, {what}"
                results.append(Result(name, metric, "%", "higher", ours, known, "when told"))
    return report("tournament", results)


if __name__ == "__main__":
    run_benchmark(main)
