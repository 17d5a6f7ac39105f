"""Two changes in stages, which take turns: neither loses its goal to detours of the other change,
or to an ended change.
"""

from dataclasses import replace

import pytest

from hydra.errors import PlanError
from hydra.model import NetworkState
from tests.unit.controller.test_staging import AFTER, Staged, with_paths
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, state_of


def with_drivers(fabric):
    planes = (
        replace(one, driver="polatis-scpi", address=f"127.0.0.1:{1 + one.id}")
        for one in fabric.planes
    )
    tors = [
        replace(one.tor, driver="ovs-ovsdb", address="unix:/nowhere.sock") for one in fabric.racks
    ]
    racks = (replace(one, tor=tor) for one, tor in zip(fabric.racks, tors, strict=True))
    return replace(fabric, planes=tuple(planes), racks=tuple(racks))


FABRIC = with_drivers(small_fabric(racks=7, planes=4))


def path(a, b, plane):
    return path_of(FABRIC, a, b, circuit_between(FABRIC, a, b, plane))


OVER = {3: (path(0, 3, 2), path(2, 3, 3)), 4: (path(0, 4, 3), path(2, 4, 2))}
"""By rack: circuits over which r1 and r3 may have a detour."""
STANDING = state_of(FABRIC, NetworkState(), path(0, 1, 0), path(0, 2, 1), *OVER[3], *OVER[4])


def swap(staged, *first):
    """A change by which r1 joins r2 and r3 on each other's planes; ``first`` are made before.

    There is electrical room for one pair: so the other pair has to wait, on a detour if possible.
    """
    gone, come = (path(0, 1, 0), path(0, 2, 1)), (path(0, 1, 1), path(0, 2, 0), *first)
    return staged.begin(with_paths(staged.ledger.network.state, gone, come))


def clear(staged, over):
    """A change that takes down the circuits over a rack, after a change that joins r7."""
    return staged.begin(with_paths(staged.ledger.network.state, OVER[over], [path(over, 6, 0)]))


def sending(over, before=STANDING):
    """The network with traffic that makes both changes take stages, of this rack too."""
    staged = Staged(before=before, fabric=FABRIC)
    for a, b, mbps in ((0, 1, 10), (0, 2, 10), (1, 5, 1), (over, 6, 1), (over, 0, 8), (over, 2, 9)):
        staged.sent_mbps[a, b] = mbps
    return staged


def finish(staged):
    """The paths of pairs on the way."""
    had = set()
    while staged.queue:
        had.update(staged.ledger.network.state.topology.paths)
        staged.next()
    assert not staged.staging.under_way
    return had


@pytest.mark.parametrize("over", [3, 4])
@pytest.mark.parametrize("swap_first", [True, False])
def test_nobody_waits_on_circuits_that_the_other_is_to_take_down(over, swap_first):
    staged = sending(over)
    if swap_first:
        swap(staged, path(1, 5, 2))
        clear(staged, over)
    else:
        clear(staged, over)
        swap(staged)
    had = finish(staged)
    assert {one.circuits[0] for one in had if one.hops > 1} == {OVER[7 - over][0].circuits[0]}
    come = {path(0, 1, 1), path(0, 2, 0), path(over, 6, 0), *OVER[7 - over]}
    come |= {path(1, 5, 2)} if swap_first else set()
    assert set(staged.ledger.network.state.topology.paths) == come


def test_nobody_waits_on_a_circuit_that_another_change_has_made():
    """The change leaves the circuit, with all detours on it: a pair on it would wait for good."""
    staged = sending(3, before=state_of(FABRIC, NetworkState(), path(0, 1, 0), path(0, 2, 1)))
    swap(staged, path(1, 5, 2))
    staged.begin(with_paths(staged.ledger.network.state, come=OVER[3]))
    finish(staged)
    come = {path(0, 1, 1), path(0, 2, 0), path(1, 5, 2), *OVER[3]}
    assert set(staged.ledger.network.state.topology.paths) == come


def test_a_change_that_can_not_be_begun_keeps_nothing_from_others(monkeypatch):
    staged = Staged()
    staged.begin()

    def fails(*_arguments, **_named):
        raise PlanError("a device is away")

    with monkeypatch.context() as patch, pytest.raises(PlanError):
        patch.setattr(staged.staging._mover, "move", fails)
        staged.begin(
            with_paths(staged.ledger.network.state, gone=staged.ledger.network.state.topology.paths)
        )
    finish(staged)
    assert staged.ledger.network.state.topology == AFTER.topology


def test_nor_does_one_that_was_stopped_before_it_took_what_both_want():
    staged = sending(3)
    staged.sent_mbps[3, 0] = 17  # more than the electrical room, so it is not the first
    gone = (path(0, 1, 0), path(0, 2, 1), path(0, 3, 2))
    come = (path(0, 1, 1), path(0, 2, 0), path(0, 6, 2), path(1, 5, 2))
    staged.begin(with_paths(staged.ledger.network.state, gone, come))
    later = clear(staged, 3)  # r1's port to r4 is in the change's goal
    staged.next()
    staged.rooms.loop.stop(later, "an operator")
    finish(staged)
    left = {path(2, 3, 3), path(3, 6, 0), *OVER[4]}
    assert set(staged.ledger.network.state.topology.paths) == {*come, *left}
