from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_fabrics import (
    VLANS,
    arrays,
    budgets,
    circuit,
    demand_of,
    demands,
    fabrics,
    full,
    path,
    topology_of,
)

from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY, NetworkState, Topology, VlanId, VlanRange
from hydra.vlan_pool import VlanPool
from topology.checks import check_topology, check_transit, check_vlans
from topology.multihop import plan_hydra_bfs
from topology.problem import Budget, Reserved
from topology.transit import TransitOrder, transit_order
from topology.vlan import allocate

START = NetworkState()


def line(n_racks):
    """Racks in a row; ports 2i and 2i + 1 join racks i and i + 1, on plane i."""
    ports = [(rack, plane) for plane in range(n_racks - 1) for rack in (plane, plane + 1)]
    return arrays(n_racks, n_racks - 1, ports)


def along(fabric, src, dst):
    """The path from ``src`` to ``dst`` on a :func:`line`."""
    return path(src, dst, *(circuit(fabric, 2 * hop, 2 * hop + 1) for hop in range(src, dst)))


def test_an_empty_topology_needs_no_vlan():
    assert allocate(full(3, 1), START, EMPTY_TOPOLOGY, VLANS) == NetworkState(epoch=1)


def test_all_paths_along_a_line_share_one_vlan():
    fabric = line(4)
    paths = [along(fabric, a, b) for a, b in combinations(range(4), 2)]
    state = allocate(fabric, START, topology_of(*paths), VLANS)
    assert set(state.vlans.values()) == {100}


def test_paths_that_overlap_share_a_vlan():
    fabric = line(4)
    state = allocate(fabric, START, topology_of(along(fabric, 0, 2), along(fabric, 1, 3)), VLANS)
    assert set(state.vlans.values()) == {100}


def test_a_ring_needs_two_vlans():
    fabric = full(3, 3)
    ring = [
        path(0, 1, circuit(fabric, 0, 3)),
        path(1, 2, circuit(fabric, 4, 7)),
        path(0, 2, circuit(fabric, 2, 8)),
    ]
    state = allocate(fabric, START, topology_of(*ring), VLANS)
    assert sorted(state.vlans.values()) == [100, 100, 101]


def test_parallel_circuits_are_a_loop():
    fabric = full(3, 3)
    direct = path(0, 1, circuit(fabric, 0, 3))
    beside = path(0, 2, circuit(fabric, 1, 4), circuit(fabric, 5, 8))
    state = allocate(fabric, START, topology_of(direct, beside), VLANS)
    assert len(set(state.vlans.values())) == 2
    assert check_vlans(fabric, state, VLANS) == []


def test_seven_paths_between_six_racks_take_three_vlans_as_in_figure_4_of_hydra():
    """The paper's text gives the counts: one optical switch, six racks, seven paths, three VLANs;
    which racks it joins is in the drawing only.

    Here three are also the fewest: five circuits join racks 0 to 2, and a forest has room for two.
    """
    fabric = full(6, 1, per_plane=4)
    demand = demand_of(6, {(0, 1): 200.0, (1, 2): 200.0, (0, 2): 90.0, (2, 3): 60.0, (4, 5): 50.0})
    budget = Budget(3, paths_per_pair=2)
    result = plan_hydra_bfs(fabric, demand, EMPTY_TOPOLOGY, Reserved(), budget)
    state = allocate(fabric, START, result.topology, VLANS)
    assert result.served_share == 1.0
    assert check_topology(fabric, result.topology, 1, paths_per_pair=2) == []
    assert check_vlans(fabric, state, VLANS) == []
    assert (len(state.topology.paths), len(set(state.vlans.values()))) == (7, 3)
    assert _fewest(fabric, state.topology.paths) == 3


def test_paths_over_shared_circuits_share_vlans():
    """Seven paths of up to two hops around a ring of six racks, and across it."""
    fabric = full(6, 1, per_plane=3)

    def port(rack, k):
        return 3 * rack + k

    ring = [circuit(fabric, port(r, 0), port((r + 1) % 6, 1)) for r in range(6)]
    spoke = circuit(fabric, port(0, 2), port(3, 2))
    paths = [
        path(0, 1, ring[0]),
        path(0, 2, ring[0], ring[1]),
        path(2, 4, ring[2], ring[3]),
        path(3, 4, ring[3]),
        path(4, 5, ring[4]),
        path(0, 5, ring[5]),
        path(0, 3, spoke),
    ]
    state = allocate(fabric, START, topology_of(*paths), VLANS)
    assert check_topology(fabric, state.topology, 2) == []
    assert check_vlans(fabric, state, VLANS) == []
    assert len(set(state.vlans.values())) == _fewest(fabric, paths) == 2


