"""Changes of vswitches for reservations, and the use of their counters."""

import random
import struct
import threading
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from apps.controller.policing import Policing
from apps.controller.refills import MOST_S, PART
from apps.openflow.fleet import Fleet
from apps.openflow.interface import PortInfo
from drivers.codecs.openflow.messages import (
    MULTIPART_FLOW,
    TYPE_BARRIER_REQUEST,
    TYPE_EXPERIMENTER,
    TYPE_MULTIPART_REQUEST,
)
from drivers.codecs.openflow.meters import (
    MULTIPART_METER_CONFIG,
    TYPE_METER_MOD,
    burst_kbit,
)
from hydra.failures import FailureKind
from hydra.forwarding.match_action import server_port
from hydra.forwarding.pipeline import DELIVERY_COUNTERS, DELIVERY_COUNTERS_MASK, cookie_subject
from hydra.model import NetworkState
from hydra.reservations.reservation import Protect
from hydra.sharing.policing import LENIENT, STRICT
from tests.unit.core.fabrics import circuit_between, openflow_only, path_of, state_of
from tests.unit.openflow.ryu_reference import split
from tests.unit.sharing.test_policing import DIRECT, FABRIC, ONE_HOP, reserved
from tests.waiting import PATIENCE_S

SERVERS = {server.name: server.vswitch.datapath_id for server in FABRIC.servers}
NAMES = ("host", "optical", "electrical", "s1", "s2", "o1.1", "o2.1", "up")
PORTS = {number: PortInfo(number, name, True) for number, name in enumerate(NAMES, 1)}
ELSEWHERE = path_of(FABRIC, 0, 2, circuit_between(FABRIC, 0, 2, plane=1))
BOTH = state_of(FABRIC, NetworkState(), ONE_HOP, ELSEWHERE)
ALL, NOBODY = frozenset(SERVERS.values()), frozenset()


@dataclass
class Meter:
    kbps: int
    bytes_in: int = 0
    dropped: int = 0


@dataclass
class Vswitch:
    """A switch for meters and their rules: answers at once, like Open vSwitch."""

    fleet: Fleet
    name: str
    takes_meters: bool = True
    meters: dict[int, Meter] = field(default_factory=dict)
    delivered: dict[int, int] = field(default_factory=dict)
    """By cookie."""
    log: list[str] = field(default_factory=list)
    address: str = "192.0.2.1:40000"
    refilled_kbit: int = 0
    """Sum of the bursts of changed meters."""
    at: int | None = None

    @property
    def datapath(self):
        return SERVERS[self.name] if self.at is None else self.at

    def __post_init__(self):
        self.fleet.switch_connected(self.datapath, self, PORTS)

    def send(self, message):
        for part in split(message):
            kind, xid = part[1], struct.unpack_from("!I", part, 4)[0]
            if kind == TYPE_METER_MOD:
                self.change_meter(xid, *struct.unpack_from("!HHI", part, 8), part[16:])
            elif kind == TYPE_EXPERIMENTER:
                self.log.append("rules")
            elif kind == TYPE_BARRIER_REQUEST:
                self.fleet.barrier_replied(self, xid)
            elif kind == TYPE_MULTIPART_REQUEST:
                self.answer(xid, struct.unpack_from("!H", part, 8)[0])

    def change_meter(self, xid, command, _flags, number, band):
        exists = number in self.meters
        if not self.takes_meters or (command == 0 and exists) or (command == 1 and not exists):
            self.fleet.error_replied(
                self, xid, FailureKind.REFUSED, "OpenFlow error type 12, code 1"
            )
        elif command == 2:
            self.log.append("remove")
            self.meters = {} if number == 2**32 - 1 else self.meters | {}
            self.meters.pop(number, None)
        else:
            self.log.append(("add", "set")[command])
            _, _, kbps, burst_kbit = struct.unpack_from("!HHII", band)
            self.meters[number] = Meter(kbps)
            self.refilled_kbit += command * burst_kbit

    def answer(self, xid, kind):
        if kind == MULTIPART_METER_CONFIG:
            body = b"".join(
                struct.pack("!HHIHHIIxxxx", 24, 5, n, 1, 16, one.kbps, 640)
                for n, one in self.meters.items()
            )
        elif kind == MULTIPART_FLOW:
            body = b"".join(map(flow_entry, self.delivered, self.delivered.values()))
        else:
            body = b"".join(
                struct.pack("!IHxxxxxxIQQIIQQ", n, 56, 2, 9, one.bytes_in, 1, 0, 1, one.dropped)
                for n, one in self.meters.items()
            )
        self.fleet.statistics_replied(self, xid, body, more=False)


