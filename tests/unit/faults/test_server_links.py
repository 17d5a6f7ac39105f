"""Servers' links dead in one direction: found, located, and found alive again."""

import itertools

import pytest

from hydra.faults.roll_call import RollCall
from hydra.faults.server_links import LinkDirection, ServerLinks, Witness, named
from hydra.model import VlanId
from tests.unit.core.fabrics import small_fabric

INTERVAL_S, TIMEOUT_S, TICK_S = 2.0, 1.0, 0.05
SENDING, RECEIVING = LinkDirection.SENDING, LinkDirection.RECEIVING
WITHIN_S = 3 * INTERVAL_S


def switch_of(server):
    return server.vswitch.datapath_id


class Racks:
    """Servers whose links pass all frames, except in dead directions."""

    def __init__(self, servers=3, racks=2, circuits=True):
        self.fabric = small_fabric(racks=racks, planes=1, servers=servers)
        self.roll = RollCall()
        self.links = ServerLinks(INTERVAL_S, TIMEOUT_S, self.roll)
        self.late = set()
        """Vswitches that answer no request, and neither send nor report probes."""
        self.dead = set()
        self.now_s = 100.0
        self.nonces = itertools.count()
        self.sent = 0
        self.loses = lambda _probe: False
        self.circuits = circuits
        self.watch()

    def watch(self, without=()):
        able = {r.id: [s for s in r.servers if s.name not in without] for r in self.fabric.racks}
        one, other = self.fabric.racks[:2]
        witnesses = {}
        if self.circuits:
            witnesses = {
                a.id: [Witness(server, VlanId(100)) for server in able[b.id][:2]]
                for a, b in ((one, other), (other, one))
            }
        self.links.watch(able, witnesses, self.now_s)

    def run(self, for_s, until=lambda: False):
        """Returns the elapsed time."""
        began_s = self.now_s
        while self.now_s < began_s + for_s and not until():
            for probe in self.links.due(self.now_s):
                nonces = [next(self.nonces) for _ in range(probe.copies)]
                self.sent += len(nonces)
                self.links.sent(probe, nonces)
                lost = (probe.src.name, SENDING) in self.dead
                lost |= (probe.dst.name, RECEIVING) in self.dead
                lost |= not self.late.isdisjoint(map(switch_of, (probe.src, probe.dst)))
                if not lost and not self.loses(probe):
                    for nonce in nonces:
                        self.links.probe_received(nonce, self.now_s)
            for switch in self.roll.take() - self.late:
                self.roll.answered(switch, self.now_s)
            self.now_s += TICK_S
        return self.now_s - began_s


@pytest.mark.parametrize("direction", LinkDirection)
@pytest.mark.parametrize(("servers", "circuits"), [(3, False), (2, True), (5, True)])
def test_a_dead_direction_is_found_within_three_intervals_and_no_other_is_blamed(
    direction, servers, circuits
):
    racks = Racks(servers, circuits=circuits)
    racks.run(5 * INTERVAL_S)
    assert racks.links.dead == {}
    racks.dead = {("h12", direction)}
    racks.run(WITHIN_S, lambda: bool(racks.links.dead))
    assert racks.links.dead == {"h12": {direction}}
    racks.run(10 * INTERVAL_S)
    assert racks.links.dead == {"h12": {direction}}


def test_of_two_servers_that_nobody_else_can_ask_both_may_be_dead():
    """Without these links, frames between the servers are no longer lost."""
    racks = Racks(2, circuits=False)
    racks.dead = {("h11", SENDING)}
    racks.run(WITHIN_S)
    assert racks.links.dead == {"h11": {SENDING}, "h12": {RECEIVING}}
    racks.dead = set()
    racks.run(10 * INTERVAL_S, lambda: not racks.links.dead)
    assert racks.links.dead == {}


@pytest.mark.parametrize("direction", LinkDirection)
def test_a_link_that_is_back_is_used_again(direction):
    racks = Racks()
    racks.dead = {("h11", direction)}
    racks.run(WITHIN_S)
    assert racks.links.dead == {"h11": {direction}}
    racks.dead = set()
    racks.run(5 * INTERVAL_S, lambda: not racks.links.dead)
    assert racks.links.dead == {}


def test_a_vswitch_that_lacked_rules_says_nothing_about_links():
    """Nor as a witness: all links of the rack are used again at once, and looked at anew."""
    racks = Racks(2, circuits=False)
    racks.dead = {("h11", SENDING), ("h11", RECEIVING), ("h21", SENDING)}
    racks.run(WITHIN_S)
    assert racks.links.dead.keys() == {"h11", "h12", "h21", "h22"}
    other_rack = {name: racks.links.dead[name] for name in ("h21", "h22")}
    racks.links.acquit({switch_of(racks.fabric.server_by_name["h11"])}, racks.now_s)
    assert racks.links.dead == other_rack
    racks.dead = {("h21", SENDING)}
    racks.run(10 * INTERVAL_S)
    assert racks.links.dead == other_rack


