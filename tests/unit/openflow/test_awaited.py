"""Replies awaited together, and changes encoded once for many switches."""

import threading
import time

import pytest

from apps.openflow.replies import Replies, Reply
from drivers.codecs.openflow.rules import EncodedOnce, SwitchPorts, encode_changes
from hydra.forwarding.rules import Install, Remove, divert_rule
from hydra.model import RackId
from tests.waiting import HANGS_S, PATIENCE_S

PORTS, OTHERS = SwitchPorts(1, 2, 3), SwitchPorts(4, 5, 6)
CHANGES = tuple(Install(divert_rule(RackId(rack), 7)) for rack in range(1, 30))


def test_a_reply_comes_once_and_tells_whoever_asked_before_or_after():
    reply, heard = Reply(), []
    reply.add_done_callback(heard.append)
    assert not reply.done()
    with pytest.raises(LookupError):
        reply.result()
    reply.set_result(1)
    reply.set_result(2)
    reply.add_done_callback(heard.append)
    assert (reply.done(), reply.result(), heard) == (True, 1, [reply, reply])


def test_replies_are_waited_for_together_and_no_longer_than_that():
    replies = [Reply() for _ in range(3)]
    replies[0].set_result(None)
    together = Replies(replies)
    assert not together.wait(0.01)  # timed: all replies are missing
    began_s = time.monotonic()
    # timed: the replies are awaited by then
    answers = threading.Timer(0.05, lambda: [one.set_result(None) for one in replies[1:]])
    answers.start()
    assert together.wait(PATIENCE_S)
    assert time.monotonic() - began_s < HANGS_S
    assert Replies([]).wait(0)


def test_replies_that_come_while_they_are_counted_are_counted():
    for _ in range(50):
        replies = [Reply() for _ in range(100)]
        teller = threading.Thread(target=lambda some=replies: [one.set_result(1) for one in some])
        teller.start()
        assert Replies(replies).wait(PATIENCE_S)
        teller.join()


@pytest.mark.parametrize("bundle_id", [None, 1])
def test_what_is_encoded_once_is_what_each_would_have_been_sent(bundle_id):
    asked = []

    def encode(changes, ports, xid):
        asked.append(xid)
        return encode_changes(changes, ports, xid, bundle_id)

    removed = tuple(Remove(change.rule) for change in CHANGES)
    encoded = EncodedOnce(encode)
    turns = (
        [(CHANGES, PORTS)] * 20 + [(CHANGES, OTHERS)] * 2 + [(removed, OTHERS), (CHANGES, PORTS)]
    )
    for xid, (changes, ports) in enumerate(turns, start=0x4000_0001):
        assert encoded(changes, ports, xid) == encode_changes(changes, ports, xid, bundle_id)
    assert len(asked) == 3 + 3 + 1 + 1  # the first of several, and twice for the following ones