def flow_entry(cookie, count_bytes):
    head = struct.pack("!HBxIIHHHHxxxxQQQ", 56, 0, 1, 0, 400, 0, 0, 0, cookie, 1, count_bytes)
    return head + struct.pack("!HHxxxx", 1, 4)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def fleet():
    return Fleet(FABRIC, post=lambda function: function())


@pytest.fixture
def vswitches(fleet):
    return {name: Vswitch(fleet, name) for name in SERVERS}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def policing(fleet, vswitches, clock):
    timeout_s = 1.0  # timed: of silent vswitches
    return Policing(fabric=FABRIC, fleet=fleet, timeout_s=timeout_s, clock=clock)


def mbps(vswitch):
    return sorted(meter.kbps / 1000 for meter in vswitch.meters.values())


def a_second(policing, clock, traffic=lambda: None):
    """A turn of the pacer, in which ``traffic()`` happens."""

    def pause():
        clock.now += 1.0
        traffic()
        return True

    assert policing.turn(pause)


def hold(policing, *reservations, state=DIRECT, ready=ALL):
    return policing.hold(state, reservations, ready)


def test_meters_come_before_their_rules_and_go_after_them(policing, vswitches):
    h11 = vswitches["h11"]
    assert hold(policing, reserved("h11", "h21")) == NOBODY
    assert h11.log[0] == "remove", "what an earlier controller left"
    assert h11.log[1:3] == ["add", "add"]
    assert set(h11.log[3:]) == {"rules"}
    assert sum(mbps(h11)) + sum(mbps(vswitches["h12"])) == pytest.approx(97.0, abs=0.01)
    h11.log.clear()
    assert hold(policing) == NOBODY
    assert h11.log[-2:] == ["remove", "remove"]
    assert set(h11.log[:-2]) == {"rules"}
    assert all(not one.meters for one in vswitches.values())


@pytest.mark.parametrize("step", ["tables_with", "affected", "part_of", "shares", "exchanged"])
def test_an_exception_half_way_leaves_all_for_the_next_hold(policing, vswitches, monkeypatch, step):
    first, other = reserved("h11", "h21"), reserved("h12", "h22", 10.0, name="b")
    hold(policing, first)
    before = {name: mbps(vswitch) for name, vswitch in vswitches.items()}

    def fail(*_):
        raise RuntimeError("half-way")

    with monkeypatch.context() as broken:
        broken.setattr(f"apps.controller.policing.{step}", fail)
        with pytest.raises(RuntimeError, match="half-way"):
            hold(policing, first, other)
    assert {name: mbps(vswitch) for name, vswitch in vswitches.items()} == before
    assert hold(policing, first, other) == NOBODY
    assert vswitches["h12"].log[-1] == "rules"
    made = {name: mbps(vswitch) for name, vswitch in vswitches.items()}
    hold(policing)
    hold(policing, first, other)
    assert made == {name: mbps(vswitch) for name, vswitch in vswitches.items()}


@pytest.mark.parametrize("step", ["added_meters", "old_meters", "differing"])
def test_an_exception_while_rates_are_written_leaves_their_vswitches_unconfirmed(
    policing, vswitches, monkeypatch, caplog, step
):
    first, other = reserved("h11", "h21"), reserved("h12", "h22", 10.0, name="b")
    hold(policing, first)

    def fail(*_):
        raise RuntimeError("half-way")

    with monkeypatch.context() as broken:
        broken.setattr(f"apps.controller.policing.{step}", fail)
        failed = hold(policing, first, other)
    assert failed >= {SERVERS["h11"], SERVERS["h12"]}
    assert "half-way" in caplog.text
    policing.prepare(failed)  # as their synchronisation does
    made = {name: sorted(mbps(vswitch)) for name, vswitch in vswitches.items()}
    hold(policing)
    hold(policing, first, other)
    assert made == {name: sorted(mbps(vswitch)) for name, vswitch in vswitches.items()}


