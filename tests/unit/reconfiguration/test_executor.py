"""Single courses of a reconfiguration, step by step."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hydra.failures import Failure, FailureKind
from hydra.forwarding.match_action import Port
from hydra.lifecycle import ReconfigurationState
from hydra.model import NetworkState, RackId, Topology, VlanId
from hydra.policy import DrainPolicy, OnSilence, Policy
from hydra.reconfiguration import substeps
from hydra.reconfiguration.commands import (
    Announce,
    ApplyRules,
    AwaitPortsUp,
    AwaitRounds,
    Batch,
    MoveMirrors,
    Outcome,
    PassMarkers,
    Pause,
    ProbePath,
    ReadPortPackets,
    SetVlans,
    StageRules,
)
from hydra.reconfiguration.draining import markers, unshown
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import diff, without
from tests.unit.core.fabrics import (
    circuit_between,
    order_of,
    path_of,
    small_fabric,
    state_of,
    topology_of,
)
from tests.unit.reconfiguration.simulation.faults import Faults, failure_of
from tests.unit.reconfiguration.simulation.network import Network, conditions_of
from tests.unit.reconfiguration.watch import Violation, Watch

FABRIC = small_fabric(racks=4, planes=2, servers=1)
ORDER = order_of(FABRIC)
DIRECT = path_of(FABRIC, 0, 1)


def refused(command, true):
    return replace(true, failure=failure_of(command, FailureKind.REFUSED))


def start(*paths, fabric=FABRIC):
    return state_of(fabric, NetworkState(), *paths)


class Scripted(Network):
    """A network without faults, except for outcomes set by a test, by step and command."""

    def __init__(self, fabric, state):
        super().__init__(fabric, state, random.Random(1))
        self.batches: list[Batch] = []
        self.instead = {}
        """{(step, type of command): function of command and true outcome}"""

    def perform(self, batch, watch):
        self.batches.append(batch)
        outcomes = super().perform(batch, watch)
        return [
            self.instead.get((batch.step, type(command)), lambda _c, true: true)(command, outcome)
            for command, outcome in zip(batch.commands, outcomes, strict=True)
        ]

    def commands(self, kind, step=None):
        return [
            command
            for batch in self.batches
            for command in batch.commands
            if isinstance(command, kind) and step in (None, batch.step)
        ]


def execution_of(network, current, target, policy=None):
    plan = diff(network.fabric, current, target, order_of(network.fabric))
    return Execution(
        fabric=network.fabric,
        policy=policy or Policy(),
        plan=plan,
        conditions=conditions_of(network, current),
        order_of=order_of(network.fabric),
    )


def slow_reads(network, seconds, of=lambda _command: True):
    """Have readings of ports take some time."""

    def late(command, true):
        if of(command):
            network.now_s += seconds
        return replace(true, finished_s=max(true.finished_s, network.now_s))

    network.instead["drain", ReadPortPackets] = late


def test_nothing_to_do_needs_no_batch():
    state = start(DIRECT)
    network = Scripted(FABRIC, state)
    execution = Watch(network, execution_of(network, state, replace(state, epoch=9))).run()
    assert execution.state is ReconfigurationState.DONE
    assert execution.result.epoch == 9
    assert network.batches == []


def test_the_steps_of_a_reconfiguration_without_trouble():
    old = start(DIRECT)
    target = state_of(FABRIC, old, path_of(FABRIC, 0, 2))
    network = Scripted(FABRIC, old)
    execution = Watch(network, execution_of(network, old, target)).run()
    steps = [batch.step for batch in network.batches]
    assert list(dict.fromkeys(steps)) == [
        "intent",
        "divert",
        "drain",
        "move",
        "carrier",
        "announce",
        "probe",
        "activate",
    ]
    assert execution.state is ReconfigurationState.DONE
    assert execution.result == target
    assert [what for what, _ in network.journal] == ["reconfiguration intended"]
    assert execution.rules_pushed == 4  # one on each server of r1, twice; r2 and r3 once
    assert execution.ports_retagged == 3  # r1 and r3 to the new VLAN, r2 parked


def test_what_is_pushed_was_sent_while_circuits_drained():
    old = start(DIRECT)
    target = state_of(FABRIC, old, path_of(FABRIC, 0, 2))
    network = Scripted(FABRIC, old)
    Watch(network, execution_of(network, old, target)).run()
    (staged,) = network.commands(StageRules)
    (pushed,) = network.commands(ApplyRules, "move")
    assert next(b.step for b in network.batches if staged in b.commands) == "drain"
    assert staged.changes.keys() == pushed.changes.keys()
    # The fleet recognizes earlier commands by identity.
    assert all(staged.changes[dp] is mine for dp, mine in pushed.changes.items())
    assert pushed.changes


def test_a_drained_circuit_was_read_as_often_as_the_policy_says():
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    policy = Policy(drain=DrainPolicy(reads=5, interval_ms=1.0))
    Watch(network, execution_of(network, old, NetworkState(epoch=2), policy)).run()
    assert len(network.commands(ReadPortPackets)) == 5 * 2


def test_a_circuit_is_not_blamed_for_readings_that_take_long():
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    slow_reads(network, 2 * Policy().drain.bound_ms / 1000)
    execution = Watch(network, execution_of(network, old, NetworkState(epoch=2))).run()
    assert execution.state is ReconfigurationState.DONE
    assert len(network.commands(ReadPortPackets)) == Policy().drain.reads * 2


def test_frames_on_their_way_while_a_reading_takes_long_are_not_held_against_a_circuit():
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    (circuit,) = old.topology.circuits
    network.restless[circuit.a] = 2
    slow_reads(network, 2 * Policy().drain.bound_ms / 1000)
    execution = Watch(network, execution_of(network, old, NetworkState(epoch=2))).run()
    assert execution.state is ReconfigurationState.DONE


def test_a_circuit_that_carries_frames_after_the_bound_is_held_however_long_readings_take():
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    network.faults = Faults(busy_circuit=1.0)
    network.unsettle(sorted(old.topology.circuits))
    slow_reads(network, 2 * Policy().drain.bound_ms / 1000)
    execution = Watch(network, execution_of(network, old, NetworkState(epoch=2))).run()
    assert "1 circuit(s) still carried frames after the drain bound" in execution.reason
    assert network.commands(MoveMirrors) == []


def test_others_are_drained_while_a_tor_does_not_answer_and_is_not_asked_again():
    other = path_of(FABRIC, 2, 3)
    old = start(DIRECT, other)
    network = Scripted(FABRIC, old)
    silent = RackId(0)

    def reading(command, true):
        if command.rack != silent:
            return true
        network.now_s += 5.0
        return replace(true, value={}, finished_s=network.now_s)

    network.instead["drain", ReadPortPackets] = reading
    execution = Watch(network, execution_of(network, old, NetworkState(epoch=2))).run()
    assert execution.state is ReconfigurationState.DONE
    asked = [command.rack for command in network.commands(ReadPortPackets)]
    assert asked.count(silent) == 1
    assert asked.count(RackId(2)) == Policy().drain.reads


def test_a_circuit_that_never_drains_stays_and_its_pair_returns_to_it():
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    network.faults = Faults(busy_circuit=1.0)
    network.unsettle(sorted(old.topology.circuits))
    target = state_of(FABRIC, old, path_of(FABRIC, 0, 2))
    execution = Watch(network, execution_of(network, old, target)).run()
    assert execution.state is ReconfigurationState.PARTIAL
    assert execution.result.topology == old.topology
    assert network.commands(MoveMirrors) == []
    assert "1 circuit(s) still carried frames after the drain bound" in execution.reason
    assert network.sends_on(FABRIC.racks[0].servers[0], RackId(1)) == {
        (old.vlans[DIRECT], Port.OPTICAL)
    }


def silent_and_cut_off():
    """A network with a silent vswitch behind a dead uplink, and a change that takes down the
    circuit of the vswitch's server.
    """
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    silent = FABRIC.racks[1].servers[0]
    network.dead_uplinks.add(silent.name)
    target = state_of(FABRIC, old, path_of(FABRIC, 0, 2))
    execution = execution_of(network, old, target)
    network.connected.discard(silent.vswitch.datapath_id)
    return network, execution, silent


@pytest.mark.parametrize("when", ["drain", "move", "probe", "never"])
def test_a_silent_vswitch_whose_uplink_comes_back_gets_onto_no_circuit_that_goes(when):
    """While the uplink is down, the ToR is told to close the port for circuits."""
    network, execution, silent = silent_and_cut_off()
    target = execution.plan.target
    read = {"drain": ReadPortPackets, "move": MoveMirrors, "probe": ProbePath}

    def comes_back(_command, true):
        network.uplink_back(silent)
        execution.set_dead_uplinks(frozenset())
        return true

    if when in read:
        network.instead[when, read[when]] = comes_back
    Watch(network, execution).run()
    assert (when == "never") is bool(network.dead_uplinks)
    assert execution.state is ReconfigurationState.DONE
    assert execution.result == target
    assert execution.closed == network.closed == {silent.name}


def test_where_the_port_of_a_dead_uplink_can_not_be_closed_what_is_behind_it_does_not_move():
    network, execution, silent = silent_and_cut_off()
    network.instead["close", SetVlans] = refused
    Watch(network, execution).run()
    assert execution.result.topology == execution.plan.current.topology
    assert f"{silent.name} did not confirm its divert" in execution.reason
    assert network.commands(MoveMirrors) == []


def test_a_late_vswitch_behind_a_dead_uplink_is_not_closed_out():
    network, execution, silent = silent_and_cut_off()
    execution = replace(execution, hurries=True)
    awaited = frozenset({silent.vswitch.datapath_id})
    execution.conditions = replace(execution.conditions, awaited=awaited)
    Watch(network, execution).run()
    assert network.closed == set()
    assert execution.late == awaited
    assert network.commands(MoveMirrors) == []


def test_nobody_is_closed_out_of_a_rack_that_loses_no_path():
    network = Scripted(FABRIC, NetworkState())
    silent, *_ = FABRIC.racks[1].servers
    execution = execution_of(network, NetworkState(), start(DIRECT))
    execution.set_dead_uplinks(frozenset({silent.name}))
    network.connected.discard(silent.vswitch.datapath_id)
    Watch(network, execution).run()
    assert network.commands(SetVlans), "ports of the new circuit"
    assert execution.closed == network.closed == set()
    assert not execution.obstacles


def test_what_a_silent_vswitch_uses_does_not_move():
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    silent = FABRIC.racks[1].servers[0]
    execution = execution_of(network, old, state_of(FABRIC, old, path_of(FABRIC, 0, 2)))
    network.connected.discard(silent.vswitch.datapath_id)
    Watch(network, execution).run()
    assert execution.state is ReconfigurationState.PARTIAL
    assert execution.unconfirmed == {silent.name}
    assert silent.name in execution.reason
    assert execution.result.topology == old.topology


def test_a_vswitch_that_may_forward_by_what_it_cached_keeps_its_circuits():
    """The switch has confirmed its divert, and its cached flows are unknown."""
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    late = FABRIC.racks[1].servers[0]
    execution = execution_of(network, old, state_of(FABRIC, old, path_of(FABRIC, 0, 2)))

    def untold(command, true):
        assert late.vswitch.datapath_id in command.datapaths
        return replace(true, value=frozenset({late.vswitch.datapath_id}))

    network.instead["drain", AwaitRounds] = untold
    Watch(network, execution).run()
    assert execution.state is ReconfigurationState.PARTIAL
    assert network.commands(MoveMirrors) == []
    assert execution.unconfirmed == {late.name}
    assert "cached flows" in execution.reason
    assert execution.result.topology == old.topology


CLOSE = Policy(on_silent_vswitch=OnSilence.CLOSE)


def test_a_silent_vswitch_is_closed_out_where_the_policy_says_so():
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    silent = FABRIC.racks[1].servers[0]
    target = state_of(FABRIC, old, path_of(FABRIC, 0, 2))
    execution = execution_of(network, old, target, CLOSE)
    network.connected.discard(silent.vswitch.datapath_id)
    Watch(network, execution).run()
    assert execution.state is ReconfigurationState.DONE
    assert execution.result == target
    assert execution.closed == network.closed == {silent.name}
    assert execution.unconfirmed == {silent.name}


def test_a_new_path_is_proven_by_servers_that_are_not_closed_out():
    fabric = small_fabric(racks=3, planes=1, servers=2)
    closed, other, peer, _ = fabric.servers[:4]
    old = start(fabric=fabric)
    network = Scripted(fabric, old)
    target = state_of(fabric, old, path_of(fabric, 0, 1))
    execution = execution_of(network, old, target, CLOSE)
    network.closed.add(
        closed.name
    )  # its vswitch answers again, and its ToR has yet to open the port
    execution.conditions = replace(execution.conditions, closed=frozenset({closed.name}))
    Watch(network, execution).run()
    assert [probe.ends for probe in network.commands(ProbePath)] == [(other, peer)]
    assert execution.state is ReconfigurationState.DONE


@pytest.mark.parametrize("policy", [Policy(), CLOSE], ids=["hold", "close"])
def test_what_a_late_vswitch_uses_does_not_move_and_it_is_not_closed_out(policy):
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    late = FABRIC.racks[1].servers[0]

    def others_alone(command, true):
        if not command.hurries:
            return true
        failure = Failure("openflow", late.name, FailureKind.LATE, "no answer yet")
        return replace(true, value=true.value | {late.vswitch.datapath_id: failure})

    network.instead["divert", ApplyRules] = others_alone
    target = state_of(FABRIC, old, path_of(FABRIC, 0, 2))
    execution = replace(execution_of(network, old, target, policy), hurries=True)
    Watch(network, execution).run()
    assert network.closed == set()
    if policy is CLOSE:  # no port is closed for half a second
        assert execution.state is ReconfigurationState.DONE
        return
    assert execution.state is ReconfigurationState.PARTIAL
    assert execution.late == {late.vswitch.datapath_id}
    held = {path for path in old.topology.paths if 1 in (path.src, path.dst)}
    assert held <= set(execution.result.topology.paths)


def test_where_its_port_can_not_be_closed_what_it_uses_does_not_move():
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    network.instead["close", SetVlans] = refused
    silent = FABRIC.racks[1].servers[0]
    execution = execution_of(network, old, state_of(FABRIC, old, path_of(FABRIC, 0, 2)), CLOSE)
    network.connected.discard(silent.vswitch.datapath_id)
    Watch(network, execution).run()
    assert execution.state is ReconfigurationState.PARTIAL
    assert execution.result.topology == old.topology
    assert execution.closed == set()
    assert execution.unconfirmed == {silent.name, FABRIC.racks[1].name}


RELAYED = path_of(
    FABRIC, 1, 2, circuit_between(FABRIC, 0, 1), circuit_between(FABRIC, 0, 2, plane=1)
)
"""r2 to r3 through r1, over the circuit of r1 and r2."""


def test_a_probe_that_fails_costs_a_pair_beside_it_nothing():
    old = start(DIRECT)
    target = state_of(FABRIC, old, DIRECT, RELAYED)
    network = Scripted(FABRIC, old)
    network.instead["probe", ProbePath] = lambda _command, true: replace(true, value=("lost",))
    execution = Watch(network, execution_of(network, old, target)).run()
    assert set(execution.failures) == {circuit_between(FABRIC, 0, 2, plane=1)}
    assert execution.result.topology.paths == (DIRECT,)
    assert network.sends_on(FABRIC.racks[0].servers[0], RackId(1)) == {
        (old.vlans[DIRECT], Port.OPTICAL)
    }


@pytest.mark.parametrize("comes", [True, False])
def test_a_tor_that_told_of_carrier_too_early_is_waited_for_and_probed_again(comes):
    """The report was from before the move of the mirrors; carrier comes ``port_up_s`` later."""
    old = start(DIRECT)
    target = state_of(FABRIC, old, path_of(FABRIC, 0, 2))
    network = Scripted(FABRIC, old)
    policy = Policy()
    lit = []

    def carrier(command, true):
        if network.commands(ProbePath) and command.timeout_s:
            lit.append(comes)
        early = not network.commands(ProbePath)
        return replace(true, value=() if early or any(lit) else command.ports)

    network.instead |= {(step, AwaitPortsUp): carrier for step in ("carrier", "probe")}
    network.instead["probe", ProbePath] = lambda _c, true: (
        true if any(lit) else replace(true, value=("h11 to h31", "h31 to h11"))
    )
    execution = Watch(network, execution_of(network, old, target, policy)).run()
    waits = [command.timeout_s for command in network.commands(AwaitPortsUp)]
    bound_s = policy.timeouts.port_up_s
    assert waits == [bound_s, bound_s, 0.0, 0.0, bound_s, bound_s]  # at both ToRs each
    assert len(network.commands(ProbePath)) == 2
    assert (execution.result == target) is comes
    assert comes or "no probe came through" in execution.reason


def test_a_probe_that_is_lost_where_there_is_carrier_is_not_sent_again():
    old = start(DIRECT)
    target = state_of(FABRIC, old, path_of(FABRIC, 0, 2))
    network = Scripted(FABRIC, old)
    network.instead["probe", ProbePath] = lambda _c, true: replace(true, value=("h11 to h31",))
    execution = Watch(network, execution_of(network, old, target)).run()
    assert len(network.commands(ProbePath)) == 1
    assert "no probe came through" in execution.reason


def test_a_tor_that_refuses_costs_a_pair_beside_it_nothing():
    old = start(DIRECT)
    vlans = {DIRECT: old.vlans[DIRECT], RELAYED: VlanId(300)}
    target = NetworkState(old.epoch + 1, topology_of(DIRECT, RELAYED), vlans)
    network = Scripted(FABRIC, old)
    assert (
        RackId(1) in diff(FABRIC, old, target, ORDER).memberships
    )  # for the circuit that both paths use

    def refuse(command, true):
        failure = failure_of(command, FailureKind.UNKNOWN)
        return Outcome(failure=failure) if command.rack == 1 else true

    network.instead["move", SetVlans] = refuse
    execution = Watch(network, execution_of(network, old, target)).run()
    assert execution.state is ReconfigurationState.PARTIAL
    assert execution.failures == {}
    assert execution.result.topology.paths == (DIRECT,)
    assert "r2 - r3 stays electrical: r2 was not retagged (no answer)" in execution.reason


def star_of_which_one_ray_fails():
    """r1-r2, r1-r3 and r2-r1-r3 come up on one VLAN-ID; the light of r1-r3 leads elsewhere."""
    rays = [circuit_between(FABRIC, 0, 1), circuit_between(FABRIC, 0, 2, plane=1)]
    good, bad = (path_of(FABRIC, 0, far, ray) for far, ray in zip((1, 2), rays, strict=True))
    across = path_of(FABRIC, 1, 2, *rays)
    old = start()
    target = replace(
        state_of(FABRIC, old, good, bad, across),
        vlans=dict.fromkeys((good, bad, across), VlanId(100)),
    )
    network = Scripted(FABRIC, old)

    def goes_elsewhere(command, true):
        return replace(true, value=("lost",) if rays[1] in command.path.circuits else ())

    network.instead["probe", ProbePath] = goes_elsewhere
    return network, execution_of(network, old, target), good, rays[1]


def test_a_new_path_carries_nothing_while_its_vlan_is_on_a_port_whose_light_goes_elsewhere():
    network, execution, good, astray = star_of_which_one_ray_fails()
    Watch(network, execution).run()
    steps = [batch.step for batch in network.batches]
    assert steps.index("probe") < steps.index("isolate") < steps.index("activate")
    # Light led back has passed the other ToRs, too: they learn again where the servers are.
    assert steps[steps.index("isolate") + 1] == "relearn"
    (relearn,) = network.batches[steps.index("isolate") + 1].commands
    assert relearn.sent
    lanes = {(server.rack, vlan) for server, vlans in relearn.servers for vlan in vlans}
    assert lanes == {(good.src, VlanId(100)), (good.dst, VlanId(100))}
    assert execution.result.topology.paths == (good,)
    assert all(VlanId(100) not in network.vlans[end].tagged for end in astray.ends)


def test_servers_are_announced_wherever_a_retagged_port_s_vlan_leads():
    """r1-r2 goes down; r3-r4 stays on the same VLAN-ID, and no port of r3-r4 is retagged."""
    gone, stays = (
        path_of(FABRIC, a, b, circuit_between(FABRIC, a, b)) for a, b in ((0, 1), (2, 3))
    )
    old = replace(start(gone, stays), vlans=dict.fromkeys((gone, stays), VlanId(100)))
    network = Scripted(FABRIC, old)
    Watch(network, execution_of(network, old, state_of(FABRIC, old, stays))).run()
    announced = [
        (server.rack, vlan)
        for batch in network.batches
        for command in batch.commands
        if isinstance(command, Announce)
        for server, vlans in command.servers
        for vlan in vlans
    ]
    assert set(announced) == {(stays.src, VlanId(100)), (stays.dst, VlanId(100))}


def test_where_the_port_can_not_be_isolated_the_new_path_is_given_up():
    network, execution, _, astray = star_of_which_one_ray_fails()
    rack = FABRIC.ports[astray.ends[0]].rack
    network.instead["isolate", SetVlans] = lambda command, true: (
        refused(command, true) if command.rack == rack else true
    )
    Watch(network, execution).run()
    assert execution.result.topology.paths == ()


def test_a_path_may_fail_though_each_of_its_circuits_serves_others():
    hops = [circuit_between(FABRIC, 0, 1), circuit_between(FABRIC, 1, 2, plane=1)]
    old = start(DIRECT, path_of(FABRIC, 1, 2, hops[1]))
    across = path_of(FABRIC, 0, 2, *hops)
    target = state_of(FABRIC, old, *old.topology.paths, across)
    network = Scripted(FABRIC, old)
    network.instead["probe", ProbePath] = lambda _command, true: replace(true, value=("lost",))
    execution = Watch(network, execution_of(network, old, target)).run()
    assert execution.failures == {}
    assert execution.result.topology.paths == old.topology.paths
    assert execution.result.topology.circuits == old.topology.circuits
    assert "r1 - r3 stays electrical" in execution.reason


def an_old_circuit_that_goes_first():
    """r1-r2 on p1 must be down before r3-r1-r2-r4, which crosses on p2, is tagged at its ports."""
    cross = circuit_between(FABRIC, 0, 1, plane=1)
    lost = circuit_between(FABRIC, 0, 1)
    old = NetworkState(1, Topology(frozenset({lost, cross})))
    long = path_of(
        FABRIC, 2, 3, circuit_between(FABRIC, 0, 2), cross, circuit_between(FABRIC, 1, 3)
    )
    return lost, old, NetworkState(2, topology_of(long), {long: VlanId(100)})


def test_a_circuit_that_has_to_go_first_does():
    lost, old, target = an_old_circuit_that_goes_first()
    network = Scripted(FABRIC, old)
    execution = execution_of(network, old, target)
    assert execution.plan.disconnect_first == {lost}
    Watch(network, execution).run()
    moves = [batch for batch in network.batches if batch.step == "move"]
    assert moves[0].commands[0].move.disconnect == set(FABRIC.cross_connects(lost))
    assert len(moves) == 2
    assert execution.result == target


@pytest.mark.parametrize(
    "kind", [FailureKind.REFUSED, FailureKind.UNKNOWN, FailureKind.AWAITS_PEOPLE]
)
def test_nothing_is_retagged_while_a_circuit_that_goes_first_may_stand(kind):
    lost, old, target = an_old_circuit_that_goes_first()
    network = Scripted(FABRIC, old)
    truly = network.move_mirrors

    def stuck(command):
        if set(FABRIC.cross_connects(lost)) & command.move.disconnect:
            return None, failure_of(command, kind, "mirror stuck")
            yield
        return (yield from truly(command))

    network.move_mirrors = stuck
    execution = Watch(network, execution_of(network, old, target)).run()
    assert network.commands(SetVlans) == []
    assert execution.state is ReconfigurationState.PARTIAL
    assert execution.uncertain_planes == {lost.plane}
    assert lost not in execution.result.topology.circuits
    assert "had to go first" in execution.reason


def _diverts_nothing(_run):
    """Skips substep 3-1."""
    yield Batch("divert", (ApplyRules({}),))


def _looks_at_nothing(_run):
    """Skips the gate before the activation."""
    yield from ()


@pytest.mark.parametrize(
    ("step", "broken", "words"),
    [
        ("divert", _diverts_nothing, r"a mirror moves under .* may still use"),
        ("gate", _looks_at_nothing, "was not probed"),
    ],
    ids=["divert", "gate"],
)
def test_the_watch_sees_an_executor_that_forgets_a_step(monkeypatch, step, broken, words):
    monkeypatch.setattr(substeps, step, broken)
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    execution = execution_of(network, old, state_of(FABRIC, old, path_of(FABRIC, 0, 2)))
    with pytest.raises(Violation, match=words):
        Watch(network, execution).run()


LAST_HOP = circuit_between(FABRIC, 1, 2, plane=1)
BY_RELAY = path_of(FABRIC, 0, 2, *DIRECT.circuits, LAST_HOP)


def drained_ports(network):
    return {
        (command.rack, name)
        for command in network.commands(ReadPortPackets, "drain")
        for name in command.ports
    }


def ends_of(circuit):
    ports = (FABRIC.ports[end] for end in (circuit.a, circuit.b))
    return {(port.rack, port.tor_port) for port in ports}


def test_a_circuit_that_stays_is_drained_of_the_path_that_leaves_it():
    """No mirror moves; but ports leave a VLAN with frames of the diverted pair under way."""
    old = start(DIRECT, BY_RELAY)
    target = without(replace(old, epoch=2), (), [BY_RELAY])
    network = Scripted(FABRIC, old)
    execution = Watch(network, execution_of(network, old, target)).run()
    assert execution.plan.disconnect == frozenset()
    assert drained_ports(network) == ends_of(LAST_HOP), (
        "the other circuit carries a pair that stays"
    )
    assert execution.state is ReconfigurationState.DONE


HIDDEN = (DIRECT, path_of(FABRIC, 1, 2, LAST_HOP), BY_RELAY)


def lose_markers(network, from_racks=(0, 1, 2, 3)):
    def lost(command, true):
        network.now_s += command.timeout_s
        missing = tuple(one for one in command.markers if one.src.rack in from_racks)
        return replace(true, value=missing, finished_s=network.now_s)

    network.instead["drain", PassMarkers] = lost


def pauses_of(network):
    return [command.seconds for command in network.commands(Pause, "drain")]


def test_a_path_hidden_among_other_traffic_is_shown_to_be_empty_by_markers():
    old = start(*HIDDEN)
    network = Scripted(FABRIC, old)
    Watch(network, execution_of(network, old, without(replace(old, epoch=2), (), [BY_RELAY]))).run()
    assert drained_ports(network) == set()
    (passed,) = network.commands(PassMarkers, "drain")
    assert {(one.path, one.src.rack, one.dst.rack) for one in passed.markers} == {
        (BY_RELAY, 0, 2),
        (BY_RELAY, 2, 0),
    }
    assert pauses_of(network) == []


def test_a_hidden_path_over_which_no_marker_comes_is_held():
    old = start(*HIDDEN)
    network = Scripted(FABRIC, old)
    lose_markers(network)
    execution = execution_of(network, old, without(replace(old, epoch=2), (), [BY_RELAY]))
    Watch(network, execution).run()
    assert execution.result.topology == old.topology
    assert "no marker arrived" in execution.reason


def test_a_hidden_path_to_servers_that_can_not_be_asked_is_given_the_drains_bound():
    old = start(*HIDDEN)
    network = Scripted(FABRIC, old)
    network.dead_uplinks |= {
        server.name for rack in (0, 2) for server in FABRIC.racks[rack].servers
    }
    Watch(network, execution_of(network, old, without(replace(old, epoch=2), (), [BY_RELAY]))).run()
    assert network.commands(PassMarkers) == []
    assert pauses_of(network) == [Policy().drain.bound_ms / 1000]


def test_a_tor_that_stands_still_keeps_its_circuits():
    """No marker arrives, and the counters can't be read: frames may wait there."""
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    lose_markers(network, from_racks=(1,))
    network.instead["drain", ReadPortPackets] = lambda command, true: (
        replace(true, failure=failure_of(command, FailureKind.NOT_CONNECTED))
        if command.rack == 1
        else true
    )
    execution = execution_of(network, old, state_of(FABRIC, old, path_of(FABRIC, 0, 2)))
    Watch(network, execution).run()
    assert execution.state is ReconfigurationState.PARTIAL
    assert network.commands(MoveMirrors) == []
    assert execution.result.topology == old.topology


