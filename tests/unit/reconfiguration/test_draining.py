"""The waits of a drain, and parts left to another change."""

from hydra.model import NetworkState
from hydra.policy import DrainPolicy
from hydra.reconfiguration.commands import Outcome, PassMarkers, ReadPortPackets
from hydra.reconfiguration.draining import Draining
from hydra.reconfiguration.plan import diff, pair_of
from tests.unit.core.fabrics import order_of, path_of, small_fabric, state_of

FABRIC = small_fabric(racks=4, planes=1, servers=1)
HERE, THERE = path_of(FABRIC, 0, 1), path_of(FABRIC, 2, 3)
POLICY = DrainPolicy(reads=3, interval_ms=10.0, bound_ms=500.0)


def drained(let_go):
    """Steps of a drain of two paths, of which one never falls silent and passes no marker.

    With ``let_go``, another change takes that path over after the first step.
    """
    standing = state_of(FABRIC, NetworkState(), HERE, THERE)
    plan = diff(FABRIC, standing, NetworkState(1), order_of(FABRIC))
    draining = Draining.of(FABRIC, plan, frozenset(), POLICY, cache_report=True)
    servers = {rack.id: list(rack.servers) for rack in FABRIC.racks}
    course, now_s, steps = draining.run(servers, servers, ()), 0.0, 0
    busy = {FABRIC.racks[rack].id for rack in pair_of(HERE)}
    try:
        batch = next(course)
        while True:
            if let_go and steps == 1:
                draining.let_go({pair_of(HERE)}, frozenset(HERE.circuits[0].ends))
            steps += 1
            outcomes = []
            for command in batch.commands:
                value = None
                if isinstance(command, PassMarkers):
                    value = tuple(one for one in command.markers if one.path == HERE)
                elif isinstance(command, ReadPortPackets):
                    assert not (let_go and steps > 2 and command.rack in busy), "another reads it"
                    count = steps if command.rack in busy else 0
                    value = dict.fromkeys(command.ports, count)
                outcomes.append(Outcome(value, started_s=now_s, finished_s=now_s + 0.01))
            now_s += 0.01
            batch = course.send(outcomes)
    except StopIteration:
        return draining, steps


def test_it_waits_for_what_carries_frames_until_its_bound():
    draining, _ = drained(let_go=False)
    assert draining.bound_reached
    assert draining.busy() == list(HERE.circuits)
    assert draining.unproven(probed=True) == [HERE]


def test_it_waits_no_more_for_what_another_has_taken_over():
    draining, steps = drained(let_go=True)
    assert steps == 5, "three readings with a pause between them"
    assert not draining.bound_reached
    assert draining.busy() == []
    assert draining.unproven(probed=True) == []
