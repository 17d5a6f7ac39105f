"""Plots of ``hydra plan --plot`` and ``hydra replay --plot``.

Imports matplotlib, so only import this module if a plot is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from apps.cli.output import save_figure
from apps.offline.replay import Run
from apps.offline.study import Outcome, Study
from topology.algorithms import Product

_SIZE_INCHES: Final = (10.0, 4.5)
_DPI: Final = 150
_BLUE: Final = "#0072B2"
_GREY: Final = "#666666"
_BAR_INCHES: Final = 0.35
_NAMED: Final = 24
"""Most racks whose names stand at the axes; others have numbers."""


def plot_outcome(study: Study, outcome: Outcome, path: Path) -> None:
    """Plot the demand as a map, and beside the map the number of hops of each pair's path.

    Raises PlanError if the file can't be written.
    """
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [rack.name for rack in study.fabric.racks]
    _map(figure, left, study.demand, "demand [Mb/s]", names)
    if _has_slots(outcome):
        _map(figure, right, *_slots_map(study, outcome), names)
    else:
        hops, title = _hops_map(study, outcome)
        _map(figure, right, hops, title, names, whole_up_to=study.limits.max_hops)
    figure.suptitle(f"{outcome.algorithm} on {study.fabric.name}")
    save_figure(figure, path)


def plot_comparison(
    study: Study,
    outcomes: Sequence[Outcome],
    path: Path,
    bounds: Mapping[Product, float | None] = MappingProxyType({}),
) -> None:
    """Plot the share of the demand served, and planning time, by algorithm.

    ``bounds``: by kind of plan, the largest share that any plan can serve, drawn as a mark.

    Raises PlanError if the file can't be written.
    """
    made = [outcome for outcome in outcomes if outcome.result is not None]
    names = [outcome.algorithm for outcome in made]
    height = max(2.5, 1.2 + _BAR_INCHES * len(made))
    figure = Figure(figsize=(_SIZE_INCHES[0], height), dpi=_DPI, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.barh(names, [100 * o.result.served_share for o in made if o.result], color=_BLUE)
    best = [(bounds.get(o.entry.product), o.algorithm) for o in made]
    marks = [(100 * share, name) for share, name in best if share is not None]
    if marks:
        left.plot(*zip(*marks, strict=True), "|", color="black", markersize=12, clip_on=False)
    left.set_xlabel("demand served [%]" + (" (mark: the best possible)" if marks else ""))
    left.set_xlim(0, 103)  # a mark at 100 stands free of the frame
    right.barh(names, [outcome.planning_ms for outcome in made], color=_GREY)
    right.set_xlabel("planning time [ms]")
    right.set_xscale("log")
    left.invert_yaxis()
    figure.suptitle(f"{study.fabric.name}: {len(study.fabric.racks)} racks")
    save_figure(figure, path)


def plot_replay(runs: Sequence[Run], title: str, path: Path) -> None:
    """Plot demand wanted and served over time, by variant; ticks mark changes of circuits.

    Raises PlanError if the file can't be written.
    """
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    first = runs[0].moments
    times_s = [moment.at_s for moment in first]
    wanted = [moment.wanted_mbps for moment in first]
    axes.step(times_s, wanted, where="post", color=_GREY, linestyle=":", label="wanted")
    for run in runs:
        served = [moment.served_mbps for moment in run.moments]
        label = f"{run.variant.name}: {run.served_words}"
        (line,) = axes.step(times_s, served, where="post", label=label)
        changed = [(m.at_s, m.served_mbps) for m in run.moments if m.changed]
        if changed:
            axes.plot(*zip(*changed, strict=True), "|", color=line.get_color(), markersize=12)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("demand served [Mb/s]")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside right upper", fontsize="small")
    axes.set_title(title)
    save_figure(figure, path)


def _has_slots(outcome: Outcome) -> bool:
    return outcome.result is not None and bool(outcome.result.slots)


def _hops_map(study: Study, outcome: Outcome) -> tuple[NDArray[np.float64], str]:
    hops = np.zeros((len(study.fabric.racks),) * 2)
    for path in outcome.result.topology.paths if outcome.result else ():
        for direction in path.directions:
            hops[direction] = min(hops[direction] or path.hops, path.hops)
    return hops, "hops of the pair's shortest path"


def _slots_map(study: Study, outcome: Outcome) -> tuple[NDArray[np.float64], str]:
    lit = np.zeros((len(study.fabric.racks),) * 2)
    for slot in outcome.result.slots if outcome.result else ():
        for light in slot.lightpaths:
            src, dst = study.fabric.ports[light.sender], study.fabric.ports[light.receiver]
            lit[src.rack, dst.rack] += slot.duration_s * 1000
    return lit, "lit in a window [ms]"


def _map(
    figure: Figure,
    axes: Axes,
    values: NDArray[Any],
    title: str,
    names: Sequence[str],
    whole_up_to: int | None = None,
) -> None:
    """Draw ``values`` by racks; ``whole_up_to``: the values are whole, from 1 on."""
    shown = np.ma.masked_equal(values, 0)
    image = axes.imshow(shown, cmap="viridis", interpolation="nearest", vmin=0)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    if whole_up_to is not None:
        image.set(cmap=matplotlib.colormaps["viridis"].resampled(whole_up_to))
        image.set_clim(0.5, whole_up_to + 0.5)
        bar.set_ticks(range(1, whole_up_to + 1))
    if len(names) <= _NAMED:
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
    axes.set_title(title)
    axes.set_xlabel("to rack")
    axes.set_ylabel("from rack")