def test_nothing_is_sent_where_nothing_changes(policing, vswitches):
    hold(policing, reserved("h11", "h21"))
    for one in vswitches.values():
        one.log.clear()
    hold(policing, reserved("h11", "h21"))
    assert not any(one.log for one in vswitches.values())
    hold(policing, reserved("h11", "h21"), reserved("h12", "h22", 10.0, name="b"))
    assert vswitches["h11"].log == ["set", "set"], "its rules are as they were"


def test_a_reservation_elsewhere_leaves_meters_as_they_are(policing, vswitches, clock):
    one = reserved("h11", "h21")
    other = reserved("h11", "h31", name="b", booked=ELSEWHERE)
    hold(policing, one, state=BOTH)

    def traffic():
        for meter in vswitches["h12"].meters.values():
            meter.bytes_in += 5_000_000
            meter.dropped += 50_000

    a_second(policing, clock, traffic)
    before = {name: dict(vswitch.meters) for name, vswitch in vswitches.items()}
    for vswitch in vswitches.values():
        vswitch.log.clear()
    assert hold(policing, one, other, state=BOTH) == NOBODY
    assert [vswitches[name].log for name in ("h21", "h22")] == [[], []]
    for name in ("h11", "h12"):
        assert "set" not in vswitches[name].log
        assert before[name].items() <= vswitches[name].meters.items(), "what was given out stays"
    assert policing.held_back()["h12", 1]


def test_a_little_more_that_is_reserved_is_told(policing, vswitches):
    hold(policing, reserved("h11", "h21", 40.0))
    hold(policing, reserved("h11", "h21", 40.5))
    assert max(mbps(vswitches["h11"])) >= 40.5
    assert sum(mbps(vswitches["h11"])) + sum(mbps(vswitches["h12"])) <= 97.01


def greedy(meter, mbit):
    meter.bytes_in += int(mbit * 125_000)
    meter.dropped += 50_000


def test_what_was_told_while_one_was_not_ready_is_told_again(policing, vswitches):
    h11 = SERVERS["h11"]
    hold(policing, reserved("h11", "h21", 20.0))
    policing.prepare([h11])
    assert hold(policing, reserved("h11", "h21", 86.0), ready=ALL - {h11}) == NOBODY
    assert max(mbps(vswitches["h11"])) < 86.0
    assert hold(policing, reserved("h11", "h21", 86.0)) == NOBODY
    assert max(mbps(vswitches["h11"])) >= 86.0
    vswitches["h11"].log.clear()
    hold(policing, reserved("h11", "h21", 86.0))
    assert vswitches["h11"].log == [], "once"


def test_one_that_has_lost_its_meters_has_to_be_synchronised(policing, vswitches, clock):
    hold(policing, reserved("h11", "h21"))
    vswitches["h12"].meters.clear()
    a_second(policing, clock)
    assert hold(policing, reserved("h11", "h21")) == {SERVERS["h12"]}


def test_numbers_of_meters_are_used_again(policing, vswitches):
    """A switch has a few dozen to a few thousand meters."""
    ends = [("h11", "h21"), ("h12", "h22"), ("h11", "h22"), ("h12", "h21")]
    most = 0
    for turn in range(40):
        hold(policing, reserved(*ends[turn % 4], 10.0), reserved(*ends[(turn + 1) % 4], 10.0))
        most = max(most, *(number for one in vswitches.values() for number in one.meters))
    assert most <= 4


def test_a_meter_with_another_rate_than_it_was_given_is_told_again(
    policing, vswitches, clock, caplog
):
    """A third party has changed the meter, or its switch has not carried out a confirmed change."""
    one = reserved("h11", "h21", 30.0)
    hold(policing, one)
    given = mbps(vswitches["h12"])
    (meter,) = vswitches["h12"].meters.values()
    meter.kbps = 100
    vswitches["h12"].log.clear()
    for _ in range(10):
        a_second(policing, clock)
    assert "the meter of h12 lets 0.1 Mb/s pass, and was given" in caplog.text
    hold(policing, one)
    assert "set" in vswitches["h12"].log
    assert mbps(vswitches["h12"]) == given


