"""Two connections with the same datapath id: the accepted connection, and the other one's
messages.
"""

import pytest

from apps.openflow.fleet import Fleet, Question
from apps.openflow.interface import PortInfo
from hydra.failures import FailureKind
from hydra.forwarding.frames import probe
from hydra.forwarding.rules import Install, divert_rule
from hydra.model import RackId, VlanId
from hydra.roles import Severity
from tests.unit.core.fabrics import small_fabric

FABRIC = small_fabric(racks=2, planes=1, servers=1)
H11, H21 = FABRIC.servers
V1 = H11.vswitch.datapath_id
CHANGES = (Install(divert_rule(RackId(1), 1)),)
PORTS = {n: PortInfo(n, name, True) for n, name in enumerate(("host", "optical", "electrical"), 1)}


class Connection:
    """Records the received xids, and callers that await an echo reply."""

    def __init__(self, fleet, address, obeys=False):
        self.fleet, self.address, self.obeys = fleet, address, obeys
        self.xids, self.asked, self.closed = [], [], False
        fleet.switch_connected(V1, self, PORTS)

    def send(self, message):
        self.xids.append(int.from_bytes(message[4:8], "big"))
        if self.obeys:
            self.fleet.barrier_replied(self, self.xids[-1])

    def ask(self, tell):
        self.asked.append(tell)

    def answer(self, alive):
        self.asked.pop(0)(alive)

    def close(self):
        """As the framework's: its end is reported later."""
        self.closed = True

    def end(self):
        self.fleet.switch_disconnected(V1, self)


@pytest.fixture
def fleet():
    return Fleet(FABRIC, post=lambda function: function())


@pytest.fixture
def told(fleet):
    alarms = []
    fleet.watch_rivals(alarms.append)
    return alarms


def works(fleet, connection):
    """True if changes go to this connection, and are confirmed there."""
    before = len(connection.xids)
    return fleet.apply({V1: CHANGES}, 0.02) == {V1: None} and len(connection.xids) == before + 1


def test_a_stranger_is_refused_while_the_switch_answers(fleet):
    switch = Connection(fleet, "10.0.0.1:1", obeys=True)
    stranger = Connection(fleet, "10.6.6.6:6", obeys=True)
    assert works(fleet, switch), "also while it is not decided"
    assert not stranger.closed
    switch.answer(True)
    assert stranger.closed
    assert not switch.closed
    stranger.end()
    assert fleet.connected() == {V1}
    assert works(fleet, switch)
    assert stranger.xids == []


def test_a_switch_that_comes_back_is_taken_once_its_old_connection_has_not_answered(fleet):
    seen = []
    fleet.watch(seen.append, lambda *_port: None, *2 * [lambda _mute: None])
    old = Connection(fleet, "10.0.0.1:1")
    (future,) = fleet.ask_for_counters([Question(V1, 1)]).values()
    new = Connection(fleet, "10.0.0.1:2", obeys=True)
    assert seen == [V1]
    old.answer(False)
    assert old.closed
    assert not new.closed
    assert future.result().kind is FailureKind.UNKNOWN
    assert seen == [V1, V1], "it is synchronised"
    assert works(fleet, new)
    old.end()
    assert works(fleet, new)


def test_a_newcomer_takes_the_place_of_one_that_ends_meanwhile(fleet):
    old = Connection(fleet, "10.0.0.1:1")
    new = Connection(fleet, "10.0.0.1:2", obeys=True)
    old.end()
    assert works(fleet, new)
    old.answer(False)
    assert not new.closed
    assert works(fleet, new)


def test_a_newcomer_that_is_gone_is_not_taken(fleet):
    switch = Connection(fleet, "10.0.0.1:1", obeys=True)
    Connection(fleet, "10.6.6.6:6").end()
    switch.answer(False)
    assert not switch.closed, "nobody wants its place"
    assert works(fleet, switch)
    Connection(fleet, "10.0.0.1:2")
    assert len(switch.asked) == 1, "it is asked again for the next one"