def test_kept_paths_keep_their_vlan_and_new_ones_share_it_with_none_that_stands():
    """A plane that misdirects light would make ToRs learn its servers at a wrong port."""
    fabric = line(4)
    stays, *new = (along(fabric, at, at + 1) for at in range(3))
    first = allocate(fabric, START, topology_of(stays), VLANS)
    second = allocate(fabric, first, topology_of(stays, *new), VLANS)
    assert second.vlans == {stays: 100, **dict.fromkeys(new, 101)}
    assert (second.epoch, second.pool.resting) == (2, frozenset())


def test_where_the_range_is_short_new_paths_join_those_that_stand():
    """Two IDs for each port of the best connected rack stay free for later changes."""
    fabric = line(4)
    ports = int(np.bincount(fabric.port_rack).max())
    first_id, stays, comes = VlanId(100), along(fabric, 0, 1), along(fabric, 1, 2)
    for more, vlan in ((1, 101), (0, 100)):
        vlans = VlanRange(first_id, VlanId(first_id + 2 * ports + more))
        first = allocate(fabric, START, topology_of(stays), vlans)
        second = allocate(fabric, first, topology_of(stays, comes), vlans)
        assert second.vlans == {stays: 100, comes: vlan}


@pytest.mark.parametrize(
    ("last", "taken"), [(102, [100, 101, 102, 100]), (103, [100, 101, 102, 103])]
)
def test_a_freed_vlan_rests_for_an_epoch_and_for_longer_while_there_are_others(last, taken):
    fabric, vlans = full(4, 2), VlanRange(VlanId(100), VlanId(last))
    one, two, three = (
        topology_of(path(0, 1, circuit(fabric, 0, 2))),
        topology_of(path(0, 2, circuit(fabric, 0, 4))),
        topology_of(path(0, 3, circuit(fabric, 0, 6))),
    )
    first = allocate(fabric, START, one, vlans)
    second = allocate(fabric, first, two, vlans)
    third = allocate(fabric, second, three, vlans)
    fourth = allocate(fabric, third, one, vlans)
    used = [set(state.vlans.values()) for state in (first, second, third, fourth)]
    assert used == [{vlan} for vlan in taken]
    assert [state.pool.resting for state in (first, second, third, fourth)] == [
        frozenset(),
        {100},
        {101},
        {102},
    ]


def test_new_paths_stay_off_a_vlan_that_loses_one():
    fabric = line(4)
    stays, goes, comes = along(fabric, 0, 1), along(fabric, 1, 2), along(fabric, 2, 3)
    first = allocate(fabric, START, topology_of(stays, goes), VLANS)
    second = allocate(fabric, first, topology_of(stays, comes), VLANS)
    assert second.vlans == {stays: 100, comes: 101}
    assert second.pool.resting == frozenset()
    short = VlanRange(VlanId(100), VlanId(102))
    third = allocate(fabric, second, topology_of(stays, comes, goes), short)
    assert third.vlans[goes] == 100


def test_ports_that_an_old_circuit_still_joins_do_not_enter_one_vlan():
    # Old 0-1 and 2-3 on plane 0 become 0-2 and 1-3 there, beside a standing 0-1 on plane 1.
    # In one VLAN, tagged before the mirrors move, old 0-1 would be parallel to the standing one.
    fabric = full(4, 2)
    old = Topology(frozenset({circuit(fabric, 0, 2), circuit(fabric, 4, 6)}))
    stays = path(0, 1, circuit(fabric, 1, 3))
    left = path(0, 2, circuit(fabric, 0, 4))
    right = path(1, 3, circuit(fabric, 2, 6))
    before = NetworkState(
        1, Topology(old.circuits | set(stays.circuits), (stays,)), {stays: VlanId(100)}
    )
    after = allocate(fabric, before, topology_of(stays, left, right), VLANS)
    assert after.vlans[left] != after.vlans[right]
    assert transit_order(fabric, before, after) == TransitOrder()
    from_dark = allocate(fabric, START, topology_of(stays, left, right), VLANS)
    assert set(from_dark.vlans.values()) == {100}


def test_a_path_whose_vlan_left_the_range_gets_another():
    fabric = full(2, 1)
    direct = path(0, 1, circuit(fabric, 0, 1))
    before = NetworkState(4, topology_of(direct), {direct: VlanId(7)})
    after = allocate(fabric, before, topology_of(direct), VLANS)
    assert (after.vlans, after.pool.resting) == ({direct: 100}, {7})


