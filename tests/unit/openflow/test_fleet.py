"""The fleet on connections in memory: switches' answers, and missing answers."""

import queue
import struct
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from apps.openflow import tables
from apps.openflow.fleet import Fleet, Question
from apps.openflow.interface import PortInfo
from drivers.codecs.openflow.messages import (
    TYPE_BARRIER_REQUEST,
    TYPE_FLOW_MOD,
    TYPE_MULTIPART_REQUEST,
    TYPE_PACKET_OUT,
    encode_flow_stats_request,
)
from drivers.codecs.openflow.rules import (
    encode_port_stats_request,
)
from drivers.codecs.openflow.statistics import decode_flow_stats
from hydra.failures import Failure, FailureKind
from hydra.forwarding.frames import probe
from hydra.forwarding.match_action import Port
from hydra.forwarding.rules import divert_rule, round_rule
from hydra.model import DatapathId, RackId, VlanId
from hydra.policy import CurrentPolicy, Policy
from hydra.reconfiguration.switches import Switches
from tests.unit.core.fabrics import small_fabric
from tests.waiting import HANGS_S, PATIENCE_S, remains, wait_until

from .fleet_switches import (
    CHANGES,
    FABRIC,
    H11,
    H21,
    NO_ANSWER,
    REFUSED,
    RULES1,
    TOR1,
    V1,
    V2,
    VSWITCH_PORTS,
    Switch,
    agrees,
    away,
    end,
    hangs_up,
    port_table,
    refusal,
    refuses,
    replies_with,
    unknown,
)

pytestmark = pytest.mark.takes(8)


def test_a_barrier_confirms_a_change(fleet):
    switch = Switch(fleet, V1, agrees)
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    kinds = [message[1] for message in switch.sent]
    assert kinds[-1] == TYPE_BARRIER_REQUEST
    assert len(kinds) == 1 + 1 + 1 + 1  # bundle opened, the rule, committed, barrier
    assert len({message[4:8] for message in switch.sent}) == 1


def test_an_error_before_the_barrier_is_the_outcome(fleet):
    Switch(fleet, V1, refuses)
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: refusal("v-h11")}


def test_a_lost_connection_leaves_the_outcome_unknown(fleet):
    Switch(fleet, V1, hangs_up)
    assert fleet.apply({V1: CHANGES}, 1.0) == {
        V1: unknown("disconnected before answering: outcome unknown")
    }
    assert fleet.connected() == frozenset()


def test_a_switch_that_reconnects_leaves_the_old_outcome_unknown(fleet):
    Switch(fleet, V1, lambda switch, _xid: Switch(fleet, V1, agrees))
    assert fleet.apply({V1: CHANGES}, 1.0)[V1].kind is FailureKind.UNKNOWN
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}


def test_no_answer_in_time_leaves_the_outcome_unknown(fleet):
    xids = []
    switch = Switch(fleet, V1, lambda _switch, xid: xids.append(xid))
    assert fleet.apply({V1: CHANGES}, 0.02) == {V1: NO_ANSWER}
    fleet.barrier_replied(switch, xids[0])  # too late: the call has ended, and nothing breaks
    fleet.error_replied(switch, xids[0], REFUSED, "late")


class Hub:
    """A thread that carries out posted functions, as the hub does."""

    def __init__(self):
        self._posted = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def post(self, function):
        self._posted.put(function)

    def _run(self):
        while (function := self._posted.get()) is not None:
            function()

    def end(self):
        self._posted.put(None)
        self._thread.join()


@pytest.fixture
def hub():
    hub = Hub()
    yield hub
    hub.end()


def test_time_counts_from_sending_and_while_answers_are_read(hub):
    fleet = Fleet(FABRIC, hub.post)

    def agrees_late(switch, xid):
        def read():
            time.sleep(0.5)  # timed: the hub is busy, and the answer is there all along
            agrees(switch, xid)

        hub.post(read)

    Switch(fleet, V1, agrees_late)
    hub.post(lambda: time.sleep(0.5))  # timed: the hub is busy before it sends
    assert fleet.apply({V1: CHANGES}, 0.1) == {V1: None}


def test_large_changes_have_more_time(fleet, monkeypatch):
    monkeypatch.setattr(tables, "_RULES_IN_TIME", 2)

    def agrees_late(switch, xid):
        threading.Timer(0.5, agrees, (switch, xid)).start()  # timed: later than a small change may

    Switch(fleet, V1, agrees_late)
    assert fleet.apply({V1: CHANGES * 40}, 0.3) == {V1: None}  # 6 s


