"""The schedule of probes, and the meaning of their loss, on a simulated clock."""

import collections
import itertools

import pytest

from hydra.faults.roll_call import RollCall
from hydra.faults.surveillance import LOSSES, Surveillance
from hydra.model import NetworkState
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, state_of

FABRIC = small_fabric(racks=4, planes=2)
FIRST, SECOND = path_of(FABRIC, 0, 1), path_of(FABRIC, 2, 3)
FAR = circuit_between(FABRIC, 1, 2, plane=1)
RELAYED = path_of(FABRIC, 0, 2, *FIRST.circuits, FAR)
DIRECT = state_of(FABRIC, NetworkState(), FIRST, SECOND)
SHARED = state_of(FABRIC, NetworkState(), FIRST, RELAYED)
INTERVAL_S, TIMEOUT_S = 2.0, 0.5
ENDS = ((1, 2),)


class Air:
    """Carries probes, except in the directions of ``dead``: {(path, source rack)}."""

    def __init__(self, state, fabric=FABRIC):
        self.fabric = fabric
        self.roll = RollCall()
        self.watched = Surveillance(fabric, INTERVAL_S, 1.0, self.roll)
        self.watched.watch(state, (), 0.0)
        self.now_s = 0.0
        self.dead = set()
        self.sent = []
        self.lost = []
        self._nonces = itertools.count(1)
        self.narrow = set()
        self.late = set()
        """Racks whose switches answer no request, and neither send nor report probes."""

    def run(self, until_s, step_s=0.01):
        while self.now_s < until_s:
            self.now_s += step_s
            ready, lost = self.watched.due(self.now_s)
            self.lost += [(self.now_s, one) for one in lost]
            for way in ready:
                nonces = [next(self._nonces) for _ in range(way.copies)]
                self.watched.sent(way, nonces, {(way.src, way.dst)}, self.now_s)
                self.sent.append((self.now_s, way.src, way.dst, len(nonces)))
                dead = self.dead | (self.narrow if way.full_size else set())
                if dead.isdisjoint(way.circuits) and self.late.isdisjoint((way.src, way.dst)):
                    for nonce in nonces:
                        self.carry(nonce)
            self.answer()

    def carry(self, nonce):
        self.watched.probe_received(nonce, self.now_s + 0.001)

    def answer(self):
        """Let the switches answer outstanding requests."""
        for switch in self.roll.take() - self.late:
            self.roll.answered(switch, self.now_s)

    def narrow_down(self, path):
        """Have the circuits of ``path`` pass small frames only."""
        self.narrow.update((one, end) for one in path.circuits for end in (one.a, one.b))

    def cut(self, path, src):
        """Kill the only circuit of ``path`` in the direction from ``src``."""
        (circuit,) = path.circuits
        ends = {self.fabric.ports[end].rack: end for end in (circuit.a, circuit.b)}
        self.dead.add((circuit, ends[src]))


def test_each_direction_is_probed_once_an_interval_and_not_all_at_once():
    air = Air(DIRECT)
    air.run(10 * INTERVAL_S)
    assert air.lost == []
    for ends in ((0, 1), (1, 0), (2, 3), (3, 2)):
        times = [s for s, src, dst, _ in air.sent if (src, dst) == ends]
        assert len(times) in (9, 10)
        gaps = [b - a for a, b in itertools.pairwise(times)]
        assert min(gaps) >= INTERVAL_S - 0.02 and max(gaps) <= INTERVAL_S + 0.02
    assert len({s for s, *_ in air.sent}) == len(air.sent)


@pytest.mark.parametrize("src", [0, 1])
@pytest.mark.parametrize("cut_s", [4.0, 4.7, 5.9])
def test_one_dead_direction_is_found_within_an_interval_and_three_time_outs(cut_s, src):
    air = Air(DIRECT)
    air.run(cut_s)
    air.cut(FIRST, src)
    air.run(cut_s + INTERVAL_S + LOSSES * TIMEOUT_S + 0.05)
    ((_, lost), *_) = air.lost
    assert (lost.path, lost.circuits) == (FIRST, frozenset(FIRST.circuits))
    assert "3 probes in a row lost from r" in lost.reason
    assert {one.path for _, one in air.lost} == {FIRST}


