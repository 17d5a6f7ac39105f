"""Prices of HydRA and Helios, beside the papers' (HydRA, IV; Helios, 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apps.cli import price_plots
from apps.prices import networks, pods
from apps.prices.files import PodPrices, RackPrices, read_prices
from mininet_scenarios.experiments.claims import judged
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row
from mininet_scenarios.stage.stage import ScenarioError

_NO_LOW_RATE: Final = (
    "The paper counts the low-rate network and does not say what it costs; ours leaves it out."
)
_NO_PATTERN: Final = "The paper does not say how hosts choose the pods that they send to."


@dataclass(frozen=True, slots=True)
class Prices:
    """Both papers' networks, all figures computed anew."""

    hydra: tuple[networks.Comparison, ...]
    helios: pods.PodStudy
    helios_figures: tuple[pods.Figure, ...]


def _files() -> tuple[RackPrices, PodPrices]:
    racks, helios = read_prices("hydra-2015"), read_prices("helios-2010")
    if not (isinstance(racks, RackPrices) and isinstance(helios, PodPrices)):
        raise ScenarioError("the price files of the package have changed their models")
    return racks, helios


def _measure(_setting: Setting, narrator: Narrator) -> Prices:
    racks, helios = _files()
    with narrator.phase("adding up prices", 1.0):
        study = pods.study(helios)
        best = study.cheapest(max(helios.destinations))
        figures = pods.held_against(study, best, helios.published) if helios.published else ()
        return Prices(tuple(networks.comparisons(racks)), study, figures)


def _conclude(runs: Sequence[Prices]) -> Findings:
    switches = next(
        position.count
        for one in runs[0].hydra
        for position in one.fat_tree.positions
        if one.fat_tree.network.endswith("= 1") and position.item == "switch_64x10g"
    )
    figure = "switches of a fat tree of full bisection"
    return Findings(
        (*_hydra_rows(runs[0]), judged("hydra/switches", switches, figure), *_helios_rows(runs[0]))
    )


def _hydra_rows(run: Prices) -> Iterator[Row]:
    for one in run.hydra:
        planes = one.hydra.network.rpartition(" ")[2]
        figure = f"{one.hydra.network} cheaper than {one.fat_tree.network} by"
        servers = next(one.count for one in one.hydra.positions if one.item == "transceiver_sr")
        why = f"{_NO_LOW_RATE} It would have to cost {one.missing_usd / servers:,.0f} $ a server."
        yield judged(f"hydra/price-{planes}", one.cheaper_percent / 100, figure, why=why)


def _helios_rows(run: Prices) -> Iterator[Row]:
    for figure in run.helios_figures:
        key, ours = f"helios/{figure.name}", figure.text(figure.ours)
        yield judged(key, figure.ours, f"Helios: {figure.name}", ours, _NO_PATTERN)


def _draw(runs: Sequence[Prices], directory: Path) -> Sequence[Path]:
    racks, _ = _files()
    written = [directory / "hydra.png", directory / "helios.png"]
    hydra = [networks.hydra_bill(racks, planes) for planes in racks.planes]
    fat_tree = [networks.fat_tree_bill(racks, ratio) for ratio in racks.oversubscription]
    price_plots.plot_racks(racks, hydra, fat_tree, written[0])
    price_plots.plot_pods(runs[0].helios, written[1])
    return written


EXPERIMENT: Final = Experiment(
    name="prices",
    title="Costs of the networks",
    source="HydRA, JOCN 2015, Table I and Fig. 5; Helios, SIGCOMM 2010, Table 1 and Fig. 2",
    topology="320 racks of 32 servers; 64 pods of 1024 hosts",
    workload="HydRA: none. Helios: hosts that choose other pods to send to, 20 times",
    policy="none: traffic that always flows between two pods gets circuits",
    measured="price, power and ports of core switches",
    needs_data_plane=False,
    expected_s=lambda _full: 2.0,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
