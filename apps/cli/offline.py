"""``hydra plan --fabric``: plans made from files, compared, checked and explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

import click
import numpy as np

from apps.cli.offline_report import Bounds, document_of, print_comparison, print_plan
from apps.cli.output import CommandError, drawn_by, print_json
from apps.cli.parameters import GRAPH_ENDINGS
from apps.cli.patience import Progress, ended_by_ctrl_c
from apps.offline.demand_files import read_demand
from apps.offline.explanation import explain
from apps.offline.study import Limits, Outcome, Study, read_fabric
from apps.offline.topology_files import read_state
from apps.process.files import is_there
from hydra.errors import PlanError, UnknownName
from hydra.model import DemandMatrix, Fabric, NetworkState, PlaneId, RackId
from hydra.names import did_you_mean
from hydra_hybrid_network_client.errors import JsonObject
from topology.algorithms import ENTRIES
from topology.problem import validate_demand
from topology.synthetic import KINDS, synthetic_demand

_QUICK_BOUND = 20_000
"""Most entries of a demand whose bound takes less than about a second."""


@dataclass(frozen=True, slots=True)
class Job:
    """The command line's request."""

    fabric: str
    demand: Sequence[JsonObject | str]
    """Demand as ``{src, dst, mbps}``, a file, or a kind of synthetic demand."""
    current: Path | None
    """Present topology; None: no circuits."""
    racks: Sequence[str]
    planes: Sequence[str]
    use_planes: Sequence[str]
    algorithm: str | None
    compare: bool
    explain: tuple[str, str] | None
    check: bool
    plot: Path | None
    graph: Path | None
    """The name ends as in ``GRAPH_ENDINGS``."""
    seed: int
    load: float
    max_hops: int | None
    paths_per_pair: int | Literal["auto"] | None
    disturbance_mbps: float | None
    weighted: bool
    budget_ms: float | None
    window_ms: float
    makespan: bool
    as_json: bool


def run(job: Job) -> None:
    """Do the job and print the result. Raises HydraError, and CommandError if a check fails."""
    with Progress(f"reading {job.fabric}") as progress, ended_by_ctrl_c():
        study, algorithm = _study(job)
        names = list(ENTRIES) if job.compare else [job.algorithm or algorithm]
        outcomes = []
        for position, name in enumerate(names, start=1):
            progress.now(f"planning with {name} ({position} of {len(names)})")
            outcomes.append(_attempt(study, name, job))
        progress.now("bounding any plan")
        quick = np.count_nonzero(study.demand) <= _QUICK_BOUND
        bounds = _bounds(study, outcomes) if job.check or quick else {}
    if job.plot is not None:
        _plot(study, outcomes, bounds, job.plot, compare=job.compare)
    if job.graph is not None:
        _write_graph(study.fabric, outcomes[0], job.graph)
    reasons = _explain(study, outcomes, job)
    if job.as_json:
        _print_json(study, outcomes, bounds, reasons, job)
    else:
        _print_tables(study, outcomes, bounds, reasons, job)
    _end_with_problems(outcomes)


# --- inputs ---------------------------------------------------------------------------------


def _study(job: Job) -> tuple[Study, str]:
    fabric, policy = read_fabric(job.fabric)
    limits = Limits(
        max_hops=policy.max_hops if job.max_hops is None else job.max_hops,
        racks=_racks(fabric, job.racks),
        planes=_planes(fabric, job.planes),
        use_planes=_planes(fabric, job.use_planes),
        weighted=job.weighted,
        paths_per_pair=job.paths_per_pair or policy.paths_per_pair,
        disturbance_mbps=(
            policy.disturbance_mbps if job.disturbance_mbps is None else job.disturbance_mbps
        ),
        window_s=job.window_ms / 1000,
        seconds=float("inf") if job.budget_ms is None else job.budget_ms / 1000,
    )
    current = NetworkState() if job.current is None else read_state(job.current, fabric)
    return Study(fabric, _demand(fabric, job), limits, current), policy.algorithm


def _racks(fabric: Fabric, names: Sequence[str]) -> frozenset[RackId] | None:
    return frozenset(_rack(fabric, name) for name in names) or None


def _rack(fabric: Fabric, name: str) -> RackId:
    rack = fabric.rack_by_name.get(name)
    if rack is None:
        hint = did_you_mean(name, fabric.rack_by_name)
        raise UnknownName(f"no rack {name!r} in fabric {fabric.name}{hint}")
    return rack.id


def _planes(fabric: Fabric, names: Sequence[str]) -> frozenset[PlaneId] | None:
    known = fabric.plane_by_name
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UnknownName(f"no plane {name!r} in fabric {fabric.name}{hint}")
    return frozenset(known[name].id for name in names) or None