def test_a_path_that_passes_small_frames_alone_is_found_and_told_as_that():
    air = Air(DIRECT)
    air.run(4.0)
    air.narrow_down(FIRST)
    air.run(4.0 + 5 * INTERVAL_S)
    assert {one.path for _, one in air.lost} == {FIRST}
    (_, lost), *_ = air.lost
    assert lost.circuits == frozenset(FIRST.circuits)
    assert lost.reason.endswith("at full frame size: smaller probes had arrived")


def test_for_very_many_paths_the_interval_grows():
    fabric = small_fabric(racks=4, planes=2)
    slow = Surveillance(fabric, 0.001, 1.0, RollCall())
    slow.watch(DIRECT, (), 0.0)
    ready, _ = slow.due(0.002)
    assert len(ready) == 1, "four ways at 700 a second take 5.7 ms"


def test_the_repeated_probes_are_several_frames():
    air = Air(DIRECT)
    air.cut(FIRST, 0)
    air.run(INTERVAL_S + LOSSES * TIMEOUT_S + 0.05)
    assert [copies for _, src, dst, copies in air.sent if (src, dst) == (0, 1)] == [1, 4, 8]


def test_two_losses_are_forgiven():
    air = Air(DIRECT)
    air.run(2 * INTERVAL_S)
    air.cut(FIRST, 0)
    while [copies for *_, copies in air.sent][-1] < 4:
        air.run(air.now_s + 0.01)
    air.dead.clear()
    air.run(air.now_s + 3 * INTERVAL_S)
    assert air.lost == []


def test_a_frame_that_comes_late_counts():
    air = Air(DIRECT)
    ready = []
    while not ready:
        air.now_s += 0.01
        ready, _ = air.watched.due(air.now_s)
    (way,) = ready
    air.watched.sent(way, [77], ENDS, air.now_s)
    air.now_s += 0.8 * TIMEOUT_S
    air.watched.due(air.now_s)
    air.answer()
    air.now_s += 0.2 * TIMEOUT_S + 0.01
    again, _ = air.watched.due(air.now_s)
    assert way in again and way.lost == 1
    air.watched.sent(way, [78, 79], ENDS, air.now_s)
    air.watched.probe_received(77, air.now_s + 0.01)
    assert way.lost == 0
    air.watched.probe_received(78, air.now_s + 0.02)  # no longer awaited


def test_a_circuit_that_works_for_another_path_is_not_blamed():
    """r1-r2-r3 shares its first circuit with r1-r2; the second hop is dead one way."""
    air = Air(SHARED)
    air.run(2 * INTERVAL_S)
    first, second = RELAYED.circuits
    assert first in FIRST.circuits
    rack_2_end = next(e for e in (second.a, second.b) if FABRIC.ports[e].rack == 1)
    air.dead.add((second, rack_2_end))
    air.run(air.now_s + INTERVAL_S + LOSSES * TIMEOUT_S + 0.05)
    assert {(one.path, one.circuits) for _, one in air.lost} == {(RELAYED, frozenset({second}))}


def test_where_all_circuits_work_the_path_alone_is_lost():
    """For example, its VLAN is broken; the circuits carry other paths."""
    air = Air(state_of(FABRIC, NetworkState(), FIRST, path_of(FABRIC, 1, 2, FAR), RELAYED))
    blocked = {(RELAYED.src, RELAYED.dst)}
    while not air.lost and air.now_s < 10:
        air.now_s += 0.01
        ready, lost = air.watched.due(air.now_s)
        air.lost += [(air.now_s, one) for one in lost]
        for way in ready:
            nonce = next(air._nonces)
            air.watched.sent(way, [nonce], ENDS, air.now_s)
            if (way.src, way.dst) not in blocked:
                air.watched.probe_received(nonce, air.now_s)
        air.answer()
    ((_, lost),) = air.lost
    assert (lost.path, lost.circuits) == (RELAYED, frozenset())


def test_what_nobody_can_send_is_not_lost():
    air = Air(DIRECT)
    for _ in range(2000):
        air.now_s += 0.01
        ready, lost = air.watched.due(air.now_s)
        assert not lost
        for way in ready:
            air.watched.passed_over(way, air.now_s)


def test_pairs_that_move_are_left_in_peace_and_come_back_fresh():
    air = Air(DIRECT)
    air.cut(FIRST, 0)
    air.run(INTERVAL_S / 2)
    air.watched.watch(DIRECT, {(0, 1)}, air.now_s)
    air.sent.clear()
    air.run(air.now_s + 3 * INTERVAL_S)
    assert air.lost == []
    assert {src for _, src, *_ in air.sent} == {2, 3}
    air.dead.clear()
    air.watched.watch(DIRECT, (), air.now_s)
    air.run(air.now_s + 3 * INTERVAL_S)
    assert air.lost == []
    assert {src for _, src, *_ in air.sent} == {0, 1, 2, 3}


