"""The judge of captures finds writes of two leaders, and no fault if leaders take turns."""

from __future__ import annotations

import struct

import pytest

from benchmarks._two_leaders import judged
from mininet_scenarios.testbed.capture import Frame

CONTROLLERS = {7001: "a", 7002: "b"}
SWITCH = 0x1001
HELLO, ERROR, EXPERIMENTER, FEATURES, FLOW_MOD, GROUP_MOD, BARRIER = 0, 1, 4, 5, 14, 15, 20
MULTIPART, ROLE_REQUEST, METER_MOD = 18, 24, 29
SLAVE = 3
SYN, ACK, PUSH = 0x02, 0x10, 0x08
OPEN, COMMIT = 0, 4


def message(kind, xid, body=b"", version=4):
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


def claim(xid, generation, role=2):
    return message(ROLE_REQUEST, xid, struct.pack("!I4xQ", role, generation))


def bundle(xid, kind):
    body = struct.pack("!IIIHH", 0x4F4E4600, 2300, 1, kind, 3)
    return message(EXPERIMENTER, xid, body)


def refusal(of):
    return message(ERROR, int.from_bytes(of[4:8], "big"), struct.pack("!HH", 1, 10) + of[:64])


class Wire:
    """A loopback's frames, in order."""

    def __init__(self):
        self.frames = []
        self.ports = 40_000

    def connect(self, controller, datapath=SWITCH):
        self.ports += 1
        return Connection(self, controller, self.ports, datapath)

    def verdict(self):
        return judged(self.frames, CONTROLLERS)


class Connection:
    def __init__(self, wire, controller, port, datapath):
        self.wire = wire
        self.ends = {True: controller, False: port}  # by sender: True for the controller
        self.sequence = {True: 2**32 - 20, False: 77}
        self._frame(False, b"", SYN)
        self._frame(True, b"", SYN | ACK)
        self.switch_says(message(HELLO, 1, version=6))
        self.says(message(HELLO, 1), message(FEATURES, 2))
        self.switch_says(message(FEATURES + 1, 2, struct.pack("!Q16x", datapath)))

    def _frame(self, of_controller, payload, flags=ACK | PUSH):
        sequence = self.sequence[of_controller] % 2**32
        tcp = struct.pack(
            "!HHIIBBHHH",
            *(self.ends[of_controller], self.ends[not of_controller], sequence),
            *(0, 5 << 4, flags, 0, 0, 0),
        )
        ip = struct.pack("!BBHIBBH8x", 0x45, 0, 40 + len(payload), 0, 64, 6, 0)
        frame = bytes(12) + b"\x08\x00" + ip + tcp + payload
        self.wire.frames.append(Frame(len(self.wire.frames) / 10, frame))
        self.sequence[of_controller] += len(payload) or 1

    def says(self, *messages):
        self._frame(True, b"".join(messages))

    def switch_says(self, *messages):
        self._frame(False, b"".join(messages))

    def writes(self, xid, *messages, refused=False):
        """Followed by a barrier; the switch answers."""
        self.says(*messages, message(BARRIER, xid))
        answers = [refusal(one) for one in messages] if refused else []
        self.switch_says(*answers, message(BARRIER + 1, xid))

    def claims(self, xid, generation):
        self.says(claim(xid, generation))
        self.switch_says(message(ROLE_REQUEST + 1, xid, struct.pack("!I4xQ", 2, generation)))

    def stands_aside(self, xid, generation):
        self.says(claim(xid, generation, SLAVE))
        body = struct.pack("!I4xQ", SLAVE, generation)
        self.switch_says(message(ROLE_REQUEST + 1, xid, body))

    def describes_ports(self, xid):
        self.says(message(MULTIPART, xid, struct.pack("!H6x", 13)))
        self.switch_says(message(MULTIPART + 1, xid, struct.pack("!H6x", 13)))

    def commits(self, xid):
        """A bundle's messages have the same xid."""
        self.says(bundle(xid, OPEN), bundle(xid, COMMIT))
        self.switch_says(bundle(xid, OPEN + 1), bundle(xid, COMMIT + 1))


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def pair(wire):
    """``a`` was the leader, and ``b`` is the leader."""
    a, b = wire.connect(7001), wire.connect(7002)
    a.claims(10, 1 << 28)
    a.writes(11, message(FLOW_MOD, 11, bytes(40)))
    b.claims(10, 2 << 28)
    b.writes(11, message(METER_MOD, 11, bytes(8)))
    return a, b