def _demand(fabric: Fabric, job: Job) -> DemandMatrix:
    """The sum of all ``--demand`` arguments."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinite results are refused
        return validate_demand(_sum(fabric, job), len(fabric.racks))


def _sum(fabric: Fabric, job: Job) -> DemandMatrix:
    total = np.zeros((len(fabric.racks),) * 2)
    for part in job.demand:
        if isinstance(part, dict):
            src, dst = _rack(fabric, part["src"]), _rack(fabric, part["dst"])
            if src == dst:
                raise PlanError(f"{part['src']} to itself: traffic within a rack needs no circuit")
            total[src, dst] += part["mbps"]
        elif part in KINDS:
            total += _synthetic(fabric, part, job)
        elif part.isalpha() and not is_there(part):
            raise UnknownName(
                f"{part!r} is neither a file nor a kind of demand: choose from {', '.join(KINDS)}"
            )
        else:
            total += read_demand(Path(part), [rack.name for rack in fabric.racks])
    return total


def _synthetic(fabric: Fabric, kind: str, job: Job) -> DemandMatrix:
    ends = [rack.id for rack in fabric.racks if not rack.spine]
    mean_mbps = sum(port.rate_mbps for port in fabric.ports if port.rack in ends) / len(ends)
    demand = np.zeros((len(fabric.racks), len(fabric.racks)))
    demand[np.ix_(ends, ends)] = synthetic_demand(kind, len(ends), job.seed, job.load * mean_mbps)
    return demand


def _attempt(study: Study, name: str, job: Job) -> Outcome:
    """Plan with an algorithm; in a comparison, a refusal does not stop the other algorithms."""
    try:
        outcome = study.run(name, check=job.check)
        if job.makespan:
            outcome = study.with_makespan(outcome)
    except PlanError as error:
        if not job.compare:
            raise
        return Outcome(name, ENTRIES[name], refused=str(error))
    if not job.compare:
        _ = outcome.plan  # a refusal ends the command
    return outcome


def _bounds(study: Study, outcomes: Sequence[Outcome]) -> Bounds:
    return {
        product: study.bound(product)
        for product in {o.entry.product for o in outcomes if o.result is not None}
    }


def _plot(
    study: Study, outcomes: Sequence[Outcome], bounds: Bounds, path: Path, *, compare: bool
) -> None:
    plots = drawn_by("plots")
    if compare:
        plots.plot_comparison(study, outcomes, path, bounds)
    else:
        plots.plot_outcome(study, outcomes[0], path)


def _write_graph(fabric: Fabric, outcome: Outcome, path: Path) -> None:
    if outcome.plan.slots:
        raise PlanError(
            f"{outcome.algorithm} plans one-way light paths by slots here: --graph is of circuits "
            "that stand, which multi-hop algorithms and `edmonds` plan"
        )
    formats = import_module("hydra.circuit_graph").FORMATS  # networkx takes a tenth of a second
    text = formats[GRAPH_ENDINGS[path.suffix]](outcome.plan.topology.to_networkx(fabric))
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise PlanError(f"{path} can't be written: {error.strerror or error}") from error


def _explain(study: Study, outcomes: Sequence[Outcome], job: Job) -> list[list[str]]:
    if job.explain is None:
        return []
    src, dst = (_rack(study.fabric, name) for name in job.explain)
    if src == dst:
        raise PlanError(f"{job.explain[0]} to itself needs no circuit: name two racks")
    return [explain(study, outcome, src, dst) for outcome in outcomes]


def _print_json(
    study: Study,
    outcomes: Sequence[Outcome],
    bounds: Bounds,
    reasons: Sequence[Sequence[str]],
    job: Job,
) -> None:
    documents = [document_of(study, outcome, bounds) for outcome in outcomes]
    for document, why in zip(documents, reasons, strict=False):
        document["explanation"] = list(why)
    print_json({"plans": documents} if job.compare else documents[0])


def _print_tables(
    study: Study,
    outcomes: Sequence[Outcome],
    bounds: Bounds,
    reasons: Sequence[Sequence[str]],
    job: Job,
) -> None:
    if job.compare:
        print_comparison(study, outcomes, bounds)
    else:
        print_plan(study, outcomes[0], bounds)
    for outcome, lines in zip(outcomes, reasons, strict=False):
        click.echo(
            f"{outcome.algorithm}: {job.explain[0]} - {job.explain[1]}" if job.explain else ""
        )
        for line in lines:
            click.echo(f"  {line}")


def _end_with_problems(outcomes: Sequence[Outcome]) -> None:
    found = [
        f"{outcome.algorithm}: {problem}"
        for outcome in outcomes
        for problem in outcome.problems or ()
    ]
    if found:
        raise CommandError("the checks found problems:\n" + "\n".join(found))
