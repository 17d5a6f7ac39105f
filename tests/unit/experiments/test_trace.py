"""Windows of a trace on the data plane: the played traffic, and results of a repetition."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from apps.cli import hydra
from apps.process.configuration import load_configuration
from apps.traces.reading import TraceError
from apps.traces.synthetic import SAMPLE
from mininet_scenarios.experiments import load
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.experiments.trace import scenario
from mininet_scenarios.experiments.trace.experiment import Replay
from mininet_scenarios.experiments.trace.scenario import (
    CIRCUIT_MBPS,
    DEMO_ELECTRICAL_SHARE,
    DEMO_RACK_MBPS,
    DEMO_RACKS,
    STAGES,
    Run,
    Way,
    excerpt,
    network_of,
    size_factor,
    wishes,
)
from mininet_scenarios.stage.stage import ScenarioError
from mininet_scenarios.stage.transfers import Transferred
from mininet_scenarios.testbed.shipped import CONFIGS, DEFAULT_CONFIG

DEMO = network_of(DEFAULT_CONFIG)
FABRIC = load_configuration(DEFAULT_CONFIG).fabric
FACTOR = 0.004
SECONDS = {
    Way.ELECTRICAL: 4.0,
    Way.AS_PUBLISHED: 2.0,
    Way.HITLESS: 1.5,
    Way.FULL_BISECTION: 0.5,
}


@pytest.fixture
def trace(tmp_path) -> Path:
    """Six racks, windows of 10 s: the second one is the busiest on four."""
    path = tmp_path / "flows.txt"
    path.write_text(
        """\
        0 1 1000000 1
        0 1 3000000 11
        4 5 1000000 11
        0 4 9000000 11
        2 3 2000000 12.5
        5 0 1000000 25
        """
    )
    return path


def test_racks_are_folded_and_flows_of_a_coflow_joined(trace):
    played = excerpt(trace, DEMO.racks, 10.0, 1)
    assert (played.number, played.start_s, played.length_s) == (1, 10.0, 10.0)
    # Racks 4 and 5 are mapped to 0 and 1; traffic from 0 to 4 stays within a rack.
    assert played.flows == ((1.0, 0, 1, 4e6), (2.5, 2, 3, 2e6))
    assert played.coflows == 2
    assert played.busiest_rack_mbps == pytest.approx(4e6 * 8e-6 / 10)


def test_repetitions_play_the_busiest_windows_in_turn(trace):
    assert [excerpt(trace, DEMO.racks, 10.0, rank).number for rank in (1, 2, 3)] == [1, 0, 2]
    with pytest.raises(ScenarioError, match=r"3 windows of 10 s.*repeat 3 times at most"):
        excerpt(trace, DEMO.racks, 10.0, 4)
    trace.write_text("nothing\n")
    with pytest.raises(TraceError, match=r"flows\.txt:1"):
        excerpt(trace, DEMO.racks, 10.0, 1)


def test_the_busiest_rack_needs_a_set_share_of_its_circuits(trace):
    played, rate = excerpt(trace, DEMO.racks, 10.0, 1), 0.01
    wanted = wishes(played, FABRIC, size_factor(played, DEMO.rack_mbps) * rate)
    assert [(wish.begins_s, wish.kind) for wish in wanted] == [(1.0, "1.0"), (2.5, "2.5")]
    assert {wish.source[:2] for wish in wanted} == {"h1", "h3"}
    first_mbps = wanted[0].size_bytes * 8e-6 / 10
    assert first_mbps == pytest.approx(scenario.BUSIEST_SHARE * DEMO.rack_mbps * rate)
    assert wanted[1].size_bytes == pytest.approx(wanted[0].size_bytes / 2, abs=1)


def test_servers_take_transfers_in_turn():
    wanted = wishes(excerpt(SAMPLE, DEMO.racks, 10.0, 1), FABRIC, FACTOR)
    for rack in ("h1", "h2", "h3", "h4"):
        for side in ("source", "destination"):
            names = [getattr(wish, side) for wish in wanted]
            shares = [names.count(f"{rack}{server}") for server in (1, 2)]
            assert abs(shares[0] - shares[1]) <= 1


def test_full_bisection_is_an_electrical_network_of_what_circuits_carry():
    rate = 0.002
    alone = scenario.network(Way.ELECTRICAL, DEMO, rate)
    whole = scenario.network(Way.FULL_BISECTION, DEMO, rate)
    circuits = [plane["rate_mbps"] for plane in alone["planes"]]
    assert whole["planes"] == alone["planes"]
    assert {way for ways in STAGES for way in ways} == set(Way)
    on_circuits = len(FABRIC.planes) * circuits[0]
    by_packets = {  # each server has a separate electrical link
        way: len(FABRIC.racks[0].servers) * network["electrical"]["rate_mbps"]
        for way, network in (("alone", alone), ("whole", whole))
    }
    assert by_packets["whole"] == pytest.approx(on_circuits)
    assert by_packets["alone"] == pytest.approx(on_circuits * DEMO.electrical_share)


def test_the_demo_has_what_expectations_count_on():
    assert (len(DEMO.racks), DEMO.rack_mbps) == (DEMO_RACKS, DEMO_RACK_MBPS)
    assert DEMO.electrical_share == pytest.approx(DEMO_ELECTRICAL_SHARE)


@pytest.fixture
def ours(tmp_path) -> Path:
    """Three servers a rack, three circuits of a rack, a shared uplink of a tenth of a circuit."""
    path = tmp_path / "ours.yaml"
    options = ["--substrate", "single-homed-vlan", "--racks", "6", "--servers", "3"]
    words = ["init", str(path), "--emulated", "--defaults", "--planes", "3", *options]
    done = CliRunner().invoke(hydra, words)
    assert done.exit_code == 0, done.output
    return path


def test_a_fabric_of_ones_own_is_played_at_its_proportions(ours, trace):
    network = network_of(ours)
    assert (len(network.racks), network.rack_mbps) == (6, 3 * CIRCUIT_MBPS)
    assert network.electrical_share == pytest.approx(0.1 / 3)
    whole = scenario.network(Way.FULL_BISECTION, network, 0.01)
    assert whole["planes"][0]["rate_mbps"] == pytest.approx(0.01 * CIRCUIT_MBPS)
    assert whole["electrical"]["rate_mbps"] == pytest.approx(0.01 * network.rack_mbps)
    trace.write_text("r6 r2 1000 1\nr1 r2 500 1\n")
    flows = excerpt(trace, network.racks, 10.0, 1).flows
    assert {(src, dst) for _, src, dst, _ in flows} == {(5, 1), (0, 1)}


@pytest.mark.parametrize(
    ("file", "why"),
    [("one-way.yaml", "on bidirectional circuits alone"), ("leaf-spine.yaml", "has no servers or")],
)
def test_a_fabric_on_which_no_trace_can_be_played_is_refused(file, why):
    with pytest.raises(ScenarioError, match=why):
        network_of(CONFIGS / file)


def replay(seconds=SECONDS, dark_frames=0):
    played = excerpt(SAMPLE, DEMO.racks, 3.0, 1)

    def run(way: Way) -> Run:
        done = tuple(
            Transferred(
                wish.source,
                wish.destination,
                wish.size_bytes,
                wish.kind,
                wish.begins_s,
                wish.begins_s + seconds[way],
            )
            for wish in wishes(played, FABRIC, FACTOR)
        )
        return Run(way.value, done, 1000, 3, dark_frames)

    return Replay("sample.txt", Scale(250, 400.0), played, tuple(run(way) for way in Way))


def test_times_of_coflows_are_compared_and_drawn(tmp_path):
    experiment = load("trace")
    findings = experiment.conclude([replay(), replay()])
    ours = {row.figure: row.ours for row in findings.rows}
    assert [row.figure for row in findings.rows if row.met is False] == []
    figure = "circuits, hydra: mean time of a coflow, "
    assert ours[f"{figure}electrical network alone over it"] == "2.67"
    assert ours[f"{figure}over full bisection's"] == "3.00"
    windows, ways = findings.tables
    assert len(windows.rows) == 2
    assert [row[1] for row in ways.rows] == ["4.00", "2.00", "1.50", "0.50"]
    assert all(path.exists() for path in experiment.draw([replay()], tmp_path))
    assert experiment.expected_s(True) > experiment.expected_s(False) > 10


def test_circuits_that_bring_nothing_are_told():
    slow = SECONDS | {Way.HITLESS: 9.0}
    rows = load("trace").conclude([replay(slow, dark_frames=1)]).rows
    assert [row.figure for row in rows if row.met is False] == [
        "circuits, hydra: mean time of a coflow, electrical network alone over it",
        "circuits, hydra: until everything has arrived",
        "hydra: frames at dark OCS ports",
    ]
