"""Predictors of demand side by side, on demands that change as in real networks.

``python -m benchmarks.prediction``. Each predictor gets the same demand once a second, and the
controller's own rounds plan for the prediction, every 10 s; a change costs its outage. The baseline
plans for the present demand. The coflows are from the sample trace in the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from rich.progress import track

from apps.offline.rehearsal import Rehearsal
from apps.planning.rates import Rates
from apps.traces.reading import read_trace
from apps.traces.synthetic import SAMPLE
from benchmarks._report import Result, report, run_benchmark
from hydra.decisions.decision import Action
from hydra.model import DemandMatrix
from hydra.policy import Policy, Prediction
from tests.unit.core.fabrics import small_fabric
from topology.synthetic import synthetic_demand

RACKS = 16
FABRIC = small_fabric(racks=RACKS, planes=2, servers=4)
CIRCUIT_MBPS = 100.0
SECONDS = 600
EPOCH_S = 10
OUTAGE_S = 0.3
SEASON_S = 60.0
SEED = 1

Demands = Iterator[DemandMatrix]
"""An endless sequence of demands, one a second, Mbps of shape (N, N)."""


def steady(_chance: np.random.Generator) -> Demands:
    while True:
        yield synthetic_demand("gravity", RACKS, SEED, 2 * CIRCUIT_MBPS)


def flickering(chance: np.random.Generator) -> Demands:
    """Constant means, with bursts around the means."""
    for demand in steady(chance):
        yield demand * chance.lognormal(-0.5, 1.0, demand.shape)


def rising_and_falling(chance: np.random.Generator) -> Demands:
    """Hot spots that move within five minutes."""
    phase = chance.uniform(0, 2 * np.pi, (RACKS, RACKS))
    peak = synthetic_demand("sparse", RACKS, SEED, 2 * CIRCUIT_MBPS)
    second = 0
    while True:
        yield peak * (1 + np.sin(phase + 2 * np.pi * second / 300)) / 2
        second += 1


def seasonal(chance: np.random.Generator) -> Demands:
    """Pairs that are busy at the same part of every minute."""
    peak = synthetic_demand("sparse", RACKS, SEED, 3 * CIRCUIT_MBPS)
    begins, lasts = chance.uniform(0, SEASON_S, peak.shape), chance.uniform(15, 40, peak.shape)
    second = 0
    while True:
        yield np.where((second - begins) % SEASON_S < lasts, peak, 0.0)
        second += 1


def shuffles(chance: np.random.Generator) -> Demands:
    """Every rack sends to another rack, for half a minute on average, then to the next."""
    partners, lasts = chance.permutation(RACKS), np.zeros(RACKS)
    while True:
        over = lasts <= 0
        partners[over] = chance.integers(0, RACKS, over.sum())
        lasts[over] = chance.exponential(30.0, over.sum())
        lasts -= 1
        demand = np.zeros((RACKS, RACKS))
        demand[np.arange(RACKS), partners] = 0.8 * CIRCUIT_MBPS
        np.fill_diagonal(demand, 0.0)
        yield demand


def coflows(_chance: np.random.Generator) -> Demands:
    """The sample trace at a fifth of its pace, with ten times its bytes, two racks merged into
    one.
    """
    waits_mbit = np.zeros((RACKS, RACKS))
    flows = iter([flow for flow in read_trace(SAMPLE) if flow.src != flow.dst])
    flow = next(flows, None)
    second = 0
    while True:
        while flow is not None and flow.start_s * 5 <= second:
            src, dst = int(flow.src) % RACKS, int(flow.dst) % RACKS
            waits_mbit[src, dst] += flow.size_bytes * 8e-6 * 10 * (src != dst)
            flow = next(flows, None)
        demand = np.minimum(waits_mbit, CIRCUIT_MBPS)
        waits_mbit = waits_mbit - demand
        yield demand
        second += 1


CASES: dict[str, Callable[[np.random.Generator], Demands]] = {
    "steady": steady,
    "flickering": flickering,
    "rising and falling": rising_and_falling,
    "seasonal": seasonal,
    "shuffles": shuffles,
    "coflows": coflows,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    error: float
    """Absolute errors of predictions, as a part of the actual demand."""
    served: float
    """Served part of the demand, less the cost of changes."""
    changes: int


def play(case: str, prediction: Prediction) -> Outcome:
    """Run a predictor through a demand."""
    policy = Policy(prediction=prediction, season_s=SEASON_S, elephant_mbps=1.0)
    judge, actor = Rates(FABRIC), Rehearsal(FABRIC, policy, OUTAGE_S)
    wanted = served = cost = 0.0
    changes = 0
    demands = islice(CASES[case](np.random.default_rng(SEED)), SECONDS)
    for second, demand in enumerate(demands):
        actor.see(float(second), demand, demand)
        if second % EPOCH_S == 0:
            decision = actor.step(float(second))
            if decision.action is Action.CHANGE and decision.proposal is not None:
                changes += 1
                cost += decision.proposal.verdict.cost_mbit
        wanted += float(demand.sum())
        served += actor.served_mbps(judge, demand)
    return Outcome(actor.prediction_error or 0.0, (served - cost) / wanted, changes)


def main() -> int:
    outcomes = {
        (case, prediction): play(case, prediction)
        for case in track(CASES, description="demands")
        for prediction in Prediction
    }
    rows = []
    for (case, prediction), ours in outcomes.items():
        last = outcomes[case, Prediction.LAST]
        name = f"{case}, {prediction.value}"
        for metric, better, ours_share, last_share in (
            ("prediction error", "lower", 100 * ours.error, 100 * last.error),
            ("demand served", "higher", 100 * ours.served, 100 * last.served),
        ):
            rows.append(Result(name, metric, "%", better, ours_share, last_share, "last"))
        rows.append(Result(name, "changes", "", "lower", ours.changes, last.changes, "last"))
    mean = {
        prediction: float(np.mean([100 * outcomes[case, prediction].served for case in CASES]))
        for prediction in Prediction
    }
    rows += [
        Result(f"all demands, {prediction.value}", "demand served, mean", "%", "higher", served,
               mean[Prediction.LAST], "last")
        for prediction, served in mean.items()
    ]  # fmt: skip
    return report("prediction", rows)


if __name__ == "__main__":
    run_benchmark(main)
