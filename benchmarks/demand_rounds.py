"""Workloads of :mod:`benchmarks.demand_live` on a clock of their own: what delays circuits.

``python -m benchmarks.demand_rounds [--runs N] [WORKLOAD…]``. Its workloads of datagrams alone, on
the same fabric and by the same policy, in a fluid simulation. Counters, estimator, rounds and their
planning are the controller's. Polls, its looks at what can't wait, and rules' counters, which Open
vSwitch brings up to date every half a second, come at moments that differ from run to run. Traffic
began shortly before. Each run is played with rounds that come early and with rounds at their epochs
alone; both are compared with one that is told the offered load.
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np
import yaml

from apps.demand.estimator import DemandEstimator
from apps.demand.poller import Inlet
from apps.planning.engine import Planning
from apps.planning.rounds import Rounds, Standing, look_at
from apps.process.configuration import load_configuration
from benchmarks._report import Result, report
from benchmarks.demand_live import POLICY, SCALE, SECONDS, WORKLOADS, Stream, Workload, changes
from hydra.config import Loaded
from hydra.decisions.decision import Action
from hydra.demand.counters import DemandMeter, PortMeter
from hydra.demand.early import EarlyRounds, Look
from hydra.demand.polling import PollSchedule
from hydra.demand.reported_backlog import Believed
from hydra.model import Circuit, DemandMatrix, NetworkState, PortId, Topology
from hydra.policy import CurrentPolicy
from hydra.service import DemandReport, DemandSource, PlanReport, PlanRequest
from mininet_scenarios.stage import building

RUNS: Final = 8
STEP_S: Final = 0.025
CHANGE_S: Final = 0.1
"""Time that a change takes; its pairs are electrical meanwhile."""
BEFORE_S: Final = 0.5
"""Traffic begins this long before the run, as long as it takes to start the programs that send."""
QUIET_S: Final = 3.0
"""Polls without traffic before that."""
UPDATE_S: Final = 0.5
"""Open vSwitch's ``other_config:max-revalidator``."""
_NAP_S: Final = 0.25
"""The conductor looks for what is due as often at least."""
_BYTES: Final = 1e6 / 8
_KEYS: Final = {
    "epoch": "epoch_s",
    "poll": "poll_interval_s",
    "window": "demand_window_s",
    "life": "minimum_circuit_life_s",
}
DATAGRAMS: Final = {
    name: one
    for name, one in WORKLOADS.items()
    if not one.agents and all(stream.mbps is not None for stream in one.streams)
}


class Wire:
    """What is carried now, and the counters of it."""

    def __init__(self, loaded: Loaded, streams: Sequence[Stream], seconds: float) -> None:
        fabric = self._fabric = loaded.fabric
        self._streams, self._seconds = streams, seconds
        self._place = {server.name: place for place, server in enumerate(fabric.servers)}
        servers, racks = len(fabric.servers), len(fabric.racks)
        self.sent_mbit: np.ndarray = np.zeros((servers, racks))
        self.into_mbit: np.ndarray = np.zeros((2, servers))
        """By servers' links, and by their electrical ones."""
        self.ports_mbit: dict[PortId, float] = {}
        self.received_mbit = 0.0

    def flows(self, now_s: float) -> list[tuple[int, int, float]]:
        """Senders, receivers and rates."""
        return [
            (self._place[one.src], self._place[one.dst], one.mbps or 0.0)
            for one in self._streams
            if (one.begins * self._seconds or -BEFORE_S) <= now_s < one.ends * self._seconds
        ]

    def offered(self, now_s: float) -> DemandMatrix:
        racks = [server.rack for server in self._fabric.servers]
        demand = np.zeros((len(self._fabric.racks),) * 2)
        for src, dst, mbps in self.flows(now_s):
            demand[racks[src], racks[dst]] += mbps
        return demand

    def carry(self, now_s: float, topology: Topology) -> None:
        """Carry a step's traffic; pairs whose path is not in ``topology`` are electrical."""
        fabric, flows = self._fabric, self.flows(now_s)
        links: dict[tuple[int, int], list[PortId]] = {}
        for path in topology.paths:
            ends = [end for circuit in path.circuits for end in circuit.ends]
            for src, dst in path.directions:
                links[src, dst] = [end for end in ends if fabric.ports[end].rack == src]
        pairs = [(fabric.servers[src].rack, fabric.servers[dst].rack) for src, dst, _ in flows]
        up, circuits = (
            np.zeros(len(fabric.servers)),
            dict.fromkeys((end for circuit in topology.circuits for end in circuit.ends), 0.0),
        )
        for (src, _, mbps), pair in zip(flows, pairs, strict=True):
            if pair in links:
                for end in links[pair]:
                    circuits[end] += mbps
            else:
                up[src] += mbps
        into = np.zeros((2, len(fabric.servers)))
        for (src, dst, mbps), pair in zip(flows, pairs, strict=True):
            self.sent_mbit[src, pair[1]] += mbps * STEP_S
            if pair in links:
                fullest = max(circuits[end] for end in links[pair])
                into[0, dst] += mbps * min(1.0, fabric.server_rate_mbps / fullest)
            else:
                into[1, dst] += mbps * min(1.0, fabric.electrical_rate_mbps / up[src])
        into[1] = np.minimum(into[1], fabric.electrical_rate_mbps)
        into[0] = np.minimum(into.sum(axis=0), fabric.server_rate_mbps)
        self.into_mbit += into * STEP_S
        for end, mbps in circuits.items():
            carried = min(mbps, fabric.server_rate_mbps) * STEP_S
            self.ports_mbit[end] = self.ports_mbit.get(end, 0.0) + carried
        if now_s >= 0:
            self.received_mbit += float(into[0].sum()) * STEP_S