def test_who_is_connected_is_worked_out_once_until_somebody_comes_or_goes(fleet):
    first = Switch(fleet, V1)
    seen = fleet.connected()
    assert seen == {V1}
    assert fleet.connected() is seen
    Switch(fleet, V2)
    assert fleet.connected() == {V1, V2}
    first.disconnect()
    assert fleet.connected() == {V2}


def test_a_switch_that_was_never_there_is_not_connected(fleet):
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: away("v-h11")}


def test_each_switch_has_its_own_outcome(fleet):
    Switch(fleet, V1, agrees)
    Switch(fleet, V2, refuses)
    outcome = fleet.apply({V1: CHANGES, V2: CHANGES, TOR1: CHANGES}, 1.0)
    assert outcome == {V1: None, V2: refusal("v-h21"), TOR1: away("r1")}


@pytest.mark.quiet("tells one time-out from two")
def test_a_silent_switch_keeps_others_waiting_as_little_as_a_limit_on_requests(monkeypatch):
    monkeypatch.setattr("apps.openflow.asking._UNDER_WAY", 2)
    monkeypatch.setattr("apps.openflow.asking._SENT_TOGETHER", 1)
    fabric = small_fabric(racks=5, planes=1, servers=1)
    fleet = Fleet(fabric, lambda function: function())
    silent, *others = [server.vswitch.datapath_id for server in fabric.servers]
    asked = []
    Switch(fleet, silent, lambda switch, _xid: asked.append(switch.datapath))

    def answer(switch, xid):
        asked.append(switch.datapath)
        assert sum(one.datapath == switch.datapath for one in fleet._pending.values()) == 1
        assert len(fleet._pending) <= 2
        fleet.statistics_replied(switch, xid, b"", more=False)

    for datapath in others:
        Switch(fleet, datapath, answer)
    started_s = time.monotonic()
    answers = [datapath for datapath, _, _ in fleet.rule_tables([silent, *others], 2.0)]
    assert time.monotonic() - started_s < 4.0
    assert answers == others
    assert asked == [silent, *others]
    assert not fleet._pending
    assert fleet.connected() == {silent, *others}, "a table that takes long to read is no reason"


def test_a_silent_switch_keeps_no_table_of_others_from_a_look_in_a_hurry(fleet):
    """The switch gets no new request before its answer: only one request stays open."""
    silent, _ = Switch(fleet, V1), Switch(fleet, V2, replies_with(b""))

    def look():
        return [datapath for datapath, *_ in fleet.rule_tables([V1, V2], PATIENCE_S, hurries=True)]

    began_s = time.monotonic()
    assert [look(), look()] == [[V2], [V2]]
    assert time.monotonic() - began_s < HANGS_S
    assert len(silent.sent) == 1
    silent.disconnect()
    assert not fleet._pending
    Switch(fleet, V1, replies_with(b""))
    assert look() == [V1, V2]


def test_a_switch_whose_table_takes_long_to_read_is_waited_for_from_its_first_answer_on():
    """Otherwise no audit would ever read its table."""
    answers, looks = [], []

    def catch_up(tell):
        looks.append(tell)
        if answers and len(looks) % 3 == 0:  # within a second, and after the gap
            answers.pop()()
        tell()

    fleet = Fleet(FABRIC, lambda function: function(), catch_up=catch_up)

    def late(switch, xid):
        answers.append(lambda: fleet.statistics_replied(switch, xid, b"", more=False))

    Switch(fleet, V1, late)
    Switch(fleet, V2, replies_with(b""))

    def look():
        # timed: looks of half a second each
        tables = fleet.rule_tables([V1, V2], timeout_s=10.0, hurries=True)
        return [datapath for datapath, *_ in tables]

    assert look() == [V2]
    answers.pop()()
    looks.clear()
    assert look() == [V2, V1]
    assert len(looks) == 3, "of half a second each"


def test_any_number_of_switches_that_are_away_hide_none(fleet):
    Switch(fleet, V1, agrees)
    away = range(1_000, 2_000)
    answers = fleet.apply({**dict.fromkeys(away, CHANGES), V1: CHANGES}, 0.5)
    assert [datapath for datapath, failure in answers.items() if failure is None] == [V1]
    assert len(answers) == len(away) + 1


def test_another_switchs_answer_is_not_taken(fleet):
    other = Switch(fleet, V2)
    Switch(fleet, V1, lambda _switch, xid: fleet.barrier_replied(other, xid))
    assert fleet.apply({V1: CHANGES}, 0.02) == {V1: NO_ANSWER}


