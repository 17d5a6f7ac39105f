"""Every computable figure of the papers' price models, computed by hand or in another way."""

import math

import numpy as np
import pytest

from apps.prices import networks, pods
from apps.prices.files import (
    SHIPPED,
    PodPrices,
    RackPrices,
    parse_prices,
    read_prices,
    shipped_text,
)
from hydra.errors import ConfigError, UnknownName


@pytest.fixture(scope="module")
def racks() -> RackPrices:
    prices = read_prices("hydra-2015")
    assert isinstance(prices, RackPrices)
    return prices


@pytest.fixture(scope="module")
def helios() -> PodPrices:
    prices = read_prices("helios-2010")
    assert isinstance(prices, PodPrices)
    return prices


def counts(bill: networks.Bill) -> dict[str, float]:
    return {position.item: position.count for position in bill.positions}


@pytest.mark.parametrize("planes", [1, 6, 20, 32])
def test_quantities_of_hydra_are_those_of_table_1(racks, planes):
    assert counts(networks.hydra_bill(racks, planes)) == {
        "switch_64x10g": 320,
        "transceiver_sr": 320 * 32,
        "transceiver_lr": 320 * planes,
        "optical_switch_320": planes,
        "cable_multimode": 320 * 32,
        "cable_single_mode": 320 * planes,
        "low_rate_network": 320 * 32,
    }


@pytest.mark.parametrize("beta", [1, 4, 25])
def test_quantities_of_the_fat_tree_are_those_of_table_1(racks, beta):
    assert counts(networks.fat_tree_bill(racks, beta)) == {
        "switch_64x10g": pytest.approx(320 + 320 / math.sqrt(beta) + 160 / beta),
        "transceiver_sr": pytest.approx(10_240 + 20_480 / math.sqrt(beta) + 20_480 / beta),
        "cable_multimode": pytest.approx(5_120 + 10_240 / math.sqrt(beta) + 10_240 / beta),
    }


def test_full_bisection_takes_800_switches(racks):
    assert counts(networks.fat_tree_bill(racks, 1))["switch_64x10g"] == 800


def test_prices_are_those_of_table_1(racks):
    assert {name: item.usd for name, item in racks.items.items()} == {
        "switch_64x10g": 30_000,
        "transceiver_sr": 665,
        "transceiver_lr": 1_600,
        "optical_switch_320": 110_000,
        "cable_multimode": 28,
        "cable_single_mode": 25,
        "low_rate_network": 0,
    }


def test_totals_by_hand(racks):
    hydra = 320 * 30e3 + 10_240 * (665 + 28) + 320 * 32 * (1_600 + 25) + 32 * 110e3
    fat_tree = 800 * 30e3 + 51_200 * 665 + 25_600 * 28
    assert networks.hydra_bill(racks, 32).usd == pytest.approx(hydra)
    assert networks.fat_tree_bill(racks, 1).usd == pytest.approx(fat_tree)


def test_the_paper_s_30_percent_leaves_a_plausible_price_for_the_low_rate_network(racks):
    full, first, second = networks.comparisons(racks)
    assert full.cheaper_percent == pytest.approx(37.28, abs=0.01)
    assert (first.published_percent, second.published_percent) == (0, 0)
    # With that price filled in, HydRA's total equals the published total.
    per_server = full.missing_usd / 10_240
    assert 0 < per_server < 665
    item = racks.items["low_rate_network"].model_copy(update={"usd": per_server})
    filled = racks.model_copy(update={"items": {**racks.items, "low_rate_network": item}})
    assert networks.comparisons(filled)[0].cheaper_percent == pytest.approx(30)


def test_more_planes_cost_more_and_more_oversubscription_less(racks):
    hydra = [networks.hydra_bill(racks, planes).usd for planes in range(33)]
    fat_tree = [networks.fat_tree_bill(racks, beta).usd for beta in range(1, 33)]
    assert hydra == sorted(hydra)
    assert fat_tree == sorted(fat_tree, reverse=True)