def test_counters_that_stand_still_say_nothing_of_frames_in_front_of_a_tor():
    """If the path has died unnoticed, probes find out."""
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    lose_markers(network)
    execution = execution_of(network, old, state_of(FABRIC, old, path_of(FABRIC, 0, 2)))
    Watch(network, execution).run()
    assert network.commands(MoveMirrors) == []
    assert execution.result.topology == old.topology
    assert "no marker arrived" in execution.reason


def test_without_probes_counters_that_stand_still_speak_for_a_path_that_takes_no_marker():
    """The path may be dead, without any detection."""
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    lose_markers(network)
    target = state_of(FABRIC, old, path_of(FABRIC, 0, 2))
    execution = execution_of(network, old, target)
    execution.policy = replace(execution.policy, probe_interval_s=0.0)
    assert Watch(network, execution).run().result == target


def test_no_marker_is_sent_over_a_path_that_has_died():
    old = start(DIRECT)
    network = Scripted(FABRIC, old)
    execution = execution_of(network, old, state_of(FABRIC, old, path_of(FABRIC, 0, 2)))
    execution.keep_electrical(frozenset({(RackId(0), RackId(1))}))
    Watch(network, execution).run()
    assert network.commands(PassMarkers) == []


def test_every_switch_sends_a_marker_and_every_path_is_passed_both_ways():
    fabric = small_fabric(racks=4, planes=3, servers=2)
    paths = {
        path_of(fabric, 0, 1): VlanId(100),
        path_of(fabric, 0, 2, circuit_between(fabric, 0, 2, plane=1)): VlanId(101),
    }
    paths[path_of(fabric, 0, 3, circuit_between(fabric, 0, 3, plane=2))] = VlanId(102)
    servers = {rack.id: rack.servers for rack in fabric.racks}
    found = markers(paths, (), servers, servers)
    ways = {(one.path, one.src.rack, one.dst.rack) for one in found}
    assert ways == {(path, *ends) for path in paths for ends in path.directions}
    assert {one.src.name for one in found} == {server.name for server in fabric.servers}
    assert all(paths[one.path] == one.vlan for one in found)


