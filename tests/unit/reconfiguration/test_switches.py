"""Whole tables, for all switches of a rack."""

import random
from dataclasses import replace

import pytest

from hydra.failures import Failure, FailureKind
from hydra.forwarding.match_action import Port
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import (
    ROUND_RULES,
    Install,
    InstallAll,
    RemoveByCookie,
    RemoveByPort,
    constant,
    installed,
    match_key,
    matches_port,
    ports_named,
)
from hydra.model import NetworkState
from hydra.policy import CurrentPolicy, OnSilence, Policy
from hydra.reconfiguration.commands import ApplyRules, Command, HeldRules, Outcome
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, state_of
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.upkeep import SimulatedUpkeep

FABRIC = small_fabric(racks=3, planes=1, servers=2)
STATE = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1, circuit_between(FABRIC, 0, 1, 0)))


@pytest.fixture
def core():
    return SimulatedUpkeep(Network(FABRIC, STATE, random.Random(1)), STATE)


@pytest.fixture
def switches(core):
    core.switches.dead_uplinks = frozenset({"h11", "h32"})
    core.switches.added_rules = lambda datapath: [constant(RuleKind.CLASS_MICE)][: datapath % 2]
    return core.switches


def test_tables_are_the_rules_of_each_switch_with_what_a_rack_has_in_common_once(switches):
    tables = dict(switches.tables(sorted(switches.owned)))
    assert tables.keys() == switches.owned.keys()
    common = {}
    for datapath, table in tables.items():
        rules = list(installed(table))
        assert len(rules) == len(set(rules))
        of_state = switches.substrate.rules(datapath, STATE, switches.dead_uplinks)
        assert set(rules) == {*of_state, *switches.added_rules(datapath)}
        several, rounds = (one for one in table if isinstance(one, InstallAll))
        assert rounds is ROUND_RULES
        rack = FABRIC.server_by_datapath[datapath].rack
        assert common.setdefault(rack, several) is several
        assert {RuleKind.ACCOUNT_V4, RuleKind.DIVERT_NONE} <= {one.kind for one in several.rules}
    assert len(common) == 3


def test_a_switch_that_did_not_take_this_controller_is_left_alone_and_tried_again(core, caplog):
    switches = core.switches
    switches.settled = True
    first, second, *_ = sorted(switches.owned)
    course = core.courses.synchronisation.synchronise([first, second])
    next(course)
    (confirm,) = course.send([Outcome(frozenset({second}))]).commands
    assert confirm.intended.keys() == {second}
    (apply,) = course.send([Outcome(HeldRules())]).commands
    assert apply.changes.keys() == {second}
    with pytest.raises(StopIteration):
        course.send([Outcome({second: None})])
    assert f"not ours yet: {switches.owned[first]}: left alone" in caplog.text
    assert first in switches.late()
    assert second in switches.ready()


def test_who_is_ready_is_worked_out_once_until_that_changes(core, monkeypatch):
    """By connections, renewals, doubts, and synchronisations."""
    switches = core.switches
    switches.settled = True
    everybody = connected = frozenset(switches.owned)
    monkeypatch.setattr(switches._connections, "connected", lambda: connected)
    assert not switches.ready()
    core.run(core.courses.synchronisation.synchronise(everybody))
    seen = switches.ready()
    assert seen == everybody
    assert switches.ready() is seen
    first, second, third, *_ = sorted(everybody)
    switches.renewed(first)
    assert switches.ready() == everybody - {first}
    switches.doubt([second])
    assert switches.ready() == everybody - {first, second}
    connected = everybody - {third}
    assert switches.ready() == everybody - {first, second, third}
    core.run(core.courses.synchronisation.synchronise([first]))
    connected = everybody
    assert switches.ready() == everybody - {second}


def test_nothing_is_kept_of_strangers_that_connect(core):
    """Without TLS any program may connect, with another datapath id each time."""
    switches = core.switches
    stranger = max(switches.known) + 1
    for datapath in range(stranger, stranger + 100):
        switches.renewed(datapath)
    assert switches._renewed == set()