def test_helios_prices_are_those_of_table_1(helios):
    assert (helios.packet_port.usd, helios.packet_port.watt) == (500, 12.5)
    assert (helios.circuit_port.usd, helios.circuit_port.watt) == (500, 0.24)
    assert (helios.fibre.usd, helios.fibre.watt) == (50, 0)
    by_size = {kind.superlink: (kind.usd, kind.watt) for kind in helios.transceivers}
    assert by_size == dict.fromkeys((1, 2, 4, 8), (200, 1)) | {16: (400, 1), 32: (800, 3.5)}


def test_the_electrical_network_by_hand(helios):
    links = 64 * 1024
    assert pods.electrical_network(helios) == pods.Network(
        usd=links * (500 + 2 * 200 + 50), watt=links * (12.5 + 2), ports=links
    )


@pytest.mark.parametrize("flow", [0.0, 7.9, 8.0, 15.5])
def test_a_helios_by_hand(helios, flow):
    """Whole superlinks only; the rest keeps its packet link."""
    kind = next(one for one in helios.transceivers if one.superlink == 8)
    built = pods.helios_network(helios, kind, 63, np.full(63, flow))
    superlinks = 64 * 63 * int(flow // 8)
    packets = 64 * 1024 - 8 * superlinks
    assert built.network.usd == packets * 950 + superlinks * (550 + 8 * 200)
    assert built.network.watt == pytest.approx(packets * 14.5 + superlinks * 8.24)
    assert built.network.ports == packets + superlinks


def test_flows_are_what_hosts_send(helios):
    """At most all hosts together, equal if all send to all."""
    flows = pods.least_flows(helios)
    assert np.all(flows.sum(axis=1) <= 1024)
    assert flows[-1] == pytest.approx(np.full(63, 1024 / 63))
    once = pods.least_flows(helios.model_copy(update={"changes": 1}))
    assert once.sum(axis=1) == pytest.approx(np.full(len(once), 1024))
    assert np.all(once >= flows)


def test_helios_saves_what_the_paper_says(helios):
    study = pods.study(helios)
    best = study.cheapest(63)
    assert helios.published is not None
    assert best.superlink in helios.published.best_superlinks
    for figure in pods.held_against(study, best, helios.published):
        assert figure.published < figure.ours < 1.35 * figure.published, figure


def test_small_numbers_of_destinations_cost_more(helios):
    study = pods.study(helios)
    cost = [study.cheapest(count).network.usd for count in helios.destinations]
    assert cost[0] == max(cost)
    assert cost[-1] == min(cost)


@pytest.mark.parametrize("superlink", [1, 8])
def test_power_tells_how_many_hosts_have_packet_links(helios, superlink):
    kind = next(one for one in helios.transceivers if one.superlink == superlink)
    half = np.full(63, 1024 / 63 / 2)
    built = pods.helios_network(helios, kind, 63, half)
    on_circuits = 63 * (half[0] // superlink) * superlink / 1024
    factor = pods.electrical_network(helios).watt / built.network.watt
    assert pods.packet_share(helios, superlink, factor) == pytest.approx(1 - on_circuits)


@pytest.mark.parametrize(
    ("racks", "ports", "switches"),
    [
        (320, 320, 1),
        (321, 320, 3 + 2),
        (1000, 320, 11),  # c-Through, 7.3: "Eleven 320x320 optical MEMS switches"
        (8, 4, 4 + 2),
    ],
)
def test_racks_beyond_a_switch_s_ports_take_two_levels(racks, ports, switches):
    assert networks.optical_switches(racks, ports) == switches


def test_a_plane_of_many_racks_has_several_switches(racks):
    many = racks.model_copy(update={"racks": 1000})
    assert counts(networks.hydra_bill(many, 4))["optical_switch_320"] == 44
    alone = many.model_copy(update={"plane_ports": None})
    assert counts(networks.hydra_bill(alone, 4))["optical_switch_320"] == 4


@pytest.mark.parametrize("planes", [1, 6, 20, 32])
def test_the_fat_tree_of_equal_cost_costs_as_much(racks, planes):
    ratio = networks.equal_cost(racks, planes)
    usd = networks.hydra_bill(racks, planes).usd
    assert networks.fat_tree_bill(racks, ratio).usd == pytest.approx(usd)


def test_what_costs_more_than_full_bisection_has_no_fat_tree_of_equal_cost(racks):
    assert networks.equal_cost(racks, 80) is None
    cheap = racks.items["switch_64x10g"].model_copy(update={"hydra": {"plane": 1.0}})
    few = racks.model_copy(update={"items": {"switch_64x10g": cheap}})
    assert networks.equal_cost(few, 1) is None


def test_a_higher_rate_replaces_all_but_mirrors_and_single_mode_fibre(racks):
    hydra, fat_tree = networks.hydra_bill(racks, 32), networks.fat_tree_bill(racks, 1)
    assert hydra.usd - hydra.upgrade_usd == 32 * 110e3 + 10_240 * 25
    assert fat_tree.upgrade_usd == fat_tree.usd
    assert hydra.watt == pytest.approx(320 * 800 + 2 * 10_240 + 32 * 320 * 0.24)
    assert fat_tree.watt == 800 * 800 + 51_200


# --- files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_files_can_be_copied(name, tmp_path):
    copy = tmp_path / "mine.yaml"
    copy.write_text(shipped_text(name))
    assert read_prices(str(copy)) == read_prices(name)


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("hydra-2015", "usd: 30000", "usd: -1", "greater than or equal to 0"),
        ("hydra-2015", "usd: 30000", "usd: cheap", "'cheap'"),
        ("hydra-2015", "hydra: {rack: 1}", "hydra: {shelf: 1}", "'shelf'"),
        ("hydra-2015", "usd: 665", "usd: 665, 3", "665, 3"),
        ("hydra-2015", "model: racks", "model: rows", "rows"),
        ("hydra-2015", "racks: 320", "racks: 0", "greater than 0"),
        ("hydra-2015", "plane_ports: 320", "plane_ports: 4", "8 racks at most, not 320"),
        ("hydra-2015", "plane_ports: 320", "plane_ports: 1", "greater than or equal to 2"),
        ("hydra-2015", "replaced: true", "replaced: 1", "valid boolean"),
        ("helios-2010", "63]", "64]", "63 other pods, not to 64"),
        ("helios-2010", "superlink: 32", "superlink: 16", "superlink 16 stands twice"),
        ("helios-2010", "[4, 8]", "[4, 7]", "no transceiver has superlink 7"),
    ],
)
def test_errors_name_the_line_and_the_value(name, old, new, words):
    text = shipped_text(name)
    assert old in text
    with pytest.raises(ConfigError) as caught:
        parse_prices(text.replace(old, new, 1), "mine.yaml")
    line = text[: text.index(old)].count("\n") + 1
    assert all(problem.line == line for problem in caught.value.problems)
    assert words in str(caught.value)


def test_all_problems_at_once():
    text = shipped_text("hydra-2015").replace("usd: 30000", "usd: -1").replace("usd: 25", "usd: no")
    with pytest.raises(ConfigError) as caught:
        parse_prices(text, "mine.yaml")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("text", ["", "- 1", "model: [", "\tx", "model: racks\nmodel: racks"])
def test_what_is_no_price_file_is_refused(text):
    with pytest.raises(ConfigError, match=r"mine\.yaml"):
        parse_prices(text, "mine.yaml")


def test_unknown_names_list_what_there_is(tmp_path):
    with pytest.raises(UnknownName, match="helios-2010"):
        read_prices("helios-2011")
    with pytest.raises(ConfigError, match="can't be read"):
        read_prices(str(tmp_path / "none.yaml"))
