"""HydRA's Fig. 7: networks, sizes and conclusions; the runs are in tests/integration."""

from itertools import combinations

import numpy as np
import pytest
import yaml

from apps.process.configuration import load_configuration
from hydra.model import Topology
from mininet_scenarios.experiments.hydra_paper import fig7
from mininet_scenarios.experiments.hydra_paper.fig7 import Fig7, Outcome
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.stage.mpi import Kernel, MpiRun, RankReport, ServerBytes
from tests.unit.experiments.judged import differing
from topology.algorithms import algorithm
from topology.problem import Budget, FabricArrays, Reserved

SCALE = Scale(1000, None)
NETWORKS = [fig7.tree, fig7.hybrid, fig7.spanning_tree]


def fabric_of(network, scenario, servers, tmp_path):
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(network(scenario, servers, SCALE)))
    return load_configuration(path).fabric


@pytest.mark.parametrize("scenario", fig7.SCENARIOS, ids=lambda one: one.name)
@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_usable_and_keep_the_paper_s_ratios(scenario, network, tmp_path):
    fabrics = [fabric_of(network, scenario, n, tmp_path) for n in (2, scenario.servers)]
    for fabric, servers in zip(fabrics, (2, scenario.servers), strict=True):
        assert len(fabric.racks) == 4
        assert len(fabric.servers) == 4 * servers
        assert {plane.rate_mbps for plane in fabric.planes} == {10.0}
        # For any number of emulated servers: as much as the paper's 8 or 10 servers send
        assert servers * fabric.server_rate_mbps == pytest.approx(scenario.servers * 10)
    if network is fig7.tree:
        assert fabrics[0].electrical_rate_mbps == pytest.approx(
            {"scenario 1": 20.0, "scenario 2": 32 / 25 / 3 * 10}[scenario.name]
        )


def test_ranks_are_dealt_out_to_racks_or_placed_at_random(tmp_path):
    fabric = fabric_of(fig7.hybrid, fig7.SCENARIOS[1], 2, tmp_path)
    dealt = ["h11", "h21", "h31", "h41", "h12", "h22", "h32", "h42"]
    assert fig7.placement(fabric, fig7.ALLTOALL, 1) == dealt
    placed = [fig7.placement(fabric, fig7.FFT, seed) for seed in range(1, 6)]
    assert all(sorted(places) == sorted(dealt) for places in placed)
    assert len({tuple(places) for places in placed}) > 1
    # The same on another network: the difference does not come from the drawing.
    alike = fabric_of(fig7.tree, fig7.SCENARIOS[1], 2, tmp_path)
    assert fig7.placement(alike, fig7.FFT, 1) == placed[0]


def circuits_of(network, scenario, tmp_path, policy, wanted, max_hops=3):
    fabric = FabricArrays.of(fabric_of(network, scenario, 2, tmp_path))
    demand = np.full((4, 4), wanted * 10.0)
    np.fill_diagonal(demand, 0)
    budget = Budget(max_hops, paths_per_pair=policy["paths_per_pair"])
    plan = algorithm(policy["algorithm"])(fabric, demand, Topology(), Reserved(), budget)
    joined = {frozenset((path.src, path.dst)) for path in plan.topology.paths}
    assert joined == {frozenset(pair) for pair in combinations(range(4), 2)}
    return len(plan.topology.circuits)


@pytest.mark.parametrize(("scenario", "loops"), list(zip(fig7.SCENARIOS, (10, 4), strict=True)))
def test_all_racks_are_joined_with_loops_and_without(scenario, loops, tmp_path):
    for name in (fig7.AS_PUBLISHED, fig7.HITLESS):
        policy = fig7.POLICIES[name]
        asked = (policy, scenario.wanted, scenario.max_hops)
        assert circuits_of(fig7.hybrid, scenario, tmp_path, *asked) == loops
    tree = fig7.POLICIES[fig7.SPANNING_TREE]
    assert circuits_of(fig7.spanning_tree, scenario, tmp_path, tree, fig7.SPANNING_WANTED) == 3


@pytest.mark.parametrize("scenario", fig7.SCENARIOS, ids=lambda one: one.name)
@pytest.mark.parametrize("name", fig7.FULL.kernels)
@pytest.mark.parametrize("divisor", [100, 1000, 3000])
def test_a_kernel_takes_the_tree_as_long_as_it_should(scenario, name, divisor):
    scale = Scale(divisor, None)
    for servers in (2, scenario.servers):
        kernel = fig7.kernel_of(name, scenario, servers, scale, 20.0)
        ranks = 4 * servers
        assert kernel.rounds >= 1
        assert kernel.name != "fft" or kernel.size % ranks == 0
        leaving = (ranks - servers) / (ranks - 1)
        sent = kernel.rounds * kernel.bytes_out(ranks) * servers * leaving
        paused_s = kernel.rounds * kernel.pause_s
        seconds = sent * 8e-6 / scale.mbps(scenario.tree_mbps) + paused_s
        assert 10 < seconds < 40, kernel
        # A rank of the paper makes a billion operations per second on a network ``divisor`` times
        # as fast.
        operations = (
            fig7.PROGRAMS[name].operations * ranks * kernel.rounds * kernel.bytes_out(ranks)
        )
        assert paused_s == pytest.approx(operations * divisor / (4 * scenario.servers) / 1e9)


