"""Colours of all plots, and a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's palette: distinct with any colour vision; line styles differ as well.
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
GREEN: Final = "#009E73"
PURPLE: Final = "#CC79A7"
GREY: Final = "#666666"


def logarithmic(axes: Axes, values: Sequence[float]) -> None:
    """Make the x axis logarithmic, with unconverted ``values`` as labels."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xticks([], minor=True)


def legend_below(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """Put the legend of ``axes`` below all plots of ``figure``, away from all curves.

    matplotlib's own choice ("best") looks for a free place among all points: with many points the
    search is slow, and matplotlib warns.
    """
    entries = axes.get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", ncols=columns, fontsize="small")
