"""Prices of HydRA and Helios, beside the papers' (HydRA, IV; Helios, 3.2; c-Through, 7.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apps.cli import price_plots
from apps.prices import networks, pods
from apps.prices.files import PodPrices, RackPrices, read_prices
from mininet_scenarios.experiments.claims import CLAIMS, judged
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row
from mininet_scenarios.stage.stage import ScenarioError

_NO_LOW_RATE: Final = (
    "The paper counts the low-rate network and does not say what it costs; ours leaves it out. "
    "This figure would agree at {least:,.0f} to {most:,.0f} $ a server, {together}."
)
_MANY_RACKS: Final = 1000
"""Racks of c-Through's section 7.3."""
_NO_PATTERN: Final = (
    "The paper does not say how hosts choose the pods that they send to. By the paper's power, "
    "{published:.1%} of the hosts have packet links beside the circuits; here {ours:.1%} have."
)


@dataclass(frozen=True, slots=True)
class MemsFabric:
    """Optical switches for more racks than a switch has ports (c-Through, 7.3)."""

    racks: int
    ports: int
    switches: int

    @property
    def over_zones(self) -> float:
        """Switches a rack over a switch's share of as many racks as ports."""
        return self.switches / self.racks * self.ports


@dataclass(frozen=True, slots=True)
class Prices:
    """Both papers' networks, all figures computed anew."""

    hydra: tuple[networks.Comparison, ...]
    agreeing_usd: tuple[tuple[float, float], ...]
    """Range of prices of the low-rate network, a server, with which each comparison agrees."""
    fabric: MemsFabric
    helios: pods.PodStudy
    helios_figures: tuple[pods.Figure, ...]
    on_packets: tuple[float, float]
    """Part of Helios' hosts on packet links, by the paper's power, and by ours."""


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
        compared = tuple(networks.comparisons(racks))
        ranges = tuple(_agreeing_usd(comparison, racks) for comparison in compared)
        ports = racks.plane_ports or racks.racks
        switches = networks.optical_switches(_MANY_RACKS, ports)
        fabric = MemsFabric(_MANY_RACKS, ports, switches)
        power = next(figure for figure in figures if figure.name.startswith("power"))
        on_packets = (
            pods.packet_share(helios, best.superlink, power.published),
            pods.packet_share(helios, best.superlink, power.ours),
        )
        return Prices(compared, ranges, fabric, study, figures, on_packets)


def _key(compared: networks.Comparison) -> str:
    return f"hydra/price-{compared.hydra.network.rpartition(' ')[2]}"


def _agreeing_usd(compared: networks.Comparison, racks: RackPrices) -> tuple[float, float]:
    """Prices of a low-rate network, for each server, with which the comparison agrees."""
    band = CLAIMS[_key(compared)].band
    servers = racks.racks * racks.servers_per_rack
    least, most = (
        (compared.fat_tree.usd * (1 - (limit or 0.0)) - compared.hydra.usd) / servers
        for limit in (band.most, band.least)
    )
    return least, most


def _conclude(runs: Sequence[Prices]) -> Findings:
    switches = next(
        position.count
        for comparison in runs[0].hydra
        for position in comparison.fat_tree.positions
        if comparison.fat_tree.network.endswith("= 1") and position.item == "switch_64x10g"
    )
    figure = "switches of a fat tree of full bisection"
    return Findings(
        (*_hydra_rows(runs[0]), judged("hydra/switches", switches, figure), *_helios_rows(runs[0]))
    )


def _hydra_rows(run: Prices) -> Iterator[Row]:
    low, high = (
        max(least for least, _ in run.agreeing_usd),
        min(most for _, most in run.agreeing_usd),
    )
    together = (
        f"all three at {low:,.0f} to {high:,.0f} $" if low <= high else "all three at no price"
    )
    for comparison, (least, most) in zip(run.hydra, run.agreeing_usd, strict=True):
        figure = f"{comparison.hydra.network} cheaper than {comparison.fat_tree.network} by"
        why = _NO_LOW_RATE.format(least=least, most=most, together=together)
        yield judged(_key(comparison), comparison.cheaper_percent / 100, figure, why=why)
    full = run.hydra[0]
    case = f"{full.hydra.network} over {full.fat_tree.network}"
    upgrade = full.hydra.upgrade_usd / full.fat_tree.upgrade_usd
    figure = f"a higher rate, all parts dearer by one factor, {case}"
    yield judged("hydra/upgrade", upgrade, figure)
    yield judged("hydra/power", full.hydra.watt / full.fat_tree.watt, f"power, {case}")
    mems = run.fabric
    figure = f"optical switches of {mems.ports} ports for {mems.racks} racks"
    yield judged("c-through/clos", mems.switches, figure)
    figure = f"optical switches a rack, {mems.racks} racks over zones of {mems.ports}"
    yield judged("c-through/clos cost", mems.over_zones, figure)


def _helios_rows(run: Prices) -> Iterator[Row]:
    for figure in run.helios_figures:
        key, ours = f"helios/{figure.name}", figure.text(figure.ours)
        published, own = run.on_packets
        why = _NO_PATTERN.format(published=published, ours=own)
        yield judged(key, figure.ours, f"Helios: {figure.name}", ours, why)


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
    source="HydRA, JOCN 2015, Table I and Fig. 5; Helios, SIGCOMM 2010, Table 1 and Fig. 2; "
    "c-Through, SIGCOMM 2010, section 7.3",
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