def test_who_take_turns_write_no_rules_of_two_leaders(wire, pair):
    pair[1].commits(12)
    found = wire.verdict()
    assert (found.switches, found.by_masters, found.taken_over) == (1, 3, 1)
    assert (found.accepted, found.refused, found.unanswered, found.unread) == ([], 0, 0, 0)


@pytest.mark.parametrize("kind", [FLOW_MOD, GROUP_MOD, METER_MOD])
def test_a_write_that_a_switch_took_of_the_former_leader_is_found(wire, pair, kind):
    a, b = pair
    a.writes(20, message(kind, 20, bytes(40)))
    b.writes(21, message(FLOW_MOD, 21, bytes(40)))
    found = wire.verdict()
    assert len(found.accepted) == 1
    assert "switch 0x1001, whose master is b, took a " in found.accepted[0]
    assert "-mod of a's" in found.accepted[0]
    assert (found.by_masters, found.refused) == (3, 0)


def test_a_bundle_that_is_committed_after_the_other_one_leads_is_found(wire, pair):
    """Sent before or after: a switch confirms a write when the write is done."""
    pair[0].commits(20)
    third = wire.connect(7001)
    pair[1].says(bundle(30, OPEN), bundle(30, COMMIT))
    third.claims(30, 3 << 28)
    pair[1].switch_says(bundle(30, OPEN + 1), bundle(30, COMMIT + 1))
    assert ["a commit of a's" in one for one in wire.verdict().accepted] == [True, False]
    assert "whose master is a, took a commit of b's" in wire.verdict().accepted[1]


def test_what_is_refused_is_counted_and_what_is_cut_off_too(wire, pair):
    a, _ = pair
    a.writes(20, message(FLOW_MOD, 20, bytes(80)), message(GROUP_MOD, 20, bytes(8)), refused=True)
    a.says(bundle(21, OPEN), bundle(21, COMMIT))
    a.switch_says(refusal(bundle(21, OPEN)), refusal(bundle(21, COMMIT)))
    a.says(claim(22, 1 << 28))
    a.switch_says(refusal(claim(22, 1 << 28)))
    a.says(message(FLOW_MOD, 23, bytes(40)))
    found = wire.verdict()
    assert (found.accepted, found.refused, found.unanswered) == ([], 4, 1)


def test_a_generation_of_the_past_or_of_another_is_not_to_be_taken(wire, pair):
    pair[0].claims(20, 1 << 28)
    pair[0].claims(21, 2 << 28)
    pair[1].claims(22, 2 << 28)
    found = wire.verdict().accepted
    assert ["a claim of generation 0x10000000" in one for one in found] == [True, False]
    assert "a claim of generation 0x20000000 of a's" in found[1]


def test_a_controller_that_never_claimed_is_not_the_master_either(wire):
    """Equals may write, by OpenFlow; writes of two equals would be accepted."""
    wire.connect(7001).writes(10, message(FLOW_MOD, 10, bytes(40)))
    assert "whose master is nobody" in wire.verdict().accepted[0]


def test_a_new_connection_is_not_the_master_s_until_it_claims(wire, pair):
    again = wire.connect(7002)
    again.writes(30, message(FLOW_MOD, 30, bytes(40)))
    again.claims(31, 2 << 28)
    again.writes(32, message(FLOW_MOD, 32, bytes(40)))
    assert len(wire.verdict().accepted) == 1