def test_a_switch_that_rounds_rates_is_not_told_again_and_again(policing, vswitches, clock):
    """Each change of a meter refills its bucket."""
    one = reserved("h11", "h21", 30.0)
    hold(policing, one)
    told = 0
    for factor in (1.01, 1.1, 1.1, 1.1):
        for _ in range(10):
            a_second(policing, clock)
            (meter,) = vswitches["h12"].meters.values()
            meter.kbps = int(policing._allowed_mbps[_rest_of(policing, "h12")] * 1000 * factor)
            vswitches["h12"].log.clear()
        hold(policing, one)
        told += vswitches["h12"].log.count("set")
    assert told == 1


def _rest_of(policing, name):
    (found,) = (one for one in policing._allowed_mbps if one.sender == name)
    return found


def test_reservations_that_come_and_go_elsewhere_keep_nobody_from_the_rest(
    policing, vswitches, clock
):
    mine = [reserved("r1", "r2", 60.0), reserved("r1", "r2", 1.0, name="c")]
    other = reserved("h11", "h31", name="b", booked=ELSEWHERE)
    hold(policing, *mine, state=BOTH)
    number = {name: min(vswitches[name].meters) for name in ("h11", "h12")}
    for turn in range(8):
        sender = "h12" if turn < 3 else "h11"

        def traffic(sender=sender, turn=turn):
            greedy(vswitches[sender].meters[number[sender]], 40)
            hold(policing, *mine, *([other] if turn % 2 else []), state=BOTH)

        a_second(policing, clock, traffic)
    h11, h12 = (vswitches[name].meters[number[name]].kbps for name in ("h11", "h12"))
    assert h11 > 40_000 > h12


def test_best_effort_that_comes_onto_a_shared_circuit_gets_an_even_part(policing, vswitches, clock):
    hold(policing, reserved("h11", "h21"))
    a_second(policing, clock, lambda: greedy(max(vswitches["h12"].meters.items())[1], 20))
    hold(policing, reserved("h11", "h21"), reserved("h12", "h22", 10.0, name="b"))
    rest = [min(mbps(vswitches[name])) for name in ("h11", "h12")]
    assert rest == pytest.approx([rest[0]] * 2, rel=0.01)


def test_what_one_second_shows_is_given_out_in_the_next(policing, vswitches, clock):
    hold(policing, reserved("h11", "h21"))
    (greedy,) = vswitches["h12"].meters.values()
    before = greedy.kbps

    def traffic():
        greedy.bytes_in += int(20e6 / 8)
        greedy.dropped += 10_000

    a_second(policing, clock, traffic)
    (greedy,) = vswitches["h12"].meters.values()
    assert greedy.kbps > 50_000 > before
    assert max(mbps(vswitches["h11"])) >= 40.0
    a_second(policing, clock)
    assert sum(mbps(vswitches["h11"])) + sum(mbps(vswitches["h12"])) <= 97.01


def restless(vswitches, chance):
    """Senders whose rates vary, with and without a limit by meters."""
    for name in ("h11", "h12"):
        for meter in vswitches[name].meters.values():
            meter.bytes_in += chance.randrange(10_000_000)
            meter.dropped += chance.choice((0, 1_000_000))


def test_a_circuit_bears_what_changes_of_its_meters_let_pass_again(policing, vswitches, clock):
    """Each change refills a bucket: a change every second would let 3 % more pass than the
    rates.
    """
    hold(policing, reserved("h11", "h21"), reserved("h12", "h22", 10.0, name="b"))
    for name in ("h11", "h12"):
        vswitches[name].refilled_kbit = 0
    chance, seconds = random.Random(1), 120
    for _ in range(seconds):
        a_second(policing, clock, lambda: restless(vswitches, chance))
        assert sum(mbps(vswitches["h11"])) + sum(mbps(vswitches["h12"])) <= 97.01
    refilled_mbit = sum(vswitches[name].refilled_kbit for name in ("h11", "h12")) / 1000
    at_once_mbit = 2 * (burst_kbit(97.0, STRICT) + burst_kbit(97.0, LENIENT)) / 1000
    assert refilled_mbit <= PART * 100.0 * seconds + at_once_mbit
    assert refilled_mbit > PART * 100.0 * seconds / 2, "and meters follow what is sent"