class Run:
    """A controller's loop on a wire; ``early``: None where it is told the offered load."""

    def __init__(self, loaded: Loaded, workload: Workload, seconds: float, seed: int) -> None:
        self._random = random.Random(seed)
        self._loaded, self._seconds = loaded, seconds
        self._due = [part * seconds for part in changes(workload)[:-1]]
        fabric, policy = loaded.fabric, loaded.policy
        self._wire = Wire(loaded, workload.streams, seconds)
        self._blocked = frozenset(fabric.ports_of(rack.id)[1].id for rack in fabric.racks)
        self._policy = CurrentPolicy(policy)
        self._meter = DemandMeter(fabric, policy.demand_window_s)
        self._ports = PortMeter[PortId | Inlet]()
        self._estimator = DemandEstimator(fabric, self._policy)
        self._planning, self._rounds = Planning(fabric, policy), Rounds(fabric, self._policy)
        self._state, self._since_s = NetworkState(), -math.inf
        self._target: tuple[NetworkState, float] | None = None
        """A change under way, and when it is over."""
        self._born_s: dict[Circuit, float] = {}
        places = range(len(fabric.servers))
        self._updates_s = [self._random.uniform(0, UPDATE_S) for _ in places]
        self._shown_mbit = self._wire.sent_mbit.copy()
        switches = [*(("server", one) for one in places), *(("rack", r.id) for r in fabric.racks)]
        self._random.shuffle(switches)
        self._polls = PollSchedule(switches, policy.poll_interval_s, policy.poll_interval_s, 128)
        self.joined: list[tuple[float, Topology]] = []

    def received_mb(self, rounds: str) -> float:
        """Received by servers in a run; ``rounds``: told, early, or at epochs."""
        policy = self._loaded.policy
        now_s = -QUIET_S
        self._polls.start(now_s + self._random.uniform(0, policy.poll_interval_s))
        look_s = self._random.uniform(0, policy.poll_interval_s)
        wake_s, round_s = self._random.uniform(0, _NAP_S), policy.epoch_s
        early = EarlyRounds(self._policy, len(self._loaded.fabric.racks))
        step = round(now_s / STEP_S)
        while now_s < self._seconds:
            self._wire.carry(now_s, self._standing())
            step += 1
            now_s = step * STEP_S
            self._count(now_s)
            self._end_change(now_s)
            if self._target is not None:
                continue
            if rounds == "told":
                if now_s >= 0 and self._due and now_s >= self._due[0]:
                    self._due.pop(0)
                    self._told(now_s)
                continue
            due_s = min(round_s, early.due_s) if rounds == "early" else round_s
            if now_s < (min(wake_s, due_s) if rounds == "early" else wake_s):
                continue
            if now_s >= wake_s:
                wake_s += _NAP_S
            if now_s >= look_s:
                look_s += policy.poll_interval_s
                early.look(self._seen(now_s)[1], now_s)
            if now_s >= max(due_s, 0.0):
                round_s = (round_s if due_s == round_s else now_s) + policy.epoch_s
                seen, look = self._seen(now_s)
                early.begin(look, now_s)
                self._decide(seen, now_s)
                early.end(now_s, 0.0)
        return self._wire.received_mbit / 8

    def _standing(self) -> Topology:
        """Circuits, and the paths that a change under way does not touch."""
        topology = self._state.topology
        if self._target is None:
            return topology
        kept = self._target[0].topology.paths
        return Topology(topology.circuits, tuple(p for p in topology.paths if p in kept))

    def _count(self, now_s: float) -> None:
        wire, fabric = self._wire, self._loaded.fabric
        for place, update_s in enumerate(self._updates_s):
            if (now_s - update_s) % UPDATE_S < STEP_S:
                self._shown_mbit[place] = wire.sent_mbit[place]
        for switch in self._polls.due(now_s):
            self._polls.settled(switch)
            kind, place = switch
            if kind == "server":
                totals = (self._shown_mbit[place] * _BYTES).astype(np.uint64)
                self._meter.update(place, totals, now_s)
                for electrical in (False, True):
                    octets = int(wire.into_mbit[int(electrical), place] * _BYTES)
                    self._ports.update(Inlet(place, electrical), octets, now_s)
            else:
                for port in fabric.ports_of(place):
                    octets = int(wire.ports_mbit.get(port.id, 0.0) * _BYTES)
                    self._ports.update(port.id, octets, now_s)

    def _seen(self, now_s: float) -> tuple[DemandReport, Look]:
        rates = self._ports.rates_mbps()
        found = self._estimator.find(
            self._meter.sent(),
            {port: mbps for port, mbps in rates.items() if not isinstance(port, Inlet)},
            {port: mbps for port, mbps in rates.items() if isinstance(port, Inlet)},
            _NOBODY,
            self._state,
            now_s,
            {},
            None,
            self._since_s,
        )
        seen = DemandReport(
            DemandSource.MEASURED,
            found.sent_mbps,
            found.wanted_mbps,
            0.0,
            (),
            constrained=found.constrained,
            unsure=self._meter.unsure(now_s, 3 * self._loaded.policy.poll_interval_s),
            expected_mbps=found.expected_mbps,
        )
        topology = self._state.topology
        return seen, look_at(seen, topology, self._meter.read_s(), found.changed_s)

    def _plan(self, request: PlanRequest, demand: DemandMatrix, now_s: float) -> PlanReport:
        return self._rounds.plan(self._network(now_s), request, demand, self._planning.propose)

    def _network(self, now_s: float) -> Standing:
        return Standing(
            self._state,
            CHANGE_S,
            lambda circuit: now_s - self._born_s.get(circuit, -math.inf),
            blocked=self._blocked,
        )

    def _told(self, now_s: float) -> None:
        demand = self._wire.offered(now_s)
        plan = self._plan(PlanRequest(demand=demand), demand, now_s).plan
        self._target = plan.target, now_s + CHANGE_S

    def _decide(self, seen: DemandReport, now_s: float) -> None:
        done = self._rounds.periodic(
            self._network(now_s),
            seen,
            lambda request: self._plan(request, seen.planned_mbps, now_s),
            "periodic",
            now_s,
        )
        if done.report is not None and done.decision.action is Action.CHANGE:
            self._target = done.report.plan.target, now_s + CHANGE_S

    def _end_change(self, now_s: float) -> None:
        if self._target is None or now_s < self._target[1]:
            return
        came = self._target[0].topology.circuits - self._state.topology.circuits
        self._born_s |= dict.fromkeys(came, now_s)
        self._state, self._since_s, self._target = self._target[0], now_s, None
        self.joined.append((now_s, self._state.topology))