def test_what_is_sent_behind_a_claim_is_the_master_s_if_that_is_taken(wire, pair):
    a, b = pair
    for one, generation in ((a, 3), (b, 2)):
        one.says(claim(40, generation << 28), message(FLOW_MOD, 41, bytes(40)))
        one.says(message(BARRIER, 42))
        answer = message(ROLE_REQUEST + 1, 40, struct.pack("!I4xQ", 2, generation << 28))
        if generation == 2:
            answer = refusal(claim(40, generation << 28))
        one.switch_says(answer, message(BARRIER + 1, 42))
    found = wire.verdict()
    assert (len(found.accepted), found.refused, found.by_masters) == (1, 1, 3)
    assert "a flow-mod of b's" in found.accepted[0]


def test_who_stands_aside_is_the_master_no_more(wire, pair):
    """Also for writes before the answer; a successor needs a later generation."""
    a, b = pair
    b.writes(50, message(FLOW_MOD, 50, bytes(40)))
    b.says(claim(51, 2 << 28, SLAVE), message(FLOW_MOD, 52, bytes(40)), message(BARRIER, 52))
    answer = message(ROLE_REQUEST + 1, 51, struct.pack("!I4xQ", SLAVE, 2 << 28))
    b.switch_says(answer, message(BARRIER + 1, 52))
    b.writes(53, message(FLOW_MOD, 53, bytes(40)))
    found = wire.verdict()
    assert (found.by_masters, found.slaves) == (3, 1)
    assert ["nobody, took a flow-mod of b's" in one for one in found.accepted] == [True, True]
    a.claims(54, 1 << 28)
    assert "a claim of generation 0x10000000 of a's" in wire.verdict().accepted[-1]
    a.claims(55, 3 << 28)
    assert (len(wire.verdict().accepted), wire.verdict().taken_over) == (3, 2)


def test_connections_that_stay_equals_are_found(wire):
    """A connection with a port description, and for a second afterwards neither slave nor master,
    while another controller leads.
    """
    slave, late, equal, ended, leader = (wire.connect(7001, 0x1000 + one) for one in range(5))
    for number in range(4):
        wire.connect(7002, 0x1000 + number).claims(50, 1 << 28)
    for one in (slave, late, equal, leader):  # frames are a tenth of a second apart
        one.describes_ports(60)
    slave.stands_aside(61, 1 << 28)
    for number in range(6):
        equal.writes(62 + number)
    late.stands_aside(80, 1 << 28)
    leader.claims(80, 2 << 28)
    ended.describes_ports(60)
    found = wire.verdict()
    assert (found.slaves, found.accepted) == (2, [])
    assert found.equals == [
        "switch 0x1001 had a as an equal for 2.00 s",
        "switch 0x1002 had a as an equal for 1.60 s",
    ]
    assert found.longest_equal_s == pytest.approx(2.0)


def test_switches_are_told_apart(wire, pair):
    other = wire.connect(7001, datapath=0x1002)
    other.claims(50, 1 << 28)
    other.writes(51, message(FLOW_MOD, 51, bytes(40)))
    found = wire.verdict()
    assert (found.switches, found.accepted) == (2, [])


def test_segments_may_come_twice_and_in_any_order_and_gaps_are_told(wire, pair):
    a, _ = pair
    a.writes(60, message(FLOW_MOD, 60, bytes(40)))
    whole = wire.verdict()
    at = len(wire.frames) - 2
    wire.frames.insert(at, wire.frames[at])
    a.says(message(FLOW_MOD, 61, bytes(40)))
    a.says(message(BARRIER, 61))
    a.switch_says(message(BARRIER + 1, 61))
    wire.frames[-3:-1] = reversed(wire.frames[-3:-1])
    assert [len(one.accepted) for one in (whole, wire.verdict())] == [1, 2]
    assert wire.verdict().unread == 0
    del wire.frames[-2]
    assert wire.verdict().unread == 1
    assert judged(wire.frames[6:], CONTROLLERS).unread > 0