def test_of_those_that_connect_uplinks_are_looked_at_and_of_those_that_were_down(core, monkeypatch):
    """And all of them, once, if a port may have changed unobserved."""
    switches, network = core.switches, core.network
    everybody = frozenset(switches.owned)
    looked, seen = [], switches._connections.port
    monkeypatch.setattr(
        switches._connections, "port", lambda *end: (looked.append(end[0]), seen(*end))[1]
    )

    def ends(*names):
        servers = [FABRIC.server_by_name[name] for name in names]
        return {server.vswitch.datapath_id for server in servers} | {
            FABRIC.racks[server.rack].tor.datapath_id for server in servers
        }

    network.dead_uplinks.add("h11")
    core.run(core.courses.detours.follow_all())  # not settled yet: skipped
    switches.settled = True
    core.run(core.courses.synchronisation.synchronise(everybody))
    assert switches.dead_uplinks == {"h11"}
    first, second = (FABRIC.server_by_name[name].vswitch.datapath_id for name in ("h11", "h21"))
    network.dead_uplinks.clear()
    network.dead_uplinks.add("h21")
    looked.clear()
    core.run(core.courses.synchronisation.synchronise([second]))
    assert switches.dead_uplinks == {"h21"}
    assert set(looked) <= ends("h11", "h21")
    looked.clear()
    core.run(core.courses.synchronisation.synchronise([first]))
    assert switches.dead_uplinks == {"h21"}
    assert set(looked) <= ends("h11", "h21")


@pytest.mark.parametrize("on_silence", OnSilence)
def test_who_goes_around_something_dead_waits_for_no_switch_far_later_than_others(core, on_silence):
    """But only if a switch without a confirmation is cut off from circuits."""
    switches = core.switches
    switches.policy = CurrentPolicy(replace(Policy(), on_silent_vswitch=on_silence))
    switches.settled = True
    core.run(core.courses.synchronisation.synchronise(frozenset(switches.owned)))
    core.network.dead_uplinks.add("h11")
    switches._unseen_uplinks = True
    for course in (
        core.courses.detours.follow_all(),
        core.courses.failover.divert(STATE.topology.circuits),
    ):
        (command,) = next(course).commands
        assert command.changes
        assert command.hurries == (on_silence is not OnSilence.CLOSE)


def test_of_what_died_only_circuits_that_pairs_were_on_are_to_be_withdrawn(core):
    core.switches.settled = True
    core.run(core.courses.synchronisation.synchronise(frozenset(core.switches.owned)))
    (used,) = STATE.topology.circuits
    course = core.courses.failover.divert({used, circuit_between(FABRIC, 0, 2, 0)})
    (command,) = next(course).commands
    with pytest.raises(StopIteration) as ended:
        course.send([Outcome(dict.fromkeys(command.changes))])
    assert ended.value.value == {used}


def test_what_a_rack_has_in_common_is_made_once_for_switches_that_come_one_by_one(core):
    switches = core.switches
    switches.settled = True
    made = []

    def bring(datapath):
        course = core.courses.synchronisation.synchronise([datapath])
        next(course)
        course.send([Outcome(frozenset({datapath}))])
        batch = course.send([Outcome(HeldRules())])
        (command,) = batch.commands
        several, _ = (one for one in command.changes[datapath] if isinstance(one, InstallAll))
        with pytest.raises(StopIteration):
            course.send([Outcome({datapath: None})])
        made.append(several)

    for datapath in sorted(switches.owned):
        switches.renewed(datapath)
    first, second = (
        [steered.datapath for steered in switches.substrate.steering(rack.id)]
        for rack in FABRIC.racks[:2]
    )
    bring(first[0])
    bring(second[0])
    bring(first[1])
    assert made[2] is made[0] is not made[1]
    other = core.memory.state = NetworkState()
    assert other is not STATE
    bring(second[1])
    expected = switches.substrate.common_rules(second[1], other)
    assert made[3].rules == tuple(expected) != made[1].rules
    for datapath in sorted(switches.owned):
        bring(datapath)
    assert switches.all_ready
    assert not switches._common


