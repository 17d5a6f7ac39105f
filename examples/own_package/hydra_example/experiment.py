"""An experiment: the part of skewed demands that circuits of one hop carry, by algorithm."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from apps.offline.study import Limits, Study, plain_fabric
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row, ranged
from topology.algorithms import Product
from topology.synthetic import synthetic_demand

RACKS, PLANES, RATE_MBPS = 16, 4, 10_000.0
BUSIEST_MBPS = PLANES * RATE_MBPS
ALGORITHMS = ("busiest-first", "edmonds", "hydra-bfs")


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of each demand: carried by plans, and the bound of any plan."""

    carried: dict[str, list[float]]
    most: list[float]


def measure(setting: Setting, narrator: Narrator) -> Shares:
    """Plan for demands whose seeds follow from the repetition's."""
    shares = Shares({name: [] for name in ALGORITHMS}, [])
    demands = 50 if setting.full else 10
    with narrator.phase(f"planning for {demands} demands", expected_s(setting.full)):
        for number in range(demands):
            seed = setting.seed * 1000 + number
            demand = synthetic_demand("gravity", RACKS, seed, BUSIEST_MBPS)
            study = Study(plain_fabric(RACKS, PLANES, RATE_MBPS), demand, Limits(max_hops=1))
            for name in ALGORITHMS:
                outcome = study.run(name, check=True)
                if outcome.problems:
                    raise ValueError(f"{name}, seed {seed}: {outcome.problems[0]}")
                shares.carried[name].append(outcome.plan.served_share)
            shares.most.append(study.bound(Product.CIRCUITS) or 1.0)
    return shares


def conclude(runs: Sequence[Shares]) -> Findings:
    """A row for each algorithm: no plan may carry more than the bound."""
    rows = []
    for name in ALGORITHMS:
        carried = [share for run in runs for share in run.carried[name]]
        most = [share for run in runs for share in run.most]
        sound = all(c <= m + 1e-9 for c, m in zip(carried, most, strict=True))
        ours = ranged([100 * share for share in carried], ".1f", " %")
        rows.append(Row(name, "", ours, target="within the bound of any plan", met=sound))
    bound = fmean(share for run in runs for share in run.most)
    return Findings(tuple(rows), (Table("Bound", ("of any plan",), ((f"{100 * bound:.1f} %",),)),))


def draw(runs: Sequence[Shares], directory: Path) -> Sequence[Path]:
    """A box of the demands' shares for each algorithm."""
    figure = Figure(figsize=(6.0, 4.0), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.boxplot([[100 * s for run in runs for s in run.carried[name]] for name in ALGORITHMS])
    axes.set_xticks(range(1, len(ALGORITHMS) + 1), ALGORITHMS)
    axes.set_ylabel("part of the demand on circuits [%]")
    path = directory / "shares.png"
    figure.savefig(path)
    return [path]


def expected_s(full: bool) -> float:
    """Seconds of a repetition."""
    return 5.0 if full else 1.0


EXPERIMENT = Experiment(
    name="one-hop-gravity",
    title="Circuits of one hop for skewed demands",
    source="hydra_example",
    topology=f"{RACKS} racks on {PLANES} planes",
    workload="gravity demands, the busiest rack's as large as its ports",
    policy="each algorithm plans from nothing, at most one hop",
    measured="part of the demand on circuits",
    needs_data_plane=False,
    expected_s=expected_s,
    measure=measure,
    conclude=conclude,
    draw=draw,
)
