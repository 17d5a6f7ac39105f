"""The controller that a switch obeys: masters, slaves, and generations."""

import struct

from apps.openflow.fleet import Fleet
from drivers.codecs.openflow.messages import (
    TYPE_BARRIER_REQUEST,
    TYPE_FLOW_MOD,
)
from drivers.codecs.openflow.rules import (
    NO_GENERATION,
    ROLE_NO_CHANGE,
    ROLE_SLAVE,
    TAKEN_OVER,
    TYPE_ROLE_REQUEST,
)
from hydra.failures import FailureKind
from hydra.forwarding.match_action import Port

from .fleet_switches import FABRIC, V1, V2, Switch, agrees, away, end, unknown


def roles(messages):
    """Role and generation of each role request; a barrier follows each."""
    kinds = [message[1] for message in messages]
    assert kinds == [TYPE_ROLE_REQUEST, TYPE_BARRIER_REQUEST] * (len(kinds) // 2)
    return [struct.unpack_from("!I4xQ", message, 8) for message in messages[::2]]


class Ruled:
    """A switch with roles, whose generation other controllers raise; its stale error is Open
    vSwitch's.
    """

    def __init__(self, generation, *, raised_by=()):
        self.generation, self.raised_by = generation, list(raised_by)

    def __call__(self, switch, xid):
        if [one[1] for one in switch.sent[-2:-1]] != [TYPE_ROLE_REQUEST]:
            return
        ((role, named),) = roles(switch.sent[-2:])
        if role == ROLE_SLAVE and self.raised_by:
            self.generation += self.raised_by.pop()
        if role != ROLE_NO_CHANGE and named < self.generation != NO_GENERATION:
            switch.fleet.error_replied(switch, xid, FailureKind.TAKEN_OVER, TAKEN_OVER)
        else:
            switch.fleet.role_replied(switch, xid, self.generation)
        agrees(switch, xid)


def test_who_does_not_lead_becomes_a_slave_and_sends_nothing_else():
    """A standby receives expired rules; a paused leader has waiting messages."""
    over = [True]
    fleet = Fleet(FABRIC, lambda function: function(), lambda: over[0])
    switch = Switch(fleet, V1, Ruled(7 << 28))
    end(fleet, switch, 0)
    fleet.send_frames({V1: [(Port.OPTICAL, b"frame")]})
    fleet.send_messages({V1: b"message"})
    assert fleet.await_rounds((V1,), 0.01) == {V1}
    (failure,) = fleet.become_master({V1: 7}, 0.01).values()
    assert failure.kind is FailureKind.UNKNOWN
    assert roles(switch.sent) == [(ROLE_NO_CHANGE, 0), (ROLE_SLAVE, 7 << 28)]
    over[0] = False
    del switch.sent[:]
    end(fleet, switch, 0)
    assert [message[1] for message in switch.sent] == [TYPE_FLOW_MOD]
    over[0] = True
    fleet.stand_aside()
    assert roles(switch.sent[1:]) == [(ROLE_NO_CHANGE, 0), (ROLE_SLAVE, 7 << 28)]


def test_a_standby_of_a_switch_that_never_had_a_master_names_the_first_generation():
    fleet = Fleet(FABRIC, lambda function: function(), lambda: True)
    switch = Switch(fleet, V1, Ruled(NO_GENERATION))
    assert roles(switch.sent) == [(ROLE_NO_CHANGE, 0), (ROLE_SLAVE, 0)]


def test_a_standby_asks_again_where_the_switch_got_a_master_meanwhile(caplog):
    fleet = Fleet(FABRIC, lambda function: function(), lambda: True)
    switch = Switch(fleet, V1, Ruled(7, raised_by=[2]))
    again = [(ROLE_NO_CHANGE, 0), (ROLE_SLAVE, 9)]
    assert roles(switch.sent) == [(ROLE_NO_CHANGE, 0), (ROLE_SLAVE, 7), *again]
    assert caplog.records == []
    switch.disconnect()
    endless = Switch(fleet, V1, Ruled(7, raised_by=[1] * 100))
    assert len(roles(endless.sent)) == 10
    assert [record.message for record in caplog.records] == [
        f"v-h11 does not have this controller as slave: {TAKEN_OVER}"
    ]


def test_a_standby_that_leads_before_it_was_answered_becomes_no_slave():
    over = [True]
    fleet = Fleet(FABRIC, lambda function: function(), lambda: over[0])
    switch = Switch(fleet, V1)
    (xid,) = {int.from_bytes(message[4:8], "big") for message in switch.sent}
    over[0] = False
    fleet.role_replied(switch, xid, 7)
    assert roles(switch.sent) == [(ROLE_NO_CHANGE, 0)]


def test_a_standby_is_a_slave_on_second_connections_too_and_none_of_strangers():
    fleet = Fleet(FABRIC, lambda function: function(), lambda: True)
    first, second = Switch(fleet, V1, Ruled(7)), Switch(fleet, V1)
    stranger = Switch(fleet, 0x999)
    assert roles(first.sent)[-1] == (ROLE_SLAVE, 7)
    assert (roles(second.sent), stranger.sent) == ([(ROLE_NO_CHANGE, 0)], [])
    second.disconnect()
    assert not fleet._pending, "what was asked of it is forgotten with it"


def test_a_refused_role_is_known_at_once(fleet):
    """The switch reports only that the generation is stale."""
    Switch(fleet, V1, Ruled(9))
    (failure,) = fleet.become_master({V1: 7}, 30.0).values()
    assert failure.kind is FailureKind.TAKEN_OVER


def tells_generations(generation):
    """Answers role requests: with its known generation, then with the requested one."""

    def answer(switch, xid):
        ((role, told),) = roles(switch.sent[-2:])
        known = told if role == 2 else generation
        switch.fleet.role_replied(switch, xid, known)

    return answer


def test_generations_are_read_and_told(fleet):
    first = Switch(fleet, V1, tells_generations(41))
    fresh = Switch(fleet, V2, tells_generations(2**64 - 1))
    assert fleet.generations([V1, V2], 1.0) == {V1: 41, V2: 2**64 - 1}
    assert fleet.become_master({V1: 42, V2: 0}, 1.0) == {V1: None, V2: None}
    assert [roles(switch.sent)[-1] for switch in (first, fresh)] == [(2, 42), (2, 0)]


def test_a_switch_that_does_not_answer_has_no_new_master(fleet):
    Switch(fleet, V1)
    errors = fleet.become_master({V1: 1, V2: 1}, 0.05)
    assert errors == {V1: unknown("no answer within 0.05 s: outcome unknown"), V2: away("v-h21")}
