"""Experiments by name: a folder for each paper, with the scenario beside the experiment."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from hydra.errors import UnknownName
from hydra.names import did_you_mean
from mininet_scenarios.experiments.frame import Experiment

_PLACES: Final = {
    "prices": "prices",
    "mordia-slots": "mordia.slots",
    "helios-patterns": "helios.patterns",
    "tournament": "tournament.experiment",
    "fig7": "hydra_paper.fig7",
    "fig9a": "hydra_paper.fig9a",
    "fig9b": "hydra_paper.fig9b",
    "abu-tair": "abu_tair.experiment",
    "cthrough-fig5": "cthrough.fig5",
    "cthrough-table2": "cthrough.table2",
    "cthrough-fig6": "cthrough.fig6",
    "cthrough-fig8": "cthrough.fig8",
    "cthrough-fig10": "cthrough.fig10",
    "helios-stability": "helios.stability",
    "mordia-slotted": "mordia.slotted",
    "trace": "trace.experiment",
}
"""Module of each experiment, which holds it as ``EXPERIMENT``."""
NAMES: Final = tuple(_PLACES)


def load(name: str) -> Experiment[Any]:
    """The experiment called ``name``. Raises UnknownName, which lists the names that exist."""
    if name not in NAMES:
        hint = did_you_mean(name, NAMES)
        raise UnknownName(f"no experiment {name!r}{hint}: choose one of {', '.join(NAMES)}")
    module = import_module(f"{__name__}.{_PLACES[name]}")
    experiment: Experiment[Any] = module.EXPERIMENT
    return experiment