def test_the_end_of_an_old_connection_is_ignored(fleet):
    old = Switch(fleet, V1, agrees)
    Switch(fleet, V1, agrees)
    old.disconnect()
    assert fleet.connected() == {V1}
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}


def test_rules_carry_the_switchs_own_port_numbers(fleet):
    switch = Switch(fleet, V1, agrees)
    fleet.apply({V1: CHANGES}, 1.0)
    electrical = VSWITCH_PORTS[6].number
    assert electrical.to_bytes(4, "big") in switch.sent[1]


def test_missing_ports_are_named(fleet):
    assert fleet.missing_ports(V1) == ()
    switch = Switch(fleet, V1, ports=port_table("host"))
    assert fleet.missing_ports(V1) == ("optical", "electrical")
    fleet.port_changed(V1, switch, PortInfo(9, "optical", True), deleted=False)
    assert fleet.missing_ports(V1) == ("electrical",)
    fleet.port_changed(V1, switch, PortInfo(9, "optical", True), deleted=True)
    assert fleet.missing_ports(V1) == ("optical", "electrical")


def test_those_who_watch_are_told(fleet):
    seen = []
    fleet.watch(
        seen.append,
        lambda datapath, port: seen.append((datapath, port.name, port.up)),
        seen.append,
        seen.append,
    )
    switch = Switch(fleet, V1)
    fleet.port_changed(V1, switch, PortInfo(5, "optical", False), deleted=False)
    fleet.port_changed(V2, switch, PortInfo(5, "optical", False), deleted=False)  # not connected
    assert seen == [V1, (V1, "optical", False)]
    assert fleet.port(V1, "optical") == PortInfo(5, "optical", False)
    assert fleet.port(V2, "optical") is None


def test_a_port_that_a_switch_has_not_is_down(fleet):
    seen = []
    fleet.watch(lambda _: None, lambda *told: seen.append(told), lambda _: None, lambda _: None)
    switch = Switch(fleet, V1)
    assert fleet.port(V1, "optical").up
    assert not fleet.port(V1, "other").up
    fleet.port_changed(V1, switch, PortInfo(5, "optical", True), deleted=True)
    assert seen == [(V1, PortInfo(5, "optical", False))]
    assert not fleet.port(V1, "optical").up
    fleet.port_changed(V1, switch, PortInfo(9, "optical", True), deleted=False)
    assert fleet.port(V1, "optical").up
    fleet.switch_disconnected(V1, switch)
    assert fleet.port(V1, "optical") is None


def test_what_ends_in_a_deleted_port_is_dead(fleet):
    """A circuit at its ToR, an uplink at either end; a missing switch reports nothing."""
    switches = Switches(
        fabric=FABRIC, policy=CurrentPolicy(Policy()), memory=None, connections=fleet
    )
    (optical,) = (port for port in FABRIC.ports if port.rack == H11.rack)
    tor_ports = port_table(optical.tor_port, H11.tor_port)
    assert not switches.is_dark(optical.id)
    assert not switches._uplink_down(H11)
    tor, vswitch = Switch(fleet, TOR1, ports=tor_ports), Switch(fleet, V1)
    assert not switches.is_dark(optical.id)
    assert not switches._uplink_down(H11)
    for switch, port in ((tor, tor_ports[5]), (vswitch, VSWITCH_PORTS[5])):
        fleet.port_changed(switch.datapath, switch, port, deleted=True)
        assert switches._uplink_down(H11)
        fleet.port_changed(switch.datapath, switch, port, deleted=False)
        assert not switches._uplink_down(H11)
    fleet.port_changed(TOR1, tor, tor_ports[4], deleted=True)
    assert switches.is_dark(optical.id)
    assert not switches._uplink_down(H11)
    tor.disconnect()
    assert not switches.is_dark(optical.id)


def test_strangers_are_no_switches_of_the_fabric(fleet):
    """Such switches may name one of several controllers, which could not hand over because of
    them.
    """
    Switch(fleet, V1)
    stranger = Switch(fleet, DatapathId(0xDEAD))
    assert fleet.connected() == {V1, stranger.datapath}
    assert fleet.own_connected() == {V1}
    Switch(fleet, TOR1)
    assert fleet.own_connected() == {V1, TOR1}


