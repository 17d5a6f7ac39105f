"""An experiment on packets: skewed transfers, over circuits that each algorithm plans for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row, ranged
from mininet_scenarios.stage.building import stage_of
from mininet_scenarios.stage.controller_client import OneWayDemand
from mininet_scenarios.stage.transfers import Wish, transfer_all
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

ALGORITHMS = ("busiest-first", "anytime")
BUSIEST_MBPS = 400.0  # all racks together, at the rates of the demo's fabric
LEAST_BYTES, SKEW, TIMEOUT_S = 100_000, 1.2, 120.0


@dataclass(frozen=True, slots=True)
class Ends:
    """Seconds from the first transfer's start to the last one's end, by algorithm."""

    last_s: dict[str, float]


def measure(setting: Setting, narrator: Narrator) -> Ends:
    """Transfer between all racks; the seed draws the sizes."""
    random = np.random.default_rng(setting.seed)
    racks = range(1, 5)
    sizes = {
        (src, dst): int(LEAST_BYTES * (1 + random.pareto(SKEW)))
        for src in racks
        for dst in racks
        if src != dst
    }
    wishes = [Wish(f"h{src}1", f"h{dst}1", size, "skewed") for (src, dst), size in sizes.items()]
    times = 1 / setting.rates.scale(BUSIEST_MBPS).divisor
    files, ends = setting.work_dir / "stage", dict[str, float]()
    with stage_of(DEFAULT_CONFIG, times, files, narrator) as stage, stage.one_controller():
        demand = [
            OneWayDemand(f"r{src}", f"r{dst}", size / sum(sizes.values()) * BUSIEST_MBPS * times)
            for (src, dst), size in sizes.items()
        ]
        for algorithm in ALGORITHMS:
            with (
                narrator.phase(algorithm, expected_s(setting.full) / len(ALGORITHMS)),
                stage.controller({"algorithm": algorithm}) as client,
            ):
                stage.introduce([f"h{rack}1" for rack in racks])
                client.reconfigure(demand)
                done = transfer_all(stage, wishes, TIMEOUT_S)
            ends[algorithm] = max(transfer.finished_s for transfer in done)
    return Ends(ends)


def conclude(runs: Sequence[Ends]) -> Findings:
    """A row for each algorithm."""
    return Findings(
        tuple(
            Row(name, "", ranged([run.last_s[name] for run in runs], ".1f", " s"))
            for name in ALGORITHMS
        )
    )


def draw(runs: Sequence[Ends], directory: Path) -> Sequence[Path]:
    """A dot for each repetition."""
    figure = Figure(figsize=(5.0, 3.0), dpi=150, layout="constrained")
    axes = figure.subplots()
    for name in ALGORITHMS:
        axes.scatter([name] * len(runs), [run.last_s[name] for run in runs])
    axes.set_ylabel("end of the last transfer [s]")
    axes.set_ylim(bottom=0)
    path = directory / "ends.png"
    figure.savefig(path)
    return [path]


def expected_s(_full: bool) -> float:
    """Seconds of a repetition."""
    return 20.0


EXPERIMENT = Experiment(
    name="skewed-transfers",
    title="Skewed transfers, on packets",
    source="hydra_example",
    topology="the demo's four racks on two planes",
    workload="a transfer between each two servers, of Pareto-distributed size",
    policy="each algorithm plans once, for the known sizes",
    measured="end of the last transfer",
    needs_data_plane=True,
    expected_s=expected_s,
    measure=measure,
    conclude=conclude,
    draw=draw,
)
