"""Changes sent to switches as bundles, and staged before their commit."""

import struct

import pytest

from apps.openflow.interface import PortInfo
from drivers.codecs.openflow.messages import (
    BUNDLE_COMMIT,
    BUNDLE_DISCARD,
    BUNDLE_OPEN,
    TYPE_BARRIER_REQUEST,
    TYPE_EXPERIMENTER,
    TYPE_FLOW_MOD,
    encode_bundle_control,
)
from drivers.codecs.openflow.rules import (
    NO_BUNDLES,
)
from hydra.failures import FailureKind
from hydra.forwarding.rules import Install, divert_rule
from hydra.model import RackId

from .fleet_switches import (
    CHANGES,
    FABRIC,
    NO_ANSWER,
    REFUSED,
    V1,
    V2,
    VSWITCH_PORTS,
    Switch,
    agrees,
    port_table,
    refusal,
    refuses,
)


def commits_only(switch, xid):
    """A switch that answers barriers after a bundle, and nothing before."""
    if switch.sent[-1][1] == TYPE_BARRIER_REQUEST:
        agrees(switch, xid)


def kinds(messages):
    """The OpenFlow type of each message and, for an open, commit or discard of a bundle, its
    kind.
    """
    controls = encode_bundle_control(0, BUNDLE_OPEN, 0)[8:16]
    return [
        (
            message[1],
            struct.unpack_from("!H", message, 20)[0] if message[8:16] == controls else None,
        )
        for message in messages
    ]


OPENED, COMMITTED, DISCARDED = (
    (TYPE_EXPERIMENTER, what) for what in (BUNDLE_OPEN, BUNDLE_COMMIT, BUNDLE_DISCARD)
)
ADDED, BARRIER = (TYPE_EXPERIMENTER, None), (TYPE_BARRIER_REQUEST, None)
WHOLE = [OPENED, ADDED, COMMITTED, BARRIER]


def test_of_what_was_staged_only_the_commit_is_sent(fleet):
    switch = Switch(fleet, V1, commits_only)
    fleet.stage({V1: CHANGES})
    assert kinds(switch.sent) == [OPENED, ADDED]
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    assert kinds(switch.sent) == [OPENED, ADDED, COMMITTED, BARRIER]
    assert len({message[4:8] for message in switch.sent}) == 1
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    assert kinds(switch.sent[4:]) == WHOLE, "a bundle is committed once"


def test_something_else_is_sent_whole_while_a_bundle_waits(fleet):
    switch = Switch(fleet, V1, commits_only)
    fleet.stage({V1: CHANGES})
    other = (Install(divert_rule(RackId(1), 2)),)
    assert fleet.apply({V1: other}, 1.0) == {V1: None}
    assert kinds(switch.sent[2:]) == WHOLE
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    assert kinds(switch.sent[6:]) == [COMMITTED, BARRIER]


def test_what_is_staged_takes_the_place_of_what_was(fleet):
    switch = Switch(fleet, V1, commits_only)
    fleet.stage({V1: CHANGES})
    other = (Install(divert_rule(RackId(1), 2)),)
    fleet.stage({V1: other})
    assert kinds(switch.sent[2:]) == [DISCARDED, OPENED, ADDED]
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    assert kinds(switch.sent[5:]) == WHOLE


def refuses_the_first_commit(switch, xid):
    if kinds(switch.sent)[2:] == [COMMITTED, BARRIER]:
        switch.fleet.error_replied(switch, xid, REFUSED, "OpenFlow error type 17, code 2")
    commits_only(switch, xid)


def test_a_bundle_that_waited_too_long_is_sent_again(fleet):
    switch = Switch(fleet, V1, refuses_the_first_commit)
    fleet.stage({V1: CHANGES})
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    assert kinds(switch.sent[4:]) == WHOLE


def test_a_bundle_that_is_refused_twice_is_an_error(fleet):
    Switch(fleet, V1, lambda switch, xid: switch.sent[2:] and refuses(switch, xid))
    fleet.stage({V1: CHANGES})
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: refusal("v-h11")}


def test_a_switch_without_bundles_changes_rule_by_rule(fleet, caplog):
    def knows_no_experimenters(switch, xid):
        if any(
            message[1] == TYPE_EXPERIMENTER and message[4:8] == xid.to_bytes(4, "big")
            for message in switch.sent
        ):
            switch.fleet.error_replied(switch, xid, FailureKind.NO_BUNDLES, NO_BUNDLES)
        commits_only(switch, xid)  # fmt: skip

    switch = Switch(fleet, V1, knows_no_experimenters)
    fleet.stage({V1: CHANGES})
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    assert kinds(switch.sent[-2:]) == [(TYPE_FLOW_MOD, None), BARRIER]
    assert [record.message for record in caplog.records] == [
        f"v-h11: a change takes effect rule by rule there, not at once: {NO_BUNDLES}"
    ]
    seen = len(switch.sent)
    fleet.stage({V1: CHANGES})
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    assert kinds(switch.sent[seen:]) == [(TYPE_FLOW_MOD, None), BARRIER]
    again = Switch(fleet, V1, commits_only)
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    assert kinds(again.sent) == WHOLE


def test_a_commit_without_an_answer_is_not_tried_again(fleet):
    switch = Switch(fleet, V1)
    fleet.stage({V1: CHANGES})
    assert fleet.apply({V1: CHANGES}, 0.02) == {V1: NO_ANSWER}
    assert kinds(switch.sent) == [OPENED, ADDED, COMMITTED, BARRIER, BARRIER], (
        "the last asks for life"
    )


def test_a_switch_that_has_not_answered_is_sent_no_commit(fleet):
    switch = Switch(fleet, V1)
    fleet.stage({V1: CHANGES})
    fleet.apply({V1: (Install(divert_rule(RackId(1), 2)),)}, 0.02)
    assert fleet.mute() == {V1}
    seen = len(switch.sent)
    assert fleet.apply({V1: CHANGES}, 0.02)[V1] is not None
    assert COMMITTED not in kinds(switch.sent[seen:])


@pytest.mark.parametrize("again", [VSWITCH_PORTS, port_table("electrical", "host", "optical")])
def test_a_switch_that_comes_back_has_nothing_staged(fleet, again):
    Switch(fleet, V1, commits_only).fleet.stage({V1: CHANGES, V2: CHANGES})
    switch = Switch(fleet, V1, commits_only, again)
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    assert kinds(switch.sent) == WHOLE


def test_a_bundle_with_old_port_numbers_is_not_committed(fleet):
    switch = Switch(fleet, V1, commits_only)
    fleet.stage({V1: CHANGES})
    fleet.port_changed(
        V1, switch, PortInfo(44, FABRIC.servers[0].vswitch.electrical_port, True), deleted=False
    )
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    assert kinds(switch.sent[2:]) == WHOLE
