"""Room for detours: each circuit of the way, in both directions, to the last Mb/s."""

import numpy as np
import pytest

from hydra.reconfiguration.detours import DetourRoom, Detours
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, topology_of

FABRIC = small_fabric(racks=3, planes=2)
FIRST, SECOND = circuit_between(FABRIC, 0, 1), circuit_between(FABRIC, 1, 2, plane=1)
STANDING = topology_of(path_of(FABRIC, 0, 1, FIRST), path_of(FABRIC, 1, 2, SECOND))
DETOUR = path_of(FABRIC, 0, 2, FIRST, SECOND)


def room(sent, share=1.0):
    sent_mbps = np.zeros((3, 3))
    for ends, mbps in sent.items():
        sent_mbps[ends] = mbps
    detours = Detours(
        fabric=FABRIC,
        max_hops=2,
        closed=frozenset(),
        toward=lambda _state, _topology: pytest.fail("no state"),
    )
    return DetourRoom(detours=detours, topology=STANDING, sent_mbps=sent_mbps, share=share)


LOADS = {(0, 1): 60.0, (1, 0): 20.0, (1, 2): 50.0, (2, 1): 10.0}
"""Of circuits of 100 Mb/s: 40 and 80 are left on the first, 50 and 90 on the second."""


def test_a_detour_may_fill_its_circuits_in_both_directions_once():
    exact = room({**LOADS, (0, 2): 40.0, (2, 0): 80.0})
    assert exact.take((0, 2)) == DETOUR
    assert exact.take((0, 2)) is None
    exact.give_back(DETOUR)
    assert exact.take((0, 2)) == DETOUR


@pytest.mark.parametrize(
    ("loads", "there_mbps", "back_mbps"),
    [
        (LOADS, 40.1, 0.0),
        (LOADS, 0.0, 80.1),
        ({**LOADS, (0, 1): 0.0}, 50.1, 0.0),
        ({**LOADS, (1, 0): 0.0}, 0.0, 90.1),
    ],
    ids=["first circuit there", "first circuit back", "second there", "second back"],
)
def test_no_detour_takes_more_than_is_left(loads, there_mbps, back_mbps):
    assert room({**loads, (0, 2): there_mbps, (2, 0): back_mbps}).take((0, 2)) is None


def test_detours_take_their_share_of_what_is_left_alone():
    assert room({**LOADS, (0, 2): 20.1}, share=0.5).take((0, 2)) is None
    assert room({**LOADS, (0, 2): 20.0}, share=0.5).take((0, 2)) == DETOUR


def test_a_circuit_that_is_shut_is_on_no_detour():
    half = room({(0, 2): 1.0})
    assert half.take((0, 2), half.numbers([SECOND])) is None
    assert half.take((0, 2), half.numbers([FIRST])) is None
    assert half.take((0, 2)) == DETOUR
