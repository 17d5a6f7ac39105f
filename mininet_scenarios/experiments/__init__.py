"""Experiments by name: a folder for each paper, with the scenario beside the experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from hydra.errors import HydraError, UnknownName
from hydra.names import did_you_mean
from hydra.plugins import Contributions, Places
from mininet_scenarios.experiments.frame import Experiment

_PLACES: Final = {
    "prices": "prices",
    "mordia-slots": "mordia.slots",
    "helios-patterns": "helios.patterns",
    "tournament": "tournament.experiment",
    "fig4": "hydra_paper.fig4",
    "heuristic": "hydra_paper.heuristic",
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
    "mordia-days": "mordia.days",
    "mordia-slotted": "mordia.slotted",
    "trace": "trace.experiment",
}
"""Module of each experiment, with the attribute ``EXPERIMENT``."""
CONTRIBUTED: Final = "hydra.experiments"
"""Entry point group for experiments of other packages."""


def _flaw(name: str, found: object) -> str | None:
    """Reason why ``found`` is no experiment called ``name``; None for an experiment."""
    if not isinstance(found, Experiment):
        return (
            f"the object is a {type(found).__name__}, "
            "not a mininet_scenarios.experiments.frame.Experiment"
        )
    if found.name != name:
        return f"the experiment's own name is {found.name}: results are found by one name"
    return None


def _refused(name: str, why: str) -> Experiment[Any]:
    """A placeholder for an unusable contributed experiment."""

    def refuse(*_arguments: object) -> NoReturn:
        raise HydraError(why)

    return Experiment(
        name=name,
        title="can't be used",
        source=why,
        topology="",
        workload="",
        policy="",
        measured="",
        needs_data_plane=False,
        expected_s=lambda _full: 0.0,
        measure=refuse,
        conclude=refuse,
        draw=refuse,
    )


EXPERIMENTS: Final[Mapping[str, Experiment[Any]]] = Contributions(
    "experiment",
    CONTRIBUTED,
    Places[Experiment[Any]](
        {name: f"{__name__}.{place}:EXPERIMENT" for name, place in _PLACES.items()}
    ),
    flaw=_flaw,
    refused=_refused,
)


def load(name: str) -> Experiment[Any]:
    """The experiment called ``name``. Raises UnknownName with a list of the existing names."""
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS)
        raise UnknownName(f"no experiment {name!r}{hint}: choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
