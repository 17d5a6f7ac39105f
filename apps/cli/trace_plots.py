"""Plots of ``hydra trace --plot``; imports matplotlib, so only import this module for a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from apps.traces.comparing import Contestant
from hydra.errors import PlanError

_SIZE_INCHES: Final = (10.0, 4.5)
_DPI: Final = 150
_STYLES: Final = ("-", "--", ":", "-.")


def plot_contest(found: Sequence[Contestant], window_s: float, path: Path) -> None:
    """Plot the served share of each window's demand, over time, by algorithm.

    Raises PlanError if the file can't be written.
    """
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    for position, entrant in enumerate(contestant for contestant in found if contestant.attempts):
        axes.plot(
            [attempt.start_s for attempt in entrant.attempts],
            [100 * attempt.served_share for attempt in entrant.attempts],
            linestyle=_STYLES[position % len(_STYLES)],
            label=f"{entrant.algorithm} ({100 * entrant.served_share:.0f} %)",
        )
    axes.set_xlabel("time [s]")
    axes.set_ylabel("demand served [%]")
    axes.set_ylim(0, 101)
    axes.set_title(f"Windows of {window_s:g} s")
    figure.legend(loc="outside right upper", fontsize="small")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise PlanError(f"{path} can't be written: {error}") from error