def test_switches_that_hold_what_they_should_are_left_as_they_are():
    network = Network(FABRIC, STATE, random.Random(1))
    core = SimulatedUpkeep.at_work(network, STATE)
    switches = core.switches
    lacking, other, *_ = sorted(switches.owned)
    del network.tables[lacking][next(iter(network.tables[lacking]))]
    more = constant(RuleKind.CLASS_MICE)
    network.tables[other][match_key(more)] = more
    for datapath in switches.owned:
        switches.renewed(datapath)
    assert not switches.ready() & switches.owned.keys()
    written: list[Command | None] = []
    core.look = written.append
    before = {datapath: dict(table) for datapath, table in network.tables.items()}
    core.run(core.courses.synchronisation.synchronise(sorted(switches.owned)))
    changes = [one.changes for one in written if isinstance(one, ApplyRules)]
    assert changes[0].keys() == {lacking, other}
    assert network.tables[lacking].keys() - before[lacking].keys()
    assert match_key(more) not in network.tables[other]
    assert switches.all_ready


def test_rules_that_tell_of_rounds_stay_where_a_switch_has_them():
    """New rules have to be a second old before they signal."""
    network = Network(FABRIC, STATE, random.Random(1))
    core = SimulatedUpkeep.at_work(network, STATE)
    switches = core.switches
    first, second, *_ = sorted(switches.owned)
    switches.settled = True
    lost = ROUND_RULES.rules[3]
    del network.tables[second][match_key(lost)]
    more = constant(RuleKind.CLASS_MICE)
    for datapath in (first, second):
        network.tables[datapath][match_key(more)] = more
        switches.renewed(datapath)
    written: list[Command | None] = []
    core.look = written.append
    core.run(core.courses.synchronisation.synchronise([first, second]))
    changes = next(one.changes for one in written if isinstance(one, ApplyRules))
    told = {
        datapath: [
            rule
            for rule in installed(one for one in some if not isinstance(one, RemoveByCookie))
            if rule.kind is RuleKind.ROUND
        ]
        for datapath, some in changes.items()
    }
    assert told == {first: [], second: [lost]}
    for datapath in (first, second):
        assert match_key(more) not in network.tables[datapath]
        held = network.tables[datapath].values()
        assert {*ROUND_RULES.rules} <= {*held}


def test_a_switch_that_could_not_be_read_is_written(core):
    switches = core.switches
    switches.settled = True
    first, second, *_ = sorted(switches.owned)
    course = core.courses.synchronisation.synchronise([first, second])
    next(course)
    course.send([Outcome(frozenset({first, second}))])
    batch = course.send([Outcome(None)])
    assert batch.commands[0].changes.keys() == {first, second}


def under_way(core, *datapaths):
    """A course that synchronises these switches beside others, after a read; no switch is exact."""
    core.switches.settled = True
    for datapath in datapaths:
        core.switches.answers_again(datapath)
    course = core.courses.synchronisation.bring_beside(datapaths)
    assert next(course).step == "take"
    assert course.send([Outcome(frozenset(datapaths))]).step == "confirm"
    return course, course.send([Outcome(HeldRules())])


def brought(course, *outcomes):
    """The result of the course after these outcomes."""
    with pytest.raises(StopIteration) as ended:
        for outcome in outcomes:
            course.send([Outcome(outcome)])
    return ended.value.value


def test_a_slow_switch_is_brought_while_others_go_on(core):
    first, second, *_ = sorted(core.switches.owned)
    course, batch = under_way(core, first, second)
    assert batch.beside
    assert core.switches.slow() == core.switches.soon_ready() == {first, second}
    assert not core.switches.fresh()
    assert brought(course, {first: None, second: None}) == {first, second}
    assert core.switches.ready() == {first, second}
    assert not core.switches.slow()