def test_of_many_newcomers_one_is_taken_and_has_to_answer_for_the_others(fleet):
    old = Connection(fleet, "10.0.0.1:1")
    first, *others = [Connection(fleet, f"10.0.0.{n}:2", obeys=True) for n in range(2, 5)]
    assert len(old.asked) == 1, "one echo for all"
    old.answer(False)
    assert works(fleet, first)
    first.answer(True)
    assert [one.closed for one in others] == [True, True]
    assert works(fleet, first)


@pytest.mark.parametrize(
    "ask",
    [
        lambda fleet: fleet.apply({V1: CHANGES}, 0.02)[V1].kind,
        lambda fleet: fleet.become_master({V1: 1}, 0.02)[V1].kind,
        lambda fleet: list(fleet.rule_tables([V1], 0.02)) or FailureKind.UNKNOWN,
    ],
    ids=["changes", "mastership", "rules"],
)
@pytest.mark.parametrize(
    "say",
    [
        lambda fleet, stranger, xid: fleet.barrier_replied(stranger, xid),
        lambda fleet, stranger, xid: fleet.role_replied(stranger, xid, 7),
        lambda fleet, stranger, xid: fleet.statistics_replied(stranger, xid, b"", more=False),
    ],
    ids=["barrier", "role", "statistics"],
)
def test_a_stranger_confirms_nothing_that_the_switch_was_asked(fleet, say, ask):
    switch = Connection(fleet, "10.0.0.1:1")
    stranger = Connection(fleet, "10.6.6.6:6")
    switch.send = lambda message: say(fleet, stranger, int.from_bytes(message[4:8], "big"))
    assert ask(fleet) is FailureKind.UNKNOWN
    fleet.apply({V1: CHANGES}, 0.02)
    assert fleet.mute() == {V1}, "nor that it answers again"


def test_a_stranger_refuses_nothing_either_and_shows_no_probes_and_ports(fleet):
    switch = Connection(fleet, "10.0.0.1:1")
    stranger = Connection(fleet, "10.6.6.6:6")

    def send(message):
        xid = int.from_bytes(message[4:8], "big")
        fleet.error_replied(stranger, xid, FailureKind.REFUSED, "no")
        fleet.barrier_replied(switch, xid)

    switch.send = send
    assert fleet.apply({V1: CHANGES}, 0.02) == {V1: None}
    future = fleet.expect_probe(1)
    fleet.packet_received(V1, stranger, probe(H11.mac, H21.mac, VlanId(100), 1))
    assert not future.done()
    fleet.port_changed(V1, stranger, PortInfo(2, "optical", False), deleted=False)
    assert fleet.port(V1, "optical").up


def test_ports_that_change_while_a_newcomer_waits_are_as_they_are_then(fleet):
    old = Connection(fleet, "10.0.0.1:1")
    new = Connection(fleet, "10.0.0.1:2")
    fleet.port_changed(V1, new, PortInfo(2, "optical", False), deleted=False)
    assert fleet.port(V1, "optical").up
    old.answer(False)
    assert not fleet.port(V1, "optical").up


def test_an_alarm_names_both_addresses_once_a_minute_and_cause(fleet, told, caplog):
    switch = Connection(fleet, "10.0.0.1:1")
    for number in range(5):
        Connection(fleet, f"10.6.6.6:{number}")
        switch.answer(True)
    Connection(fleet, "10.0.0.1:2")
    switch.answer(False)
    refused, replaced = told
    assert refused.device == "v-h11"
    assert refused.alarm.severity is Severity.MAJOR
    assert refused.alarm.text == (
        "refused a second connection, from 10.6.6.6:0: the connection from 10.0.0.1:1 answers"
    )
    assert replaced.alarm.text == (
        "no answer from 10.0.0.1:1 within 2 s: a new connection, from 10.0.0.1:2, is used"
    )
    assert len(caplog.messages) == 2
