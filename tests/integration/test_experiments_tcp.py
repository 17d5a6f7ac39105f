"""The papers' experiments on real switches, shorter than their short form."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from rich.console import Console

from apps.traces.synthetic import SAMPLE
from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments.abu_tair import experiment as abu_tair
from mininet_scenarios.experiments.abu_tair.scenario import ELEPHANT, Case, Regime, Scale
from mininet_scenarios.experiments.cthrough import (
    fig5_scenario,
    fig6,
    fig6_scenario,
    fig8,
    fig10,
    table2_scenario,
)
from mininet_scenarios.experiments.cthrough import scenario as cthrough
from mininet_scenarios.experiments.cthrough.fig5_scenario import Fig5Plan
from mininet_scenarios.experiments.cthrough.fig8_scenario import (
    COPY,
    OUTPUT,
    READ,
    SHUFFLE,
    ended_s,
)
from mininet_scenarios.experiments.frame import Setting
from mininet_scenarios.experiments.helios import stability
from mininet_scenarios.experiments.helios.stability_scenario import Length
from mininet_scenarios.experiments.mordia import slotted_scenario
from mininet_scenarios.experiments.scaling import Rates
from mininet_scenarios.experiments.trace import experiment as trace
from mininet_scenarios.experiments.trace import scenario as trace_scenario
from mininet_scenarios.experiments.trace.scenario import Way
from mininet_scenarios.reporting.narrator import ConsoleNarrator
from mininet_scenarios.stage import building, controller_process
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.controller_process import ControllerProcess, launch_with
from mininet_scenarios.testbed.ovs import default_datapath
from mininet_scenarios.testbed.shell import run
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

from .warm import warm

pytestmark = [
    pytest.mark.takes(90),
    pytest.mark.ovs,
    pytest.mark.usefixtures("machine"),
]
rates = pytest.mark.quiet("compares rates or times with what the network could do", takes_s=95)


@pytest.fixture(autouse=True)
def warm_starts(monkeypatch):
    """For controllers started by experiments."""
    defaults = ControllerProcess.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "launch", warm().launch)
    monkeypatch.setattr(controller_process, "launch", warm().launch)


@pytest.fixture
def narrator():
    with ConsoleNarrator(Console(file=io.StringIO(), width=100), 60.0) as narrator:
        yield narrator


def test_elephants_take_the_direct_link_and_mice_do_not(tmp_path, narrator):
    scale = Scale(1 / 100, 1 / 6)
    on_demand = Case(Regime.ON_DEMAND, CycleName.HITLESS, 24)
    (run,) = abu_tair.measure(tmp_path, scale, [on_demand], narrator).runs
    assert len(run.done) == 24
    assert run.changes >= 1
    assert run.dark_frames == 0
    elephants = sum(one.size_bytes for one in run.done if one.kind == ELEPHANT)
    assert 0.3 * elephants < run.second_uplink_bytes < 1.2 * elephants


@rates
def test_a_window_of_a_trace_is_over_sooner_with_circuits(tmp_path, narrator):
    network = trace_scenario.network_of(DEFAULT_CONFIG)
    played = trace_scenario.excerpt(SAMPLE, network.racks, 1.5, 1)
    stages = [(Way.ELECTRICAL, Way.HITLESS), (Way.FULL_BISECTION,)]
    alone, circuits, whole = trace.measure(tmp_path, played, network, 1 / 400, narrator, stages)
    sizes = [Counter(one.size_bytes for one in run.done) for run in (alone, circuits, whole)]
    assert len(alone.done) == len(played.flows)
    assert sizes[0] == sizes[1] == sizes[2]
    assert alone.on_circuits_bytes == whole.on_circuits_bytes == 0
    assert circuits.on_circuits_share > 0.2
    assert circuits.changes >= 1
    assert circuits.dark_frames == 0
    assert whole.last_s < alone.last_s
    assert circuits.last_s < alone.last_s


@rates
def test_tcp_uses_a_circuit_while_it_is_there(tmp_path, narrator):
    plan = Fig5Plan(half_s=1.5, circuits=1, alone_s=1.5)
    with building.stage_of(DEFAULT_CONFIG, 0.2, tmp_path / "stage", narrator) as stage:
        run = fig5_scenario.run(stage, plan, CycleName.HITLESS, narrator)
    assert [turn.up for turn in run.turns] == [True, False]
    assert run.dark_frames == 0
    assert run.optical_mbps > 2 * run.electrical_mbps  # ten times the value, on an idle machine
    assert run.share > 0.3
    assert max(run.mbps) > 2 * run.electrical_mbps


def test_one_controller_goes_on_where_a_reload_is_enough(tmp_path, narrator):
    divert_first = {"transition": CycleName.DIVERT_FIRST.value}
    with building.stage_of(DEFAULT_CONFIG, 0.2, tmp_path / "stage", narrator) as stage:
        with stage.one_controller():
            # Slotted sharing has no schedule in the mode between the blocks.
            with stage.process({"mode": "periodic", "sharing": "slotted"}) as first:
                number = first.pid
            with stage.process(divert_first) as second:
                assert second.pid == number
            with stage.process({"max_hops": 1}) as third:
                assert third.pid != number
            assert third.running
        assert not third.running


@pytest.mark.parametrize(
    ("cycle", "steps", "others"),
    [
        (CycleName.DIVERT_FIRST, {"divert", "drain", "mirrors", "probe", "activate"}, set()),
        (CycleName.AS_PUBLISHED, {"divert", "mirrors", "activate"}, {"drain", "carrier", "probe"}),
        (CycleName.UNDIVERTED, {"mirrors", "probe", "activate"}, {"divert", "drain"}),
    ],
)
def test_a_cycle_is_played_by_a_controller_of_its_own(tmp_path, narrator, cycle, steps, others):
    with building.stage_of(DEFAULT_CONFIG, 0.2, tmp_path / "stage", narrator) as stage:
        with stage.one_controller():
            with stage.process({}, launch=launch_with(CycleName.HITLESS)) as usual:
                number = usual.pid
            with (
                stage.process(cycle.policy, launch=launch_with(cycle)) as process,
                ControllerClient(process.base_url) as client,
            ):
                assert (process.pid == number) == cycle.own
                client.reconfigure([PairDemand("r1", "r2", 15.0)], use_planes=("p1",))
                change = client.reconfigure([PairDemand("r1", "r2", 15.0)], use_planes=("p2",))
                assert client.path_between("r1", "r2").planes == ("p2",)
        done = {step.step for step in change.timeline}
        assert steps <= done
        assert done.isdisjoint(others)


@rates
def test_the_pipeline_carries_what_plain_forwarding_does(tmp_path, narrator):
    length = table2_scenario.Length(optical=2.0, electrical=2.0, unlimited=1.0, rounds=1)
    with table2_scenario.stage_of(20.0, tmp_path / "stage", narrator) as stage:
        rates = table2_scenario.rates(stage, length, narrator)
        costs = table2_scenario.costs(stage, length, narrator)
        rules = run(["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "hyv-h11"])
    mbps = {(one.network, one.protocol, one.demultiplexed): one.mbps for one in rates}
    assert len(mbps) == 8
    for (network, _, _), rate in mbps.items():
        link_mbps = 20.0 if network == table2_scenario.OPTICAL else 2.0
        assert 0.5 * link_mbps < rate < link_mbps  # 0.95, on an idle machine
    assert len(costs) == 4
    for one in costs:
        assert (one.cpu_s_per_gbit is None) == (default_datapath() == "system")
        assert one.cpu_s_per_gbit is None or one.cpu_s_per_gbit > 0
    assert rules.count("actions=") == 2  # the last transfer was a plain transfer


def test_machines_migrate_sooner_with_circuits_than_packets_alone_could(tmp_path, narrator):
    scale = cthrough.Scale(rate=1 / 50, part=1 / 32)
    case = fig6.helped("40:1", 300.0, 1.0, CycleName.HITLESS)
    (run,) = fig6.measure(tmp_path, scale, [case], narrator).runs
    assert len(run.done) == 32
    assert run.changes >= 3
    assert run.dark_frames == 0
    assert run.seconds < fig6_scenario.PAPER_ELECTRICAL_S  # 60 in the paper


def test_what_is_sorted_gets_circuits_in_turn(tmp_path, narrator):
    scale = cthrough.Scale(rate=1 / 80, part=1 / 32)
    case = fig8.helped("40:1", 100.0, 1.0, CycleName.HITLESS)
    (run,) = fig8.measure(tmp_path, scale, [case], narrator).runs
    kinds = Counter(one.kind for one in run.done)
    assert kinds == {READ: 24, SHUFFLE: 56, OUTPUT: 24, COPY: 24}
    shuffled_s = ended_s([one for one in run.done if one.kind == SHUFFLE])
    assert all(one.started_s >= shuffled_s for one in run.done if one.kind in {OUTPUT, COPY})
    assert run.changes >= 3
    assert run.dark_frames == 0


def test_ranks_get_circuits_in_turn(tmp_path, narrator):
    scale = cthrough.Scale(rate=1 / 80, part=1 / 64)
    case = fig6.helped("40:1", 100.0, 0.3, CycleName.HITLESS)
    form = fig10.Form(scale.part, 2, (case,))
    (run,) = fig10.measure(tmp_path, scale, form, narrator).runs
    assert [rank.host for rank in run.done.ranks] == [f"h{a}{b}" for a in "1234" for b in "12"]
    assert 1 < run.done.least_on_wire < 2
    assert run.changes >= 3
    assert run.dark_frames == 0


@rates
def test_circuits_follow_flows_that_shift(tmp_path, narrator):
    case = stability.Case("PStride", 2.0, CycleName.HITLESS, "EDC")
    setting = Setting(False, 1, tmp_path, Rates(2000))
    (run,) = stability.measure(setting, Length(1.0, 3), [case], narrator).runs
    assert run.changes >= 1
    assert run.dark_frames == 0
    assert min(run.series[4:]) > 0
    assert {"plan", "move", "probe"} <= run.loop_ms.keys()
    assert run.loop_ms["carrier"] > 300  # EDC takes 600 ms


def test_slots_of_a_port_are_counted_by_day_and_night(tmp_path, narrator):
    with building.stage_of(DEFAULT_CONFIG, 0.2, tmp_path / "stage", narrator) as stage:
        run = slotted_scenario.shared(
            stage, 1.0, length=slotted_scenario.Length(least_s=4, periods=1)
        )
    assert run.dark_frames == 0
    assert 0.3 < run.duty_cycle < 1
    assert 0.3 < run.formula < 1
    assert run.mbps > 0