def test_where_no_marker_of_a_server_comes_none_of_its_paths_is_empty():
    fabric = small_fabric(racks=3, planes=2, servers=1)
    paths = {
        path_of(fabric, 0, 1): VlanId(100),
        path_of(fabric, 0, 2, circuit_between(fabric, 0, 2, plane=1)): VlanId(101),
    }
    servers = {rack.id: rack.servers for rack in fabric.racks}
    sent = markers(paths, (), servers, servers)
    one = [marker for marker in sent if marker.src.rack == 1]
    assert unshown(paths, sent, one) == {path_of(fabric, 0, 1)}
    both = [marker for marker in sent if marker.src.rack == 0]
    assert unshown(paths, sent, both) == set(paths)
    assert unshown(paths, sent, ()) == set()


def test_a_tor_that_stands_still_empties_no_path_to_servers_that_can_not_be_asked():
    """No marker is sent over such a path; but markers over the rack's other paths are missing."""
    fabric = small_fabric(racks=3, planes=2, servers=1)
    asked, unable = path_of(fabric, 0, 1), path_of(fabric, 0, 2)
    paths = {asked: VlanId(100), unable: VlanId(101)}
    servers = {rack.id: rack.servers for rack in fabric.racks}
    receivers = {rack: its for rack, its in servers.items() if rack != 2}
    sent = markers(paths, (), {rack: servers[rack] for rack in (0, 1)}, receivers)
    assert {one.path for one in sent} == {asked}
    missing = [marker for marker in sent if marker.src.rack == 0]
    assert unshown(paths, sent, missing) == {asked, unable}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_path_without_a_server_to_probe_says_nothing_of_its_fibres(when):
    network = Scripted(FABRIC, NetworkState())
    execution = execution_of(network, NetworkState(), start(DIRECT))
    (server,) = FABRIC.racks[1].servers

    def lost(command, true):
        execution.set_dead_uplinks(frozenset({server.name}))
        return replace(true, value=(f"{command.ends[0].name} to {server.name}",))

    if when == "before":
        execution.set_dead_uplinks(frozenset({server.name}))
    network.instead["probe", ProbePath] = lost
    Watch(network, execution).run()
    (circuit,) = DIRECT.circuits
    failure = execution.failures[circuit]
    assert (failure.kind, failure.reason) == (
        FailureKind.NOT_PROBED,
        "no server of r2 can be probed",
    )
    assert bool(network.commands(ProbePath)) is (when == "meanwhile")