def test_a_stranger_is_logged_once_and_not_any_number_of_them(fleet, caplog):
    Switch(fleet, V1)
    Switch(fleet, TOR1)
    assert caplog.messages == []
    for _ in range(2):
        Switch(fleet, DatapathId(0xDEAD)).disconnect()
    (told,) = caplog.messages
    assert "datapath id 0x000000000000dead, connected from 192.0.2.1:6653" in told
    assert told.endswith("there or in the configuration")
    for number in range(1000):
        Switch(fleet, DatapathId(0xBEEF0000 + number)).disconnect()
    assert len(caplog.messages) == 100
    assert caplog.messages[-1].endswith("; further switches are not logged")


def test_names_of_ports_do_not_pile_up(fleet, monkeypatch):
    """A port has one name; and a switch has at most the ports allowed at its connection."""
    monkeypatch.setattr("apps.openflow.switch.MOST_PORTS", 100)
    switch = Switch(fleet, V1)
    names = fleet._switches[V1].names
    for number in range(50):
        fleet.port_changed(V1, switch, PortInfo(4, f"p{number}", True), deleted=False)
    assert sorted(names) == ["electrical", "optical", "p49"]
    assert not fleet.port(V1, "host").up
    for number in range(100, 300):
        fleet.port_changed(V1, switch, PortInfo(number, f"q{number}", True), deleted=False)
    assert len(names) == 100
    fleet.port_changed(V1, switch, PortInfo(5, "optical", False), deleted=False)
    assert fleet.port(V1, "optical") == PortInfo(5, "optical", False), "known ones go on"


# -- statistics -------------------------------------------------------------------------------


def flow_entry(cookie, packets, octets):
    return struct.pack("!H22xQQQHHxxxx", 56, cookie, packets, octets, 1, 4)


def port_entry(number, rx, tx):
    return struct.pack("!Ixxxx12QII", number, rx, tx, 10 * rx, 10 * tx, *(0,) * 8, 0, 0)


def test_statistics_in_several_parts_are_put_together(fleet):
    Switch(fleet, V1, replies_with(flow_entry(1, 2, 3) + flow_entry(4, 5, 6), flow_entry(7, 8, 9)))
    asked = fleet.ask_for_counters([RULES1, Question(V2, 1)])
    assert list(asked) == [RULES1]
    counters = decode_flow_stats(asked[RULES1].result())
    assert counters.cookie.tolist() == [1, 4, 7]
    assert counters.bytes.tolist() == [3, 6, 9]


def test_vswitches_are_asked_for_rules_and_tors_for_ports(fleet):
    vswitch, tor = Switch(fleet, V1), Switch(fleet, TOR1, ports=port_table("o1"))
    fleet.ask_for_counters([RULES1, Question(TOR1, None)])
    xids = [struct.unpack_from("!I", one.sent[0], 4)[0] for one in (vswitch, tor)]
    assert vswitch.sent == [encode_flow_stats_request(1, 0, 0, xids[0])]
    assert tor.sent == [encode_port_stats_request(xids[1])]


def test_an_answer_that_was_given_up_is_passed_over(fleet):
    switch = Switch(fleet, V1)
    (future,) = fleet.ask_for_counters([RULES1]).values()
    fleet.give_up([future])
    xid = struct.unpack_from("!I", switch.sent[0], 4)[0]
    fleet.statistics_replied(switch, xid, flow_entry(1, 2, 3), more=False)
    assert not future.done()


def test_a_reply_without_end_is_refused(fleet):
    switch = Switch(fleet, V1)
    (future,) = fleet.ask_for_counters([RULES1]).values()
    xid = struct.unpack_from("!I", switch.sent[0], 4)[0]
    for _ in range(5):
        fleet.statistics_replied(switch, xid, bytes(15 << 20), more=True)
    fleet.statistics_replied(switch, xid, b"", more=False)
    failure = future.result()
    assert failure.kind is FailureKind.MALFORMED
    assert str(failure) == "statistics of more than 64 MiB"


def test_a_switch_that_refuses_a_question_is_not_waited_for(fleet):
    """No barrier follows: the error is the only reply."""

    def refuses_alone(switch, xid):
        switch.fleet.error_replied(switch, xid, REFUSED, "OpenFlow error type 4, code 2")

    Switch(fleet, V1, refuses_alone)
    began_s = time.monotonic()
    assert fleet.port_packets([V1], PATIENCE_S) == {V1: None}
    assert fleet.rule_counters([V1], 0, 0, PATIENCE_S) == {V1: None}
    assert list(fleet.rule_tables([V1], PATIENCE_S)) == []
    assert fleet.meter_counters([V1], PATIENCE_S) == {}
    (asked,) = fleet.ask_for_counters([RULES1]).values()
    assert asked.result() == refusal("v-h11")
    assert time.monotonic() - began_s < HANGS_S
    assert not fleet._pending


