"""Plots of ``hydra price --plot``; imports matplotlib, so only import this module for a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from apps.cli.output import save_figure
from apps.prices.files import RackPrices
from apps.prices.networks import Bill
from apps.prices.pods import PodStudy

_SIZE_INCHES: Final = (10.0, 4.5)
_DPI: Final = 150
_BLUE: Final = "#0072B2"
_VERMILION: Final = "#D55E00"
_MILLION: Final = 1e6
_MARKERS: Final = "osv^D*"


def plot_racks(
    prices: RackPrices, hydra: Sequence[Bill], fat_tree: Sequence[Bill], path: Path
) -> None:
    """Fig. 5 of HydRA: both networks' prices, by planes and by oversubscription.

    Raises PlanError if the file can't be written.
    """
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.bar([str(k) for k in prices.planes], [bill.usd / _MILLION for bill in hydra], color=_BLUE)
    left.set_xlabel("optical switches K")
    left.set_ylabel("price [million USD]")
    left.set_title("HydRA")
    ratios = [f"{ratio:g}" for ratio in prices.oversubscription]
    right.bar(ratios, [bill.usd / _MILLION for bill in fat_tree], color=_VERMILION)
    right.set_xlabel("oversubscription β")
    right.set_title("fat tree")
    figure.suptitle(prices.title)
    save_figure(figure, path)


def plot_pods(study: PodStudy, path: Path) -> None:
    """Fig. 2 of Helios: cost, power and ports by pods sent to, for each superlink size.

    Raises PlanError if the file can't be written.
    """
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    quantities = (
        ("usd", "cost [million USD]", 1e6),
        ("watt", "power [kW]", 1e3),
        ("ports", "ports of core switches [thousand]", 1e3),
    )
    for axes, (name, label, unit) in zip(figure.subplots(1, 3), quantities, strict=True):
        sizes = sorted({row.superlink for row in study.helios})
        for position, size in enumerate(sizes):
            line = [row for row in study.helios if row.superlink == size]
            axes.plot(
                [helios_network.destinations for helios_network in line],
                [getattr(helios_network.network, name) / unit for helios_network in line],
                marker=_MARKERS[position % len(_MARKERS)],
                markersize=3,
                label=f"w = {size}",
            )
        axes.axhline(getattr(study.electrical, name) / unit, color="black", label="electrical")
        axes.set_xlabel("destination pods per host")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    entries = axes.get_legend_handles_labels()
    figure.legend(*entries, loc="outside right upper", fontsize="small")
    save_figure(figure, path)