def test_links_that_others_found_dead_stay_dead():
    racks = Racks(5)
    racks.dead = {("h11", SENDING), ("h11", RECEIVING), ("h14", SENDING)}
    racks.run(2 * WITHIN_S, lambda: len(racks.links.dead) == 2)
    assert racks.links.dead.keys() == {"h11", "h14"}
    racks.links.acquit({switch_of(racks.fabric.server_by_name["h11"])}, racks.now_s)
    assert racks.links.dead == {"h14": {SENDING}}


def test_a_link_that_is_dead_besides_is_found_again():
    racks = Racks()
    racks.dead = {("h11", SENDING)}
    racks.run(WITHIN_S)
    racks.links.acquit({switch_of(racks.fabric.server_by_name["h11"])}, racks.now_s)
    assert racks.links.dead == {}
    racks.run(WITHIN_S, lambda: bool(racks.links.dead))
    assert racks.links.dead == {"h11": {SENDING}}


def test_both_directions_and_several_servers():
    racks = Racks(5)
    racks.dead = {("h11", SENDING), ("h13", RECEIVING), ("h22", SENDING), ("h22", RECEIVING)}
    racks.run(3 * WITHIN_S)
    assert racks.links.dead.keys() == {"h11", "h13", "h22"}
    assert racks.links.dead["h11"] == {SENDING}
    assert racks.links.dead["h13"] == {RECEIVING}


def test_what_a_full_queue_loses_is_no_dead_link():
    racks = Racks()
    turn = itertools.count()
    racks.loses = lambda _probe: next(turn) % 3 == 0
    racks.run(30 * INTERVAL_S)
    assert racks.links.dead == {}


def test_while_all_vswitches_are_late_no_link_is_dead_and_little_is_sent():
    racks = Racks(5)
    racks.run(2 * INTERVAL_S)
    racks.late = {switch_of(server) for server in racks.fabric.servers}
    before = racks.sent
    racks.run(10 * INTERVAL_S)
    assert racks.links.dead == {} and racks.links.unknown > 10
    assert racks.sent - before <= 10 * 10


def test_a_late_vswitch_is_no_dead_link_and_a_dead_link_beside_it_is_found():
    racks = Racks(5)
    racks.run(2 * INTERVAL_S)
    racks.late = {switch_of(racks.fabric.server_by_name["h11"])}
    racks.dead = {("h22", SENDING)}
    racks.run(10 * INTERVAL_S)
    assert racks.links.dead == {"h22": {SENDING}}


@pytest.mark.parametrize(("late", "dead"), [("h11", ("h12", RECEIVING)), ("h12", ("h11", SENDING))])
def test_the_neighbour_of_a_silent_vswitch_is_probed_by_others(late, dead):
    """In the ring, the silent switch would see one of the two directions of each neighbour."""
    racks = Racks(5)
    racks.run(2 * INTERVAL_S)
    racks.late = {switch_of(racks.fabric.server_by_name[late])}
    racks.run(2 * INTERVAL_S)
    racks.dead = {dead}
    racks.run(2 * WITHIN_S, lambda: bool(racks.links.dead))
    assert racks.links.dead == {dead[0]: {dead[1]}}
    racks.late = set()
    racks.dead = {dead, ("h14", RECEIVING)}
    racks.run(2 * WITHIN_S)
    assert racks.links.dead == {dead[0]: {dead[1]}, "h14": {RECEIVING}}


def test_a_tor_that_passes_nothing_is_found_as_soon_as_one_link():
    racks = Racks(5)
    racks.run(2 * INTERVAL_S)
    rack = racks.fabric.racks[0]
    racks.dead = {(server.name, one) for server in rack.servers for one in LinkDirection}
    racks.run(WITHIN_S)
    assert racks.links.dead.keys() < {server.name for server in rack.servers}
    assert len(racks.links.dead) == 4, "all but the last one, which no healthy one can ask"


def test_a_server_that_can_not_be_probed_is_not_blamed_and_keeps_its_verdict():
    racks = Racks()
    racks.dead = {("h11", SENDING), ("h12", SENDING)}
    racks.watch(without={"h11"})
    racks.run(2 * WITHIN_S)
    assert racks.links.dead == {"h12": {SENDING}}
    racks.watch(without={"h11", "h12"})
    racks.run(WITHIN_S)
    assert racks.links.dead == {"h12": {SENDING}}


def test_a_probe_that_no_switch_could_send_says_nothing():
    racks = Racks()
    for _ in range(200):
        for probe in racks.links.due(racks.now_s):
            racks.links.passed_over(probe, racks.now_s)
        racks.now_s += TICK_S
    assert racks.links.dead == {}


def test_one_probe_for_each_server_and_interval_while_all_is_well():
    racks = Racks(5)
    racks.run(INTERVAL_S)
    before = racks.sent
    racks.run(10 * INTERVAL_S)
    assert racks.sent - before == pytest.approx(10 * 10, rel=0.1)


def test_a_server_alone_in_its_rack_is_seen_by_its_paths():
    racks = Racks(1)
    racks.run(5 * INTERVAL_S)
    assert racks.sent == 0


def test_words():
    told = named("h11", frozenset(LinkDirection))
    assert told == ("h11 (outgoing traffic and incoming traffic is lost in spite of carrier)")
