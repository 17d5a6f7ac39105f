"""Experiments: one file each, by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from hydra.errors import UnknownName
from hydra.names import did_you_mean
from mininet_scenarios.experiments.frame import Experiment

NAMES: Final = (
    "prices",
    "mordia-slots",
    "helios-patterns",
    "tournament",
    "fig7",
    "fig9a",
    "fig9b",
    "abu-tair",
    "cthrough-fig5",
    "cthrough-table2",
    "cthrough-fig6",
    "cthrough-fig8",
    "cthrough-fig10",
    "helios-stability",
    "mordia-slotted",
    "trace",
)
"""Each is ``EXPERIMENT`` in the module of that name, with ``_`` for ``-``."""


def load(name: str) -> Experiment[Any]:
    """The experiment called ``name``; raises UnknownName listing those there are."""
    if name not in NAMES:
        hint = did_you_mean(name, NAMES)
        raise UnknownName(f"no experiment {name!r}{hint}: choose one of {', '.join(NAMES)}")
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    experiment: Experiment[Any] = module.EXPERIMENT
    return experiment