_NOBODY: Final = Believed(*np.zeros((2, 0), dtype=np.intp), *np.zeros((3, 0)))


def load(policy: Mapping[str, object]) -> Loaded:
    """The fabric and policy of :mod:`benchmarks.demand_live`."""
    document = building.scaled_config(SCALE)
    document["policy"] = {**document.get("policy", {}), **POLICY, **policy, "mode": "periodic"}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "fabric.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return load_configuration(path)


def compare(loaded: Loaded, name: str, runs: int) -> Result:
    workload = DATAGRAMS[name]
    shares: dict[str, list[float]] = {"early": [], "epochs": []}
    for seed in range(runs):
        told_mb = Run(loaded, workload, SECONDS, seed).received_mb("told")
        for rounds, found in shares.items():
            run = Run(loaded, workload, SECONDS, seed)
            found.append(100 * run.received_mb(rounds) / told_mb)
            joined = ", ".join(
                f"{'+'.join(_words(loaded, topology)) or 'none'} at {at_s:.1f} s"
                for at_s, topology in run.joined
            )
            print(f"{name}, {rounds}, run {seed}: {found[-1]:.1f} %; {joined}")
    return Result(
        name, f"received in {SECONDS} s, of what it is when told, mean of {runs}", "%", "higher",
        fmean(shares["early"]), fmean(shares["epochs"]), "rounds at their epochs alone",
    )  # fmt: skip


def _words(loaded: Loaded, topology: Topology) -> list[str]:
    names = [rack.name for rack in loaded.fabric.racks]
    return sorted(f"{names[path.src]}-{names[path.dst]}" for path in topology.paths)


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demand_rounds")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(DATAGRAMS))
    parser.add_argument("--runs", type=int, default=RUNS)
    for key, keys in _KEYS.items():
        parser.add_argument(f"--{key}", type=float, metavar="SECONDS", help=f"policy.{keys}")
    given = parser.parse_args(argv)
    if unknown := sorted({*given.workloads}.difference(DATAGRAMS)):
        parser.error(f"no workload {', '.join(unknown)}: there are {', '.join(DATAGRAMS)}")
    logging.getLogger("hydra.demand").setLevel(logging.ERROR)
    loaded = load(
        {
            key: given_s
            for name, key in _KEYS.items()
            if (given_s := getattr(given, name)) is not None
        }
    )
    names = given.workloads or [*DATAGRAMS]
    report("demand_rounds", [compare(loaded, name, given.runs) for name in names])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