@pytest.mark.parametrize("before_s", [0.1, 0.6, INTERVAL_S])
def test_what_died_before_its_pair_moved_is_found_soon_after(before_s):
    """Within three time-outs, for any position of the next probe in the interval."""
    air = Air(DIRECT)
    air.run(4 * INTERVAL_S)
    air.cut(FIRST, 1)
    air.run(air.now_s + before_s)
    air.watched.watch(DIRECT, {(0, 1)}, air.now_s)
    air.run(air.now_s + INTERVAL_S)
    assert air.lost == []
    air.watched.watch(DIRECT, (), air.now_s)
    came_back_s = air.now_s
    air.run(came_back_s + INTERVAL_S)
    (found_s, _), *_ = air.lost
    assert found_s <= came_back_s + LOSSES * TIMEOUT_S + 0.05


def test_very_many_paths_that_come_back_are_not_probed_all_at_once():
    fabric = small_fabric(racks=64, planes=1)
    paths = [path_of(fabric, rack, rack + 1) for rack in range(0, 64, 2)]
    state = state_of(fabric, NetworkState(), *paths)
    watched = Surveillance(fabric, INTERVAL_S, 1.0, RollCall())
    watched.watch(state, (), 0.0)
    watched.watch(state, {(path.src, path.dst) for path in paths}, 1.0)
    watched.watch(state, (), 2.0)
    at_once, _ = watched.due(2.0)
    soon, _ = watched.due(2.2)
    assert len(at_once) <= 2
    assert len(at_once) + len(soon) == 2 * len(paths)


def test_while_all_switches_are_late_nothing_is_lost_and_little_is_sent():
    air = Air(DIRECT)
    air.run(2 * INTERVAL_S)
    air.late = {0, 1, 2, 3}
    air.sent.clear()
    air.run(air.now_s + 10 * INTERVAL_S)
    assert air.lost == [] and air.watched.unknown > 20
    assert {copies for *_, copies in air.sent} == {1}
    air.late = set()
    air.cut(FIRST, 0)
    began_s = air.now_s
    air.run(began_s + 2 * INTERVAL_S + LOSSES * TIMEOUT_S)
    assert {one.path for _, one in air.lost} == {FIRST}


def test_a_switch_that_answers_late_loses_no_probe_before_it_has_told_of_it():
    """The switch answers a request after it has reported earlier messages."""
    air = Air(DIRECT)
    air.run(2 * INTERVAL_S)
    waits = collections.deque()
    air.carry = lambda nonce: waits.append((nonce, None, air.now_s + 3 * TIMEOUT_S))
    air.answer = lambda: waits.extend(
        (None, (switch, air.now_s), air.now_s + 3 * TIMEOUT_S) for switch in air.roll.take()
    )
    for _ in range(2000):
        air.run(air.now_s + 0.01)
        while waits and waits[0][2] <= air.now_s:
            nonce, asked, _ = waits.popleft()
            if asked is None:
                air.watched.probe_received(nonce, air.now_s)
            else:
                air.roll.answered(*asked)
    assert air.lost == []


def test_a_whole_plane_that_is_dead_is_found_as_soon_as_one_path():
    fabric = small_fabric(racks=16, planes=1)
    paths = [path_of(fabric, rack, rack + 1) for rack in range(0, 16, 2)]
    air = Air(state_of(fabric, NetworkState(), *paths), fabric)
    air.run(2 * INTERVAL_S)
    for path in paths[:4]:
        air.cut(path, path.src)
        air.cut(path, path.dst)
    began_s = air.now_s
    air.run(began_s + INTERVAL_S + LOSSES * TIMEOUT_S + 0.05)
    assert {one.path for _, one in air.lost} == set(paths[:4])
    for path in paths[4:]:
        air.cut(path, path.src)
    air.run(air.now_s + INTERVAL_S + LOSSES * TIMEOUT_S + 0.05)
    assert {one.path for _, one in air.lost} == set(paths), "all at once are lost, too"


def test_a_path_that_stays_dead_is_told_again():
    air = Air(DIRECT)
    air.cut(FIRST, 0)
    air.run(8 * INTERVAL_S)
    assert len(air.lost) >= 2