def test_what_a_change_has_made_meanwhile_it_is_given_after_that_and_nothing_older(core):
    first, *_ = sorted(core.switches.owned)
    course, _ = under_way(core, first)
    core.memory.state = NetworkState(STATE.epoch + 1)
    batch = course.send([Outcome({first: None})])
    assert first not in core.switches.ready(), "it holds what the change has ended"
    expected = dict(core.switches.tables([first]))[first]
    given = batch.commands[0].changes[first]
    assert set(installed(given[1:])) == set(installed(expected))
    assert brought(course, {first: None}) == {first}


def test_a_change_that_is_none_of_its_concern_does_not_have_it_written_again(core):
    """Rules have the epochs of the changes that made them."""
    first, *_ = sorted(core.switches.owned)
    course, _ = under_way(core, first)
    core.memory.state = replace(STATE, epoch=STATE.epoch + 1)
    assert brought(course, {first: None}) == {first}


def test_what_it_should_hold_besides_may_change_meanwhile(core):
    first, *_ = sorted(core.switches.owned)
    course, _ = under_way(core, first)
    core.switches.dead_uplinks = frozenset({"h32"})
    batch = course.send([Outcome({first: None})])
    assert batch.step == "synchronise"
    assert brought(course, {first: None}) == {first}


def test_who_connects_anew_or_refuses_everything_meanwhile_is_not_brought(core):
    first, second, third, *_ = sorted(core.switches.owned)
    course, _ = under_way(core, first, second, third)
    core.switches.renewed(first)
    assert first not in core.switches.fresh(), "what it was told may be under way still"
    refused = Failure("openflow", "v", FailureKind.REFUSED, "no")
    smaller = {second: refused}
    assert brought(course, {first: None, second: refused, third: None}, smaller) == {third}
    assert core.switches.fresh() == {first}
    assert core.switches.slow() == {second}
    assert not core.switches.soon_ready(), "it has been tried"


def test_nothing_is_written_by_a_state_that_is_in_doubt(core):
    first, *_ = sorted(core.switches.owned)
    course, _ = under_way(core, first)
    core.switches.settled = False
    assert brought(course, {first: None}) == frozenset()
    assert first not in core.switches.ready()


def test_a_switch_that_restarts_while_it_is_brought_is_brought_again():
    network = Network(FABRIC, STATE, random.Random(1))
    upkeep = SimulatedUpkeep.at_work(network, STATE)
    one = FABRIC.servers[0].vswitch.datapath_id

    def restart():
        network.tables[one].clear()
        network.rules_changed(one)
        upkeep.switches.renewed(one)

    restart()
    perform = network.perform

    def once_more(batch, look):
        outcomes = perform(batch, look)
        if batch.step == "synchronise" and any(isinstance(c, ApplyRules) for c in batch.commands):
            network.perform = perform
            restart()
        return outcomes

    network.perform = once_more
    upkeep.run(upkeep.recovery.bring([one]))
    assert one not in upkeep.switches.ready(), "it holds no rules"
    upkeep.run(upkeep.recovery.bring(upkeep.switches.late()))
    assert one in upkeep.switches.ready()
    assert not list(network.differing_rules(one, STATE))


def added(changes):
    return installed([one for one in changes if isinstance(one, Install | InstallAll)])


def _refusing(core, full, kind=FailureKind.REFUSED):
    """Have a switch refuse tables with rules of circuits as long as ``full()``."""
    apply = core.network.apply_rules
    steer = {RuleKind.CIRCUIT, RuleKind.SPREAD, RuleKind.SPREAD_PATH}

    def some_refused(command):
        first = min(core.network.names)
        asked = command.changes.get(first, ())
        refuses = full() and any(rule.kind in steer for rule in added(asked))
        left = {dp: mine for dp, mine in command.changes.items() if dp != first or not refuses}
        failures, failure = yield from apply(replace(command, changes=left))
        if refuses:
            failures[first] = Failure("openflow", "h11", kind, "no room, table 5 (circuits)")
        return failures, failure

    core.network.apply_rules = some_refused
    return min(core.network.names)