def test_programs_compute_as_much_for_each_byte_as_npb_s_class_d():
    operations = {name: program.operations for name, program in fig7.PROGRAMS.items()}
    assert operations[fig7.FFT] == operations[fig7.ALLTOALL] == 0
    # A transform of 2^31 points: 5 n log2 n operations for 16 n bytes
    assert operations[fig7.FFT_COMPUTING] == pytest.approx(5 * 31 / 16)
    assert operations["NPB FT"] == pytest.approx(10.0, abs=0.1)
    # Per iteration 58 n operations; three passes over grids of 2·(4 + 4 + 2) faces, 4/3 in all
    assert operations["NPB MG"] == pytest.approx(58 * 1024 / (3 * 20 * 8 * 4 / 3), rel=0.01)
    assert operations["NPB SP"] == pytest.approx(55, abs=1)


def outcome(network: str, seconds: float, wire: int = 1100) -> Outcome:
    report = RankReport(0, "h11", 0.0, seconds, seconds / 2, 1000, True)
    run = MpiRun(Kernel("alltoall", 10, 1), (report,), {"h11": ServerBytes(1000, wire, 0)})
    return Outcome("scenario 2", network, fig7.ALLTOALL, 4, run)


def result(spanning_s: float, hitless_s: float = 3.8) -> Fig7:
    seconds = {fig7.TREE: 6.0, fig7.SPANNING_TREE: spanning_s, fig7.AS_PUBLISHED: 4.0}
    return Fig7(
        SCALE, tuple(outcome(*one) for one in (seconds | {fig7.HITLESS: hitless_s}).items())
    )


REPETITIONS = (result(5.0), result(7.0))


def test_conclusions_by_hand_and_a_plot(tmp_path):
    findings = fig7.EXPERIMENT.conclude([result(5.0)])
    ours = {row.figure: row.ours for row in findings.rows}
    assert ours["scenario 2, as published: alltoall, time on the tree / on HydRA"] == "1.50"
    assert ours["scenario 2, hydra: alltoall, time on the tree / on HydRA"] == "1.58"
    loops = "scenario 2: alltoall, time with a spanning tree / with loops, as published"
    assert ours[loops] == "1.25"
    assert all(row.met is not False for row in findings.rows)
    assert len(findings.tables[0].rows) == 4
    [plot] = fig7.EXPERIMENT.draw([result(5.0)], tmp_path)
    assert plot.name == "fig7.png"
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_repetitions_are_one_row_each_with_its_range(tmp_path):
    alone, both = (fig7.EXPERIMENT.conclude(runs) for runs in ([result(5.0)], REPETITIONS))
    assert [row.figure for row in both.rows] == [row.figure for row in alone.rows]
    ours = {row.figure: row.ours for row in both.rows}
    loops = "scenario 2: alltoall, time with a spanning tree / with loops, as published"
    assert ours[loops] == "1.50 (1.25 to 1.75)"
    assert both.rows[0] == alone.rows[0]
    [table] = both.tables
    assert table.title == "All runs, mean of all repetitions"
    [spanning] = [row for row in table.rows if fig7.SPANNING_TREE in row[0]]
    assert spanning[4] == "6.0"
    assert fig7.EXPERIMENT.draw(REPETITIONS, tmp_path) == [tmp_path / "fig7.png"]


def test_the_mean_of_all_repetitions_is_checked():
    told = [
        differing(fig7.EXPERIMENT.conclude(runs).rows)
        for runs in ([result(3.9), result(5.0)], [result(3.9), result(3.9), result(4.1)])
    ]
    assert told == [[], ["hydra/loops-2"]]


def test_a_spanning_tree_that_is_no_slower_shows():
    assert differing(fig7.EXPERIMENT.conclude([result(3.9)]).rows) == ["hydra/loops-2"]


def test_a_tenth_between_two_networks_is_judged_with_three_repetitions():
    slower = result(5.0, hitless_s=4.0 / 0.89)
    figure = "scenario 2, hydra: alltoall, time on the tree / on HydRA"
    verdicts = []
    for count in (1, 2, 3):
        findings = fig7.EXPERIMENT.conclude([slower] * count)
        [row] = [row for row in findings.rows if row.figure == figure]
        verdicts.append((row.met, "1.50" in row.target, "3 repetitions" in row.why))
    assert verdicts == [(None, False, True), (None, False, True), (False, True, False)]