def test_too_small_a_range_is_named():
    fabric = full(3, 3)
    ring = topology_of(
        path(0, 1, circuit(fabric, 0, 3)),
        path(1, 2, circuit(fabric, 4, 7)),
        path(0, 2, circuit(fabric, 2, 8)),
    )
    with pytest.raises(
        PlanError, match=r"100-100 does not suffice: new paths need 2 .* 1 are free"
    ):
        allocate(fabric, START, ring, VlanRange(VlanId(100), VlanId(100)))
    others = NetworkState(pool=VlanPool().closed_to({VlanId(100)}))
    with pytest.raises(PlanError, match=r"1 are free \(0 in use, 1 of changes under way\)"):
        allocate(fabric, others, ring, VlanRange(VlanId(100), VlanId(101)))


def test_where_others_are_too_few_those_at_rest_are_taken_the_longest_free_first():
    fabric, vlans = full(4, 2), VlanRange(VlanId(100), VlanId(103))
    one, other = (path(0, 1, circuit(fabric, port, port + 2)) for port in (0, 1))
    rest = NetworkState(
        pool=VlanPool(frozenset(map(VlanId, (100, 101, 102))), (VlanId(101), VlanId(100)))
    )
    assert allocate(fabric, rest, topology_of(one), vlans).vlans == {one: 103}
    after = allocate(fabric, rest, topology_of(one, other), vlans)
    assert set(after.vlans.values()) == {103, 101}, "102 was tried just now, and 100 lost later"
    assert after.pool == VlanPool(freed=(VlanId(100), VlanId(102)))
    assert check_vlans(fabric, after, vlans) == []


def test_a_range_for_one_change_is_never_locked_up():
    """A change of everything, with IDs for what is in use and what is set up, and none to rest."""
    fabric, vlans = full(4, 1), VlanRange(VlanId(100), VlanId(101))
    turns = [topology_of(path(0, rack, circuit(fabric, 0, rack))) for rack in (1, 2, 3)]
    state = START
    for number in range(6):
        state = allocate(fabric, state, turns[number % 3], vlans)
    assert set(state.vlans.values()) == {101}


def test_what_rests_and_is_in_use_is_joined_and_taken_by_nobody():
    fabric = full(4, 2)
    stays, comes = path(0, 1, circuit(fabric, 0, 2)), path(2, 3, circuit(fabric, 4, 6))
    state = NetworkState(
        1, topology_of(stays), {stays: VlanId(100)}, VlanPool(frozenset({VlanId(100)}))
    )
    with pytest.raises(PlanError, match="does not suffice"):
        allocate(fabric, state, topology_of(stays, comes), VlanRange(VlanId(100), VlanId(100)))


def test_more_vlans_than_the_tables_start_with():
    # 20 racks, each pair of them its own plane: a clique of direct paths needs many VLANs.
    n = 20
    pairs = list(combinations(range(n), 2))
    fabric = arrays(n, len(pairs), [(r, k) for k, pair in enumerate(pairs) for r in pair])
    paths = [path(a, b, circuit(fabric, 2 * k, 2 * k + 1)) for k, (a, b) in enumerate(pairs)]
    state = allocate(fabric, START, topology_of(*paths), VLANS)
    assert check_vlans(fabric, state, VLANS) == []
    assert n // 2 <= len(set(state.vlans.values())) <= n


# --- few VLANs ------------------------------------------------------------------------------


def _fewest(fabric, paths):
    """The smallest number of loop-free VLANs, by trying all ways to share them."""
    best = len(paths)

    def loop_free(group):
        links = {c for p in group for c in p.circuits}
        state = NetworkState(0, Topology(frozenset(links), ()), dict.fromkeys(group, VLANS.first))
        return not any("loop" in problem for problem in check_vlans(fabric, state, VLANS))

    def place(index, groups):
        nonlocal best
        if len(groups) >= best:
            return
        if index == len(paths):
            best = len(groups)
            return
        for group in groups:
            group.append(paths[index])
            if loop_free(group):
                place(index + 1, groups)
            group.pop()
        place(index + 1, [*groups, [paths[index]]])

    place(0, [])
    return best


@given(st.data())
def test_the_number_of_vlans_is_near_the_fewest(data):
    fabric = data.draw(fabrics(max_racks=5, max_planes=3))
    demand = data.draw(demands(fabric.n_racks))
    topology = plan_hydra_bfs(fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(3)).topology
    state = allocate(fabric, START, topology, VLANS)
    fewest = _fewest(fabric, topology.paths[:7])
    if len(topology.paths) <= 7:
        assert fewest <= len(set(state.vlans.values())) <= fewest + 1