def test_what_holds_is_told_at_once_and_paid_for_later(policing, vswitches, clock):
    """A new reservation can't wait; the rest is shared out anew once the burst has been borne."""
    told = [reserved("h11", "h21"), reserved("h12", "h22", 10.0, name="b")]
    hold(policing, told[0])
    for _ in range(5):
        hold(policing, *told)
        assert sum(mbps(vswitches["h11"])) + sum(mbps(vswitches["h12"])) <= 97.01
        hold(policing, told[0])
    before = mbps(vswitches["h12"])
    a_second(policing, clock, lambda: greedy(max(vswitches["h12"].meters.items())[1], 20))
    assert mbps(vswitches["h12"]) == before
    for _ in range(int(MOST_S) + 1):
        a_second(policing, clock, lambda: greedy(max(vswitches["h12"].meters.items())[1], 20))
    assert max(mbps(vswitches["h12"])) > 50.0


def test_whose_meters_dropped_in_the_last_second(policing, vswitches, clock):
    assert policing.held_back() == {}
    hold(policing, reserved("h11", "h21"))
    (greedy,) = vswitches["h12"].meters.values()

    def traffic():
        greedy.bytes_in += int(20e6 / 8)
        greedy.dropped += 10_000

    a_second(policing, clock, traffic)
    there = {key: held for key, held in policing.held_back().items() if key[0][1] == "1"}
    assert there == {("h11", 1): False, ("h12", 1): True}
    a_second(policing, clock)
    assert not any(policing.held_back().values())
    hold(policing)
    assert policing.held_back() == {}


@pytest.mark.parametrize("how", ["made anew", "told again"])
def test_counts_that_began_anew_between_two_readings_are_no_rates(policing, vswitches, clock, how):
    """Even if the new count is already higher than the old count."""
    told = [reserved("h11", "h21"), reserved("h12", "h22", 10.0, name="b")]
    hold(policing, *told)
    h12 = vswitches["h12"]
    for meter in h12.meters.values():
        meter.bytes_in = 1_000_000
    if how == "told again":
        policing.prepare([h12.datapath])  # which leaves it unsettled
        for meter in h12.meters.values():
            meter.bytes_in = 1_000_000

    def traffic():
        if how == "made anew":
            policing.prepare([h12.datapath])
        else:
            hold(policing, *told)
        for meter in h12.meters.values():
            assert meter.bytes_in == 0
            meter.bytes_in = 2_000_000

    a_second(policing, clock, traffic)
    assert {name for name, _ in policing.held_back()} >= {"h11"}
    assert "h12" not in {name for name, _ in policing.held_back()}


def test_those_that_get_less_are_told_first(policing, vswitches, clock):
    order = []
    for name in ("h11", "h12"):
        own = vswitches[name].change_meter
        vswitches[name].change_meter = lambda *args, name=name, own=own: (
            order.append(name),
            own(*args),
        )
    hold(policing, reserved("h11", "h21"))
    order.clear()

    def traffic():
        for meter in vswitches["h12"].meters.values():
            meter.bytes_in += 5_000_000
            meter.dropped += 50_000

    a_second(policing, clock, traffic)
    assert order[0] == "h11"
    assert order[-1] == "h12"


def delivery_cookies(policing, name):
    """Counters of the rules at a server."""
    kinds = {rule.kind: rule.cookie for rule in policing.rules_for(SERVERS[name])}
    return [value for kind, value in kinds.items() if kind.name.startswith("DELIVERED")]


