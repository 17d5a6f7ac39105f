"""Ways of sharing circuits, on demands that change."""

import numpy as np
import pytest

from apps.traces.windows import Window
from hydra.policy import Sharing
from mininet_scenarios.experiments.tournament import policy_matrix
from mininet_scenarios.experiments.tournament.policy_matrix import ALONE, courses, fabric, variants

pytestmark = pytest.mark.takes(6)

PORT_MBPS = 100.0
NETWORK = fabric(4, 2, PORT_MBPS, 0.1)
"""Racks with 200 Mbps on circuits, and 20 electrically."""
ONE_WAY = fabric(4, 2, PORT_MBPS, 0.1, one_way=True)
ONE_PLANE = fabric(4, 1, PORT_MBPS, 0.1)
ONE_PLANE_ONE_WAY = fabric(4, 1, PORT_MBPS, 0.1, one_way=True)


def window(number, *flows):
    demand = np.zeros((4, 4))
    for src, dst, mbps in flows:
        demand[src, dst] = mbps
    return Window(number, 10.0 * number, len(flows), demand)


def test_every_way_of_sharing_meets_every_algorithm_of_duplex_circuits():
    names = [variant.name for variant in variants(NETWORK)]
    assert len(set(names)) == len(names)
    assert names[0] == ALONE.name
    by_sharing = {
        sharing: {name.partition(", ")[2] for name in names if name.startswith(sharing.value)}
        for sharing in Sharing
    }
    assert by_sharing.pop(Sharing.SLOTTED) == {"tms-duplex"}
    assert {"hydra-bfs", "hydra-bfs+", "edmonds"} <= by_sharing[Sharing.BY_DEMAND]
    assert "helios" not in by_sharing[Sharing.BY_DEMAND]  # of one-way circuits
    assert len({frozenset(algorithms) for algorithms in by_sharing.values()}) == 1


def test_all_but_slots_are_tried_with_one_way_circuits_too():
    names = {variant.name for variant in variants(ONE_WAY)}
    shared = [sharing for sharing in Sharing if sharing is not Sharing.SLOTTED]
    assert names == {
        f"{sharing.value}, {name}" for sharing in shared for name in ("helios", "b-matching")
    }
    assert not names & {variant.name for variant in variants(NETWORK)}


def test_one_way_circuits_serve_a_ring_of_demand_that_duplex_ones_can_not():
    ring = [window(0, (0, 1, 90.0), (1, 2, 90.0), (2, 3, 90.0), (3, 0, 90.0))]
    duplex = {one.policy: one for one in courses(ONE_PLANE, "ring", ring, 10.0)}
    one_way = {one.policy: one for one in courses(ONE_PLANE_ONE_WAY, "ring", ring, 10.0)}
    assert duplex[ALONE.name].served_share == pytest.approx(0.1)
    # Two circuits of four.
    assert duplex["by-demand, edmonds"].served_share == pytest.approx(0.6, abs=0.05)
    assert one_way["by-demand, helios"].served_share > 0.95
    assert one_way["by-demand, helios"].changes == 1


def test_a_demand_that_fits_on_a_circuit_is_served_but_for_what_changes_cost():
    steady = [window(number, (0, 1, 50.0)) for number in range(3)]
    found = {one.policy: one for one in courses(NETWORK, "steady", steady, 10.0)}
    # The flow would use all of its rack's 200 Mbps; the circuit carries 100.
    assert found[ALONE.name].served_share == pytest.approx(0.1)
    assert found["by-demand, hydra-bfs"].served_share == pytest.approx(0.5, abs=0.01)
    assert found["by-demand, hydra-bfs"].changes == 1
    assert found["by-demand, hydra-bfs"].lasts_s == 30.0


def test_policies_follow_a_demand_that_moves():
    moving = [window(0, (0, 1, 90.0)), window(1, (0, 2, 90.0)), window(2, (0, 3, 90.0))]
    found = {one.policy: one for one in courses(NETWORK, "moving", moving, 10.0)}
    for sharing in Sharing:
        name = "tms-duplex" if sharing is Sharing.SLOTTED else "hydra-bfs+"
        course = found[f"{sharing.value}, {name}"]
        assert course.changes >= 3
        assert course.served_share > 2 * found[ALONE.name].served_share


def test_all_ports_are_filled_by_servers():
    rates = {len(rack.servers) * NETWORK.server_rate_mbps for rack in NETWORK.racks}
    assert rates == {2 * PORT_MBPS}
    assert NETWORK.electrical_rate_mbps == pytest.approx(20.0)
    assert len(NETWORK.server_by_name) == 4
    assert policy_matrix.base_policy(PORT_MBPS).elephant_mbps == pytest.approx(1.0)