def test_a_switch_that_goes_leaves_no_question_open(fleet):
    switch = Switch(fleet, V1)
    (future,) = fleet.ask_for_counters([RULES1]).values()
    switch.disconnect()
    assert future.result() == unknown("disconnected before answering: outcome unknown")


@pytest.mark.parametrize("body", [b"short", bytes(56)])
def test_malformed_statistics_are_no_counters(fleet, body):
    Switch(fleet, V1, replies_with(body))
    assert fleet.port_packets([V1], 1.0) == {V1: None}


def test_port_counters_are_given_by_name(fleet):
    Switch(fleet, TOR1, replies_with(port_entry(4, 1, 2), port_entry(99, 3, 4)), port_table("o1"))
    (counters,) = fleet.port_packets([TOR1], 1.0).values()
    assert {name: (c.rx_packets, c.tx_bytes) for name, c in counters.items()} == {"o1": (1, 20)}


# -- waiting for ports ------------------------------------------------------------------------


def described(*names, up=True):
    """Body of a reply that describes ports, numbered from 4 as by ``port_table``."""
    return b"".join(
        struct.pack("!I4x6s2x16sII24x", number, bytes(6), name.encode(), 0, 0 if up else 1)
        for number, name in enumerate(names, start=4)
    )


class Tor(Switch):
    """The ports may differ from the earlier reports; ``says``: answers to requests, the last from
    then on.
    """

    def __init__(self, fleet, *says, ports):
        self.says = deque(says)
        super().__init__(fleet, TOR1, tell, ports)

    @property
    def questions(self):
        return [message[1] for message in self.sent]


def tell(tor, xid):
    if tor.questions[-1] == TYPE_BARRIER_REQUEST:
        agrees(tor, xid)
    elif tor.says:
        says = tor.says.popleft() if len(tor.says) > 1 else tor.says[0]
        tor.fleet.statistics_replied(tor, xid, says, more=False)


def test_ports_that_are_up_need_no_wait_but_for_a_question(fleet):
    tor = Tor(fleet, described("o1", "o2"), ports=port_table("o1", "o2"))
    assert fleet.await_ports_up(TOR1, ["o1", "o2"], PATIENCE_S) == ()
    assert tor.questions == [TYPE_BARRIER_REQUEST, TYPE_MULTIPART_REQUEST]


def test_without_time_to_wait_what_a_switch_told_counts(fleet):
    tor = Tor(fleet, ports=port_table("o1"))
    assert fleet.await_ports_up(TOR1, ["o1", "o2"], 0.0) == ("o2",)
    assert tor.sent == []


def test_ports_that_stay_down_or_unknown_are_named(fleet):
    Switch(fleet, TOR1, ports=port_table("o1", up=False))
    assert fleet.await_ports_up(TOR1, ["o1", "o2"], 0.02) == ("o1", "o2")
    assert fleet.await_ports_up(V2, ["o1"], 0.02) == ("o1",)


@pytest.mark.parametrize("says", [(), (b"short",)])
def test_a_switch_that_does_not_describe_its_ports_has_none_that_are_up(fleet, says):
    Tor(fleet, *says, ports=port_table("o1"))
    assert fleet.await_ports_up(TOR1, ["o1"], 0.02) == ("o1",)


def test_a_switch_that_answers_nothing_has_no_port_that_is_up(fleet):
    Switch(fleet, TOR1, ports=port_table("o1"))
    assert fleet.await_ports_up(TOR1, ["o1"], 0.02) == ("o1",)


def test_a_port_that_comes_up_ends_the_wait(fleet):
    tor = Tor(fleet, described("o1"), ports=port_table("o1", up=False))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fleet.await_ports_up, TOR1, ["o1"], PATIENCE_S)
        assert remains(lambda: not waiting.done())
        fleet.port_changed(TOR1, tor, PortInfo(4, "o1", True), deleted=False)
        assert waiting.result(timeout=PATIENCE_S) == ()