def test_what_arrives_is_counted_at_both_ends(policing, vswitches, clock):
    reservation = reserved("h11", "h21")
    hold(policing, reservation)
    assert policing.delivery(reservation).there_mbps is None
    v4, v6 = delivery_cookies(policing, "h21")
    assert cookie_subject(v4) == cookie_subject(v6)
    counted = vswitches["h21"].delivered

    def traffic():
        counted[v4] = counted.get(v4, 0) + 4_000_000
        counted[v6] = counted.get(v6, 0) + 1_000_000

    for _ in range(3):
        a_second(policing, clock, traffic)
    delivery = policing.delivery(reservation)
    assert delivery.there_mbps == pytest.approx(40.0)
    assert delivery.back_mbps == 0.0
    assert delivery.unheld == ()
    before, counted[v6] = counted[v6], 2**64 - 1  # not available (OpenFlow 1.3.5, section 5.8)
    a_second(policing, clock)
    assert policing.delivery(reservation).there_mbps == pytest.approx(40.0)
    counted[v6] = before
    counted[v4] = 0  # its rules were installed anew
    a_second(policing, clock)
    assert policing.delivery(reservation).there_mbps is None


def test_what_counts_for_two_is_theirs_in_proportion(policing, vswitches, clock):
    one, other = reserved("h11", "h21", 30.0), reserved("h11", "h21", 10.0, name="b")
    hold(policing, one, other)
    (v4, _) = delivery_cookies(policing, "h21")
    counted = vswitches["h21"].delivered

    def traffic():
        counted[v4] = counted.get(v4, 0) + 5_000_000

    for _ in range(2):
        a_second(policing, clock, traffic)
    assert [d.reservation for d in policing.deliveries([other, one])] == [other, one]
    assert policing.delivery(one).there_mbps == pytest.approx(30.0)
    assert policing.delivery(other).there_mbps == pytest.approx(10.0)


def test_a_vswitch_without_meters_keeps_its_rules_and_is_named(policing, vswitches):
    vswitches["h12"].takes_meters = False
    reservation = reserved("h11", "h21")
    assert hold(policing, reservation) == {SERVERS["h12"]}
    policing.prepare([SERVERS["h12"]])
    assert policing.unanswered == frozenset(), "it has none: no use in asking again"
    assert list(policing.rules_for(SERVERS["h12"])) == []
    assert policing.delivery(reservation).unheld == ("h12",)
    vswitches["h12"].takes_meters = True
    policing.prepare([SERVERS["h12"]])
    assert policing.delivery(reservation).unheld == ()
    assert len(list(policing.rules_for(SERVERS["h12"]))) == 2


def test_a_vswitch_that_returns_is_given_all_of_it(policing, vswitches, fleet):
    hold(policing, reserved("h11", "h21"))
    numbers = set(vswitches["h11"].meters)
    fleet.switch_disconnected(SERVERS["h11"], vswitches["h11"])
    again = Vswitch(fleet, "h11", meters={77: Meter(1)})
    policing.prepare([SERVERS["h11"]])
    assert set(again.meters) == numbers
    assert {rule.args[-1] for rule in policing.rules_for(SERVERS["h11"])} >= numbers


def test_a_tor_holds_each_of_its_servers_to_its_part(clock):
    fabric = openflow_only(FABRIC)
    fleet = Fleet(fabric, post=lambda function: function())
    tors = [Vswitch(fleet, rack.name, at=rack.tor.datapath_id) for rack in fabric.racks]
    policing = Policing(fabric=fabric, fleet=fleet, timeout_s=PATIENCE_S, clock=clock)
    reservation = reserved("h11", "h21")
    datapaths = frozenset(tor.datapath for tor in tors)
    assert hold(policing, reservation, ready=datapaths) == NOBODY
    assert len(tors[0].meters) == 3, "what h11 reserved, and best effort of h11 and of h12"
    assert sum(mbps(tors[0])) == pytest.approx(97.0, abs=0.01)
    ports = {rule.args[-1] for rule in policing.rules_for(tors[0].datapath)}
    assert ports == {server_port(0), server_port(1)}
    delivered = [
        rule.cookie
        for rule in policing.rules_for(tors[1].datapath)
        if rule.cookie & DELIVERY_COUNTERS_MASK == DELIVERY_COUNTERS
    ]
    tors[1].delivered = dict.fromkeys(delivered, 0)
    a_second(policing, clock)
    tors[1].delivered[delivered[0]] += 5_000_000
    a_second(policing, clock)
    delivery = policing.delivery(reservation)
    assert delivery.there_mbps == pytest.approx(40.0)
    assert delivery.unheld == ()
    tors[0].takes_meters = False
    policing.prepare([tors[0].datapath])
    assert policing.delivery(reservation).unheld == ("h11", "h12")