def _first_fit(fabric, paths):
    """Number of VLANs if each path goes into the first VLAN that stays loop-free."""
    groups: list[tuple[set, list[int]]] = []
    for its_path in paths:
        for held, tree in groups:
            if _join(fabric, its_path, held, list(tree)) is not None:
                tree[:] = _join(fabric, its_path, held, tree)
                held.update(its_path.circuits)
                break
        else:
            tree = _join(fabric, its_path, set(), list(range(fabric.n_racks)))
            groups.append((set(its_path.circuits), tree))
    return len(groups)


def _join(fabric, its_path, held, tree):
    """The tree of each rack once the circuits are in; None if they close a loop."""
    for link in set(its_path.circuits) - held:
        one, other = (tree[rack] for rack in fabric.racks_of(link))
        if one == other:
            return None
        tree = [one if name == other else name for name in tree]
    return tree


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_far_fewer_vlans_than_first_fit(seed):
    rng = np.random.default_rng(seed)
    fabric = full(40, 12, rate_mbps=1000.0)
    demand = rng.uniform(5, 15, (40, 40))
    np.fill_diagonal(demand, 0.0)
    topology = plan_hydra_bfs(fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(3)).topology
    shuffled = [topology.paths[i] for i in rng.permutation(len(topology.paths))]
    state = allocate(fabric, START, topology, VLANS)
    assert check_vlans(fabric, state, VLANS) == []
    assert len(set(state.vlans.values())) <= 0.8 * _first_fit(fabric, shuffled)


def test_several_paths_of_a_pair_get_vlans_of_their_own():
    fabric = full(3, 4)
    direct = path(0, 1, circuit(fabric, 0, 4))
    beside = path(0, 1, circuit(fabric, 1, 5))
    around = path(0, 1, circuit(fabric, 2, 10), circuit(fabric, 7, 11))
    state = allocate(fabric, START, topology_of(direct, beside, around), VLANS)
    assert len(set(state.vlans.values())) == 3
    assert check_vlans(fabric, state, VLANS) == []


def test_a_broken_path_is_refused():
    fabric = full(3, 2)
    with pytest.raises(PlanError, match="ends at rack 1, not at rack 2"):
        allocate(fabric, START, topology_of(path(0, 2, circuit(fabric, 0, 2))), VLANS)
    apart = path(0, 2, circuit(fabric, 0, 2), circuit(fabric, 1, 5))
    with pytest.raises(PlanError, match="does not start at rack 1"):
        allocate(fabric, START, topology_of(apart), VLANS)
    elsewhere = path(0, 1, circuit(fabric, 2, 4))
    with pytest.raises(PlanError, match="does not start at rack 0"):
        allocate(fabric, START, topology_of(elsewhere), VLANS)


# --- successive reconfigurations ------------------------------------------------------------


@pytest.mark.takes(6)
@given(st.data())
def test_successive_reconfigurations_never_loop(data):
    fabric = data.draw(fabrics())
    state = START
    for _ in range(6):
        budget = data.draw(budgets(fabric))
        demand = data.draw(demands(fabric.n_racks))
        target = plan_hydra_bfs(fabric, demand, state.topology, Reserved(), budget).topology
        new = allocate(fabric, state, target, VLANS)
        assert new == allocate(fabric, state, target, VLANS)
        check_step(fabric, state, new)
        state = new


def check_step(fabric, old, new):
    assert new.epoch == old.epoch + 1
    assert check_vlans(fabric, new, VLANS) == []
    order = transit_order(fabric, old, new)
    assert order.disconnect_first <= old.topology.circuits - new.topology.circuits
    assert order.connect_last <= new.topology.circuits - old.topology.circuits
    assert check_transit(fabric, old, new, order.disconnect_first, order.connect_last) == []
    kept = set(old.vlans) & set(new.vlans)
    assert all(old.vlans[p] == new.vlans[p] for p in kept)
    lost = {vlan for p, vlan in old.vlans.items() if p not in kept}
    fresh = {vlan for p, vlan in new.vlans.items() if p not in kept}
    assert fresh.isdisjoint(lost | old.pool.resting)
    assert new.pool.resting == set(old.vlans.values()) - set(new.vlans.values())


@pytest.mark.parametrize("seed", [1, 2])
def test_at_full_size(seed):
    rng = np.random.default_rng(seed)
    n = 320
    fabric = full(n, 32, rate_mbps=10_000.0)
    state = START
    for _ in range(2):
        entries = {
            (int(a), int(b)): float(rng.uniform(50, 5000))
            for a, b in rng.integers(0, n, (4000, 2))
            if a != b
        }
        result = plan_hydra_bfs(
            fabric, demand_of(n, entries), state.topology, Reserved(), Budget(3)
        )
        assert check_topology(fabric, result.topology, 3) == []
        assert result.served_share > 0.95
        new = allocate(fabric, state, result.topology, VLANS)
        check_step(fabric, state, new)
        state = new