@pytest.mark.parametrize("beside", [False, True])
def test_a_switch_that_refuses_rules_of_circuits_goes_electrical_until_it_takes_them(
    core, caplog, beside
):
    """For any earlier table: its traffic has a way, and the refusal is reported in words."""
    is_full = [True]
    switch = _refusing(core, lambda: is_full[0])
    core.switches.settled = True
    network, switches = core.network, core.switches
    network.tables[switch].clear()
    every = sorted(network.names)
    if beside:
        core.run_beside(core.recovery.bring_beside([switch]))
        core.finish_beside()
        assert switch in switches.ready()
    else:
        core.run(core.recovery.bring([switch]))
    sentence = "h11 refuses the rules of r1 - r2 (no room, table 5 (circuits))"
    assert {dp: str(one) for dp, one in switches.refused.items()} == {switch: sentence}
    assert caplog.text.count(sentence) == 1
    core.run(core.recovery.bring(every))
    assert switches.ready() >= set(every)
    held = {rule.kind for rule in network.tables[switch].values()}
    assert RuleKind.CIRCUIT not in held
    assert {RuleKind.ACCOUNT_V4, RuleKind.CIRCUIT_NONE, RuleKind.DIVERT_NONE} <= held
    core.run(core.recovery.bring([switch]))
    assert switches.refused.keys() == {switch}
    assert caplog.text.count(sentence) == 1, "told once"
    is_full[0] = False
    core.run(core.recovery.bring([switch]))
    assert not switches.refused
    assert not list(network.differing_rules(switch, STATE))


def test_a_switch_without_an_answer_is_not_one_that_refuses(core):
    switch = _refusing(core, lambda: True, FailureKind.UNKNOWN)
    core.switches.settled = True
    core.run(core.recovery.bring(sorted(core.network.names)))
    assert not core.switches.refused
    assert switch not in core.switches.ready()


def test_a_slow_switch_that_an_attempt_has_failed_at_is_waited_for_no_more(core):
    """On a busy machine a switch answers again and again, and each attempt takes too long: a change
    that waited for the switch would wait for ever.
    """
    is_busy = [True]
    switch = _refusing(core, lambda: is_busy[0], FailureKind.UNKNOWN)
    switches = core.switches
    switches.settled = True
    core.run(core.recovery.bring(sorted(core.network.names.keys() - {switch})))

    def attempt():
        core.run_beside(core.recovery.bring_beside([switch]))
        core.finish_beside()

    switches.answers_again(switch)
    assert switches.soon_ready() == {switch}
    attempt()
    switches.answers_again(switch)
    assert switches.soon_ready() == set()
    assert switches.slow() == {switch}, "it is tried again all the same"
    is_busy[0] = False
    attempt()
    assert switch in switches.ready()
    switches.answers_again(switch)
    assert switches.soon_ready() == {switch}


def following(core, datapath, **earlier):
    """The changes by which a switch's rules follow ports that had these numbers before."""
    core.switches.renumbered(datapath, earlier)
    course = core.courses.renumbering.follow()
    (command,) = next(course).commands
    return course, command.changes[datapath]


@pytest.fixture
def at_work():
    return SimulatedUpkeep.at_work(Network(FABRIC, STATE, random.Random(1)), STATE)


def test_rules_that_name_a_renumbered_port_follow_and_no_others(at_work):
    first, *_ = sorted(at_work.switches.owned)
    course, changes = following(at_work, first, optical=2)
    removal, *others = changes
    assert removal == RemoveByPort(2)
    assert all(Port.OPTICAL in ports_named(one.rule) for one in others)
    assert all(isinstance(one, Install) is matches_port(one.rule) for one in others)
    kinds = {one.rule.kind for one in others}
    assert {RuleKind.UPLINK_TAGGED, RuleKind.OWN_RACK_V4, RuleKind.CIRCUIT} <= kinds
    assert RuleKind.ACCOUNT_V4 not in kinds
    assert first not in at_work.switches.ready()
    with pytest.raises(StopIteration):
        course.send([Outcome({first: None})])
    assert first in at_work.switches.ready()
    assert not at_work.switches.renumbered_ports()
    assert [(port.port, port.old) for port in at_work.followed] == [("optical", (2,))]