def test_one_that_does_not_answer_has_to_be_synchronised(policing, vswitches):
    vswitches["h12"].send = lambda message: None
    reservation = reserved("h11", "h21")
    assert hold(policing, reservation) == {SERVERS["h12"]}
    assert policing.delivery(reservation).unheld == ("h12",)


def test_those_that_are_not_ready_are_left_alone(policing, vswitches):
    hold(policing, reserved("h11", "h21"), ready=ALL - {SERVERS["h12"]})
    assert vswitches["h12"].log == []
    policing.prepare([SERVERS["h12"]])
    assert len(vswitches["h12"].meters) == 1


def test_meters_that_take_long_to_read_are_read_less_often(policing, vswitches, clock, monkeypatch):
    hold(policing, reserved("h11", "h21"))
    rests_s = []

    def rest(seconds):
        rests_s.append(seconds)
        clock.now += seconds
        return len(rests_s) == 3

    monkeypatch.setattr(policing, "_ended", SimpleNamespace(wait=rest))
    worked = Clock()
    monkeypatch.setattr(policing, "_work_clock", worked)
    own = policing._fleet.meter_counters

    def slow(*args):
        worked.now += 0.2
        clock.now += 5.0  # a vswitch did not answer: no work
        return own(*args)

    monkeypatch.setattr(policing._fleet, "meter_counters", slow)
    policing._repeat()
    assert rests_s == pytest.approx([1.0, 3.2, 3.2])


def test_the_thread_ends_when_told(fleet, vswitches):
    policing = Policing(fabric=FABRIC, fleet=fleet, timeout_s=PATIENCE_S)
    policing.start()
    assert "pacer" in {thread.name for thread in threading.enumerate()}
    policing.stop()
    assert "pacer" not in {thread.name for thread in threading.enumerate()}


def test_a_vswitch_that_is_late_with_the_removal_of_a_meter_is_to_be_brought(policing, vswitches):
    h11, one = vswitches["h11"], reserved("h11", "h21")
    assert hold(policing, one) == NOBODY
    send = h11.send

    def late_once(message):
        if any(_removes_a_meter(part) for part in split(message)):
            h11.send = send
            return
        send(message)

    h11.send = late_once
    assert hold(policing) == {SERVERS["h11"]}
    assert policing.unanswered == {SERVERS["h11"]}
    policing.prepare([SERVERS["h11"]])
    assert policing.unanswered == frozenset()
    assert hold(policing, one) == NOBODY
    assert policing.delivery(one).unheld == ()


def _removes_a_meter(message):
    return message[1] == TYPE_METER_MOD and struct.unpack_from("!H", message, 8) == (2,)


def test_a_switch_over_concerns_the_switches_at_the_ends_of_lost_paths(policing):
    second = path_of(FABRIC, 0, 1, circuit_between(FABRIC, 0, 1, plane=1))
    protected = replace(
        reserved("r1", "r2"), path=ONE_HOP, protection=second, protect=Protect.DISJOINT
    )
    other = reserved("r1", "r3", name="b", booked=ELSEWHERE)
    both = state_of(FABRIC, NetworkState(), ONE_HOP, second, ELSEWHERE)
    hold(policing, protected, other, state=both)
    assert policing.survivors(both, {ONE_HOP, ELSEWHERE}) == {ONE_HOP: second}
    assert policing.survivors(both, {second}) == {second: ONE_HOP}
    assert policing.survivors(both, {ELSEWHERE}) == {}
    assert policing.survivors(DIRECT, {ONE_HOP}) == {}, "the second path does not stand"
    assert policing.switch_over({ELSEWHERE}) == {}
    changes = policing.switch_over({ONE_HOP})
    assert changes.keys() == {dp for name, dp in SERVERS.items() if name[:2] in {"h1", "h2"}}
    assert all(changes.values())
    assert policing.switch_over({ONE_HOP}) == {}, "the traffic has moved already"
    assert policing.survivors(both, {second}) == {}, "the working path is lost as well"