def test_what_was_told_before_does_not_count(fleet):
    """Mirrors have moved, and no read has shown yet that the port went down and came up again."""
    tor = Tor(fleet, described("o1", up=False), described("o1"), ports=port_table("o1"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fleet.await_ports_up, TOR1, ["o1"], PATIENCE_S)
        assert remains(lambda: not waiting.done())
        for up in (False, True):
            fleet.port_changed(TOR1, tor, PortInfo(4, "o1", up), deleted=False)
        assert waiting.result(timeout=PATIENCE_S) == ()


# -- frames and probes ------------------------------------------------------------------------


def test_frames_go_out_of_the_named_port(fleet):
    switch = Switch(fleet, V1)
    fleet.send_frames({V1: [(Port.OPTICAL, b"x" * 60)], V2: [(Port.OPTICAL, b"y" * 60)]})
    (message,) = switch.sent
    assert message[1] == TYPE_PACKET_OUT
    assert message.endswith(b"x" * 60)
    assert struct.unpack_from("!I", message, 28) == (5,)


def test_a_frame_for_a_port_that_is_missing_is_not_sent(fleet):
    switch = Switch(fleet, V1, ports=port_table("host"))
    fleet.send_frames({V1: [(Port.OPTICAL, b"x" * 60)]})
    assert switch.sent == []


def test_a_switch_that_owes_an_answer_is_asked_nothing_until_it_gives_one(fleet):
    heard = []

    def hear(datapath: DatapathId) -> None:
        heard.append((datapath, fleet.connected()))

    fleet.watch(lambda _new: None, lambda *_port: None, hear, hear)
    switch = Switch(fleet, V1)
    assert fleet.apply({V1: CHANGES}, 0.02) == {V1: NO_ANSWER}
    assert (fleet.connected(), fleet.mute()) == (frozenset(), {V1})
    asked = list(switch.sent)
    silent = Failure("openflow", "v-h11", FailureKind.LATE, "does not answer")
    assert fleet.apply({V1: CHANGES}, 60.0) == {V1: silent}
    assert switch.sent == asked
    assert asked[-1][1] == TYPE_BARRIER_REQUEST
    fleet.barrier_replied(switch, struct.unpack_from("!I", asked[-1], 4)[0])
    assert (fleet.connected(), fleet.mute()) == ({V1}, frozenset())
    # The fleet knows that the switch is late before the request.
    assert heard == [(V1, frozenset()), (V1, {V1})]
    switch.answer = agrees
    assert fleet.apply({V1: CHANGES}, 60.0) == {V1: None}


def test_a_switch_that_owes_an_answer_and_connects_anew_is_there(fleet):
    late: list[DatapathId] = []
    fleet.watch(lambda _new: None, lambda *_port: None, late.append, late.append)
    switch = Switch(fleet, V1)
    assert fleet.apply({V1: CHANGES}, 0.02) == {V1: NO_ANSWER}
    switch.disconnect()
    Switch(fleet, V1, agrees)
    assert (fleet.connected(), fleet.mute(), late) == ({V1}, frozenset(), [])
    assert fleet.apply({V1: CHANGES}, 60.0) == {V1: None}


@pytest.mark.parametrize("late", [1, 2])
def test_one_of_very_many_is_not_waited_for_by_who_hurries(late):
    """Two of 24 are more than a twentieth: the fleet waits for them."""
    fabric = small_fabric(racks=2, planes=1, servers=12)
    fleet = Fleet(fabric, lambda job: job())
    datapaths = [server.vswitch.datapath_id for server in fabric.servers]
    for number, datapath in enumerate(datapaths):
        Switch(fleet, datapath, None if number < late else agrees)
    changes = dict.fromkeys(datapaths, CHANGES)
    started_s = time.monotonic()
    found = fleet.apply(changes, PATIENCE_S if late == 1 else 1.5, hurries=True)
    assert time.monotonic() - started_s < HANGS_S
    kind = FailureKind.LATE if late == 1 else FailureKind.UNKNOWN
    assert [found[one] and found[one].kind for one in datapaths] == [kind] * late + [None] * (
        24 - late
    )


def test_many_late_ones_keep_nobody_from_being_asked(monkeypatch):
    """There are more of them than a single request may have, and they come first."""
    monkeypatch.setattr("apps.openflow.asking._UNDER_WAY", 4)
    monkeypatch.setattr("apps.openflow.asking._SENT_TOGETHER", 1)
    fabric = small_fabric(racks=2, planes=1, servers=60)
    fleet = Fleet(fabric, lambda job: job())
    datapaths = [server.vswitch.datapath_id for server in fabric.servers]
    for number, datapath in enumerate(datapaths):
        Switch(fleet, datapath, None if number < 6 else agrees)
    started_s = time.monotonic()
    found = fleet.apply(dict.fromkeys(datapaths, CHANGES), HANGS_S + 10, hurries=True)
    assert time.monotonic() - started_s < HANGS_S
    assert [one for one in datapaths if found[one] is None] == datapaths[6:]
    assert {found[one].kind for one in datapaths[:6]} == {FailureKind.LATE}


def test_who_is_not_given_its_time_is_not_set_aside(fleet):
    """As by a master that counts generations, twice a second."""
    Switch(fleet, V1)
    assert fleet.become_master({V1: 1}, 0.02) == {V1: NO_ANSWER}
    assert (fleet.connected(), fleet.mute()) == ({V1}, frozenset())


@pytest.mark.parametrize("of", [Fleet.become_master, Fleet.generations])
def test_a_takeover_does_not_wait_for_a_switch_far_later_than_most(of):
    """One of four. The switch is skipped until it answers."""
    fabric = small_fabric(racks=2, planes=1, servers=2)
    fleet = Fleet(fabric, lambda job: job())
    silent, *others = (server.vswitch.datapath_id for server in fabric.servers)
    switch = Switch(fleet, silent)
    for datapath in others:
        Switch(fleet, datapath, agrees)
    started_s = time.monotonic()
    found = of(fleet, dict.fromkeys([silent, *others], 1), PATIENCE_S, hurries=True)
    assert time.monotonic() - started_s < HANGS_S
    assert found[silent].kind is FailureKind.LATE
    assert not any(isinstance(found[one], Failure) for one in others)
    assert (fleet.connected(), fleet.mute()) == (set(others), {silent})
    fleet.barrier_replied(switch, struct.unpack_from("!I", switch.sent[-1], 4)[0])
    assert fleet.connected() == {silent, *others}


def test_a_takeover_waits_for_switches_as_long_as_none_has_answered(fleet):
    Switch(fleet, V1)
    Switch(fleet, V2)
    started_s = time.monotonic()
    found = fleet.become_master({V1: 1, V2: 1}, 1.5, hurries=True)
    assert time.monotonic() - started_s >= 1.4
    assert {one.kind for one in found.values()} == {FailureKind.UNKNOWN}


def test_a_switch_that_does_not_answer_is_waited_for_as_one_that_is_away(fleet):
    Switch(fleet, V1)
    fleet.apply({V1: CHANGES}, 0.02)
    began_s = time.monotonic()
    fleet.await_connected([V1], 0.1)
    assert time.monotonic() - began_s >= 0.1


class Moment:
    """Replaces the module ``time``: a monotonic clock set by the test."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def moment(monkeypatch):
    moment = Moment()
    monkeypatch.setattr("apps.openflow.switchboard.time", moment)
    return moment


def test_what_has_been_away_while_a_controller_stood_by_is_not_waited_for(fleet, moment):
    """As at a takeover: a vswitch that is off, or a rack that does not exist yet."""
    fleet.note_listening()
    switch = Switch(fleet, V1)
    moment.now += 100.0
    assert fleet.expected([V1, V2], 5.0, moment.now) == {}
    fleet.switch_disconnected(V1, switch)
    moment.now += 2.0
    assert fleet.expected([V1, V2], 5.0, moment.now) == {V1: moment.now + 3.0}, "it may come back"
    moment.now += 4.0
    assert fleet.expected([V1, V2], 5.0, moment.now) == {}
    fleet.await_connected([V1, V2], 5.0)  # returns: by this clock, no time would ever pass


def test_what_could_not_have_come_yet_has_its_time(fleet, moment):
    """As at a start; and if workers report switches only once a controller leads."""
    assert fleet.expected([V1], 5.0, moment.now - 1.0) == {V1: moment.now + 4.0}
    fleet.note_listening()
    assert fleet.expected([V1], 5.0, moment.now) == {V1: moment.now + 5.0}
    Switch(fleet, V1)
    assert fleet.expected([V1], 5.0, moment.now) == {}


def test_a_probe_is_known_by_its_nonce(fleet):
    first, second = fleet.expect_probe(1), fleet.expect_probe(2)
    switch = Switch(fleet, V2)
    fleet.packet_received(V2, switch, probe(H11.mac, H21.mac, VlanId(100), 2))
    fleet.packet_received(V2, switch, probe(H11.mac, H21.mac, VlanId(100), 2))
    fleet.packet_received(V2, switch, b"anything else")
    assert second.done()
    assert not first.done()
    for nonce in (1, 2):
        fleet.forget_probe(nonce)
    fleet.packet_received(V2, switch, probe(H11.mac, H21.mac, VlanId(100), 1))
    assert not first.done()


# -- cached flows -------------------------------------------------------------------------------


def rules_to_end(switch):
    """Numbers of the round rules that a switch was asked to expire, in order."""
    frames = [message[40:] for message in switch.sent if message[1] == TYPE_PACKET_OUT]
    return [int.from_bytes(frame[14 + 20 + 2 : 14 + 20 + 4], "big") for frame in frames]


def test_a_switch_has_looked_at_its_flows_when_three_rules_have_ended_one_after_the_other(fleet):
    switch = Switch(fleet, V1)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(fleet.await_rounds, (V1, V2), PATIENCE_S)
        for looks in (1, 2, 3):
            wait_until(lambda looks=looks: len(rules_to_end(switch)) >= looks)
            assert not late.done()
            number = rules_to_end(switch)[-1]
            end(fleet, switch, number - 1)  # a rule given up by an earlier wait
            assert len(rules_to_end(switch)) == looks
            end(fleet, switch, number)
        assert late.result() == {V2}, "which is not connected"
    assert len(set(rules_to_end(switch))) == 3
    assert switch.sent[-1][1] == TYPE_FLOW_MOD, "the last one is put back, too"


def test_two_may_wait_for_a_switch_to_have_looked_and_each_is_told(fleet):
    """As two simultaneous changes, which steer different pairs by the same switch."""
    switch = Switch(fleet, V1)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(fleet.await_rounds, (V1,), PATIENCE_S)
        wait_until(lambda: len(rules_to_end(switch)) == 1)
        end(fleet, switch, rules_to_end(switch)[-1])
        second = pool.submit(fleet.await_rounds, (V1,), PATIENCE_S)
        wait_until(lambda: len(rules_to_end(switch)) == 3)
        for looks in (1, 2, 3):
            assert first.done() <= (looks > 2), "it has seen one look more"
            assert not second.done()
            end(fleet, switch, rules_to_end(switch)[-1])
            if looks == 2:
                assert first.result(PATIENCE_S) == frozenset()
        assert second.result(PATIENCE_S) == frozenset()
    assert len(rules_to_end(switch)) == 5


def test_a_wait_whose_time_was_up_asks_for_no_more_looks(fleet):
    switch = Switch(fleet, V1)
    assert fleet.await_rounds((V1,), 0.01) == {V1}
    end(fleet, switch, rules_to_end(switch)[-1])
    assert len(rules_to_end(switch)) == 1


def test_the_end_of_a_rule_of_others_is_left_alone(fleet):
    """Its cookie may have any value, as may a stranger's messages; the fleet stores nothing of
    them.
    """
    switch, tor, stranger = (
        Switch(fleet, V1),
        Switch(fleet, TOR1),
        Switch(fleet, DatapathId(0xDEAD)),
    )
    for cookie in (
        0,
        7,
        0x1_0000,
        2**64 - 1,
        round_rule(3).cookie + 12,
        divert_rule(RackId(1), 1).cookie,
    ):
        fleet.rule_ended(V1, switch, cookie)
    for one in (tor, stranger):
        end(fleet, one, 3)
    assert switch.sent + tor.sent + stranger.sent == []
    end(fleet, switch, 3)
    assert len(switch.sent) == 1


def test_a_switch_that_does_not_tell_is_late(fleet):
    Switch(fleet, V1)
    assert fleet.await_rounds((V1,), 0.01) == {V1}


def test_many_callers_at_once_each_get_their_own_answer():
    """Answers come from another thread, as the hub's do, in any order."""
    mailbox, wake = deque(), threading.Event()
    fleet = Fleet(FABRIC, post=lambda function: (mailbox.append(function), wake.set()))
    stopping = threading.Event()

    def hub():
        while not stopping.is_set():
            wake.wait(0.01)
            wake.clear()
            while mailbox:
                mailbox.popleft()()

    thread = threading.Thread(target=hub)
    thread.start()
    try:
        Switch(fleet, V1, agrees)
        Switch(fleet, V2, refuses)
        with ThreadPoolExecutor(8) as pool:
            outcomes = list(
                pool.map(lambda _: fleet.apply({V1: CHANGES, V2: CHANGES}, PATIENCE_S), range(100))
            )
    finally:
        stopping.set()
        thread.join()
    assert all(o == {V1: None, V2: refusal("v-h21")} for o in outcomes)