def test_a_port_that_moves_again_meanwhile_is_followed_again(at_work):
    first, *_ = sorted(at_work.switches.owned)
    course, _ = following(at_work, first, optical=2)
    at_work.switches.renumbered(first, {"optical": 41})
    with pytest.raises(StopIteration):
        course.send([Outcome({first: None})])
    assert first not in at_work.switches.ready()
    (port,) = at_work.switches.renumbered_ports()
    assert (port.port, port.old) == ("optical", (2, 41))


def test_a_switch_that_refuses_to_follow_is_brought_as_a_whole(at_work):
    first, *_ = sorted(at_work.switches.owned)
    course, _ = following(at_work, first, optical=2)
    refused = Failure("openflow", "v", FailureKind.REFUSED, "no")
    with pytest.raises(StopIteration):
        course.send([Outcome({first: refused})])
    assert first in at_work.switches.late()
    assert at_work.switches.renumbered_ports()
    assert not at_work.followed
    at_work.run(at_work.courses.synchronisation.synchronise([first]))
    assert first in at_work.switches.ready()
    assert not at_work.switches.renumbered_ports()
    assert [(port.port, port.old) for port in at_work.followed] == [("optical", (2,))]


def test_a_switch_in_doubt_whose_port_moves_is_told_of_once_it_is_brought(at_work):
    """Like a switch that got a detour for the port's server between its loss and its return."""
    first, *_ = sorted(at_work.switches.owned)
    at_work.switches.doubt([first])
    course, _ = following(at_work, first, optical=2)
    with pytest.raises(StopIteration):
        course.send([Outcome({first: None})])
    assert not at_work.followed, "the switch may lack other rules"
    at_work.run(at_work.courses.synchronisation.synchronise([first]))
    assert [(port.port, port.old) for port in at_work.followed] == [("optical", (2,))]


def test_a_switch_that_connects_anew_before_its_rules_followed_is_told_of_until_it_is_brought(
    at_work,
):
    """The switch may have another master by now: nothing is written before mastership."""
    first, *_ = sorted(at_work.switches.owned)
    at_work.switches.renumbered(first, {"optical": 2})
    at_work.switches.renewed(first)
    with pytest.raises(StopIteration):
        next(at_work.courses.renumbering.follow())
    (port,) = at_work.switches.renumbered_ports()
    assert (port.port, port.old) == ("optical", (2,))
    at_work.run(at_work.courses.synchronisation.synchronise([first]))
    assert not at_work.switches.renumbered_ports()
    assert [(port.port, port.old) for port in at_work.followed] == [("optical", (2,))]


def test_a_port_that_has_its_old_number_again_when_its_switch_connects_is_not_told_of(at_work):
    first, *_ = sorted(at_work.switches.owned)
    number = at_work.switches._connections.port(first, "optical").number
    at_work.switches.renumbered(first, {"optical": number})
    at_work.switches.renewed(first)
    assert not at_work.switches.renumbered_ports()


def test_a_switch_that_is_just_being_brought_when_a_port_moves_is_brought_again(core):
    first, second, *_ = sorted(core.switches.owned)
    course, _ = under_way(core, first, second)
    core.switches.renumbered(first, {"host": 1})
    assert brought(course, {first: None, second: None}) == {second}
    assert first in core.switches.late()


def test_of_learning_tors_no_rule_names_a_port(at_work):
    tor = FABRIC.racks[0].tor.datapath_id
    at_work.switches.renumbered(tor, {"o1": 4})
    assert not at_work.switches.renumbered_ports()
    assert tor in at_work.switches.ready()


def test_uplinks_are_probed_once_their_tor_has_its_rules(at_work):
    """Until then the switch forwards nothing, and no uplink is blamed."""
    tor, switches = FABRIC.racks[0].tor.datapath_id, at_work.switches
    of_rack = {dp for dp, switch in switches.steering.items() if switch.rack == 0}
    assert of_rack <= switches.linked()
    switches.renewed(tor)
    assert of_rack.isdisjoint(switches.linked())
    assert switches.linked(), "those of other racks are"
    at_work.run(at_work.recovery.bring([tor]))
    assert of_rack <= switches.linked()
