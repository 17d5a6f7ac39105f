"""Weeks of given slots: reserved circuits, ports out of use, and expectations."""

import numpy as np
import pytest

from apps.planning.engine import Planning
from hydra.errors import PlanError
from hydra.model import NetworkState, Topology
from hydra.policy import Policy
from hydra.reservations.reservation import Pin
from hydra.service import PlanRequest
from hydra.sharing.given_schedule import GivenSchedule, GivenSlot
from tests.unit.core.fabrics import path_of, small_fabric, with_one_way_circuits

FABRIC = small_fabric(racks=6, planes=1)
FIRST, SECOND, ASIDE = path_of(FABRIC, 0, 1), path_of(FABRIC, 0, 2), path_of(FABRIC, 4, 5)


def schedule(*paths):
    slots = tuple(
        GivenSlot(Topology(frozenset(path.circuits), (path,)), length_s)
        for length_s, path in enumerate(paths, start=1)
    )
    return GivenSchedule("listed", slots)


def week(*paths, pins=(), blocked=(), fabric=FABRIC, **more):
    demand = np.zeros((6, 6))
    demand[0, 1] = 60.0
    before = NetworkState(), PlanRequest()
    return Planning(fabric, Policy()).week(
        *before, demand, pins, blocked, schedule(*paths), 0.5, **more
    )


def test_slots_keep_their_order_and_lengths_and_tell_what_they_carry():
    planned = week(FIRST, SECOND)
    assert [(slot.state.topology.paths, slot.length_s) for slot in planned.slots] == [
        ((FIRST,), 1.0),
        ((SECOND,), 2.0),
    ]
    assert [change.target for change in planned.changes] == [
        planned.slots[1].state,
        planned.slots[0].state,
    ]
    assert planned.served_mbps == pytest.approx(60.0 * (1.0 - 0.5) / 3.0)
    assert planned.demand_mbps == 60.0


def test_reserved_circuits_stand_in_all_slots():
    planned = week(FIRST, SECOND, pins=(Pin(ASIDE.src, ASIDE.dst, ASIDE, 10.0, ("one",)),))
    assert all(ASIDE in slot.state.topology.paths for slot in planned.slots)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"blocked": FIRST.circuits[0].ends}, "slot 1 of listed: r1 =p1= r2 can't be made"),
        (
            {"pins": (Pin(SECOND.src, SECOND.dst, SECOND, 10.0, ("one",)),)},
            "slot 1 of listed: r1 =p1= r2 needs a port of r1 =p1= r3, which stays",
        ),
        ({"fabric": with_one_way_circuits(FABRIC)}, "circuits of this fabric are unidirectional"),
        ({"expired": lambda: True}, "listed has 2 slots, too many to plan in time"),
    ],
)
def test_what_can_not_be_followed_is_one_error(more, told):
    with pytest.raises(PlanError, match=told):
        week(FIRST, SECOND, **more)
