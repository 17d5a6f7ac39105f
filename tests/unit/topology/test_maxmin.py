import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_fabrics import arrays, circuit, demand_of, demands, fabrics, full, path, topology_of

from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY, Topology
from topology.demand import estimate_flows, estimate_maxmin, max_min_rates, served_mbps
from topology.multihop import plan_hydra_bfs
from topology.problem import Budget, Reserved

# --- the estimate ---------------------------------------------------------------------------


def test_one_elephant_gets_all_there_is():
    rates = demand_of(3, {(0, 1): 3.0})
    estimate = estimate_maxmin(rates, [100, 100, 100], [100, 40, 100], 1.0)
    assert estimate.tolist() == demand_of(3, {(0, 1): 40.0}).tolist()


def test_mice_are_nobody():
    rates = demand_of(3, {(0, 1): 0.99, (0, 2): 1.0})
    estimate = estimate_maxmin(rates, [100] * 3, [100] * 3, 1.0)
    assert estimate.tolist() == demand_of(3, {(0, 2): 100.0}).tolist()


def test_with_threshold_zero_silent_pairs_stay_silent():
    estimate = estimate_maxmin(demand_of(2, {(0, 1): 0.1}), [8, 8], [8, 8], 0.0)
    assert estimate.tolist() == [[0, 8], [0, 0]]


def test_what_a_busy_receiver_refuses_goes_to_the_others():
    # Three senders share receiver 3 in thirds, so 0 has two thirds left for 1.
    rates = demand_of(4, {(0, 3): 5.0, (1, 3): 5.0, (2, 3): 5.0, (0, 1): 5.0})
    estimate = estimate_maxmin(rates, [90.0] * 4, [90.0] * 4, 1.0)
    expected = {(0, 3): 30.0, (1, 3): 30.0, (2, 3): 30.0, (0, 1): 60.0}
    assert np.allclose(estimate, demand_of(4, expected))


def test_all_to_all_is_even():
    estimate = estimate_maxmin(np.ones((5, 5)) - np.eye(5), [100] * 5, [100] * 5, 1.0)
    assert np.allclose(estimate, 25.0 * (np.ones((5, 5)) - np.eye(5)))


def test_a_rack_without_capacity_gets_nothing():
    estimate = estimate_maxmin(demand_of(3, {(0, 1): 5.0, (0, 2): 5.0}), [9] * 3, [9, 0, 9], 1.0)
    assert estimate.tolist() == demand_of(3, {(0, 2): 9.0}).tolist()


@pytest.mark.parametrize("n", [0, 1, 4])
def test_no_traffic_no_demand(n):
    estimate = estimate_maxmin(np.zeros((n, n)), [1.0] * n, [1.0] * n, 1.0)
    assert estimate.tolist() == np.zeros((n, n)).tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, -1], [0, 0]], [1, 1], [1, 1], 1), r"demand\[0, 1\] is -1"),
        (([[0, 1], [0, 0]], [1, -1], [1, 1], 1), r"out_capacity_mbps\[1\] is -1"),
        (([[0, 1], [0, 0]], [1, 1], [float("nan"), 1], 1), r"in_capacity_mbps\[0\] is nan"),
        (([[0, 1], [0, 0]], [1, 1], [1], 1), r"in_capacity_mbps has shape \(1,\)"),
        (([[0, 1], [0, 0]], 5, [1, 1], 1), r"out_capacity_mbps has shape \(\)"),
        (([[0, 1], [0, 0]], [1, 1], [1, 1], -1), "elephant_mbps is -1"),
        (([[0, 1], [0, 0]], [1, 1], [1, 1], float("nan")), "elephant_mbps is nan"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(PlanError, match=message):
        estimate_maxmin(*arguments)


# --- the kernel against the textbook --------------------------------------------------------


def _one_by_one(uses, capacity, wanted):
    """Progressive filling a step at a time: raise all rates until something is full."""
    rates = [0.0] * len(uses)
    active = set(range(len(uses)))
    while active:
        room = [
            (capacity[r] - sum(rates[f] for f in range(len(uses)) if r in uses[f]))
            / sum(r in uses[f] for f in active)
            for r in range(len(capacity))
            if any(r in uses[f] for f in active)
        ]
        step = max(0.0, min([*room, *(wanted[f] - rates[f] for f in active)]))
        for f in active:
            rates[f] += step
        full_up = {
            r
            for r in range(len(capacity))
            if sum(rates[f] for f in range(len(uses)) if r in uses[f]) >= capacity[r] - 1e-9
        }
        active = {f for f in active if rates[f] < wanted[f] - 1e-9 and not full_up & set(uses[f])}
    return rates


@given(st.data())
def test_rates_are_those_of_progressive_filling(data):
    n_resources = data.draw(st.integers(1, 5))
    uses = data.draw(
        st.lists(
            st.frozensets(st.sampled_from(range(n_resources)), min_size=1, max_size=3),
            max_size=8,
        )
    )
    level = st.sampled_from([0.0, 1.0, 3.0, 10.0, 12.5, 40.0])
    capacity = data.draw(st.lists(level, min_size=n_resources, max_size=n_resources))
    wanted = data.draw(st.lists(level, min_size=len(uses), max_size=len(uses)))
    padded = np.array(
        [[*sorted(u), *[n_resources] * (3 - len(u))] for u in uses], dtype=np.intp
    ).reshape(-1, 3)
    rates = max_min_rates(padded, np.array([*capacity, np.inf]), np.array(wanted))
    assert np.allclose(rates, _one_by_one([set(u) for u in uses], capacity, wanted))


# --- what a topology serves -----------------------------------------------------------------


def test_both_directions_of_a_circuit_have_its_full_rate():
    fabric = full(2, 1)
    topology = topology_of(path(0, 1, circuit(fabric, 0, 1)))
    demand = demand_of(2, {(0, 1): 80.0, (1, 0): 170.0})
    assert served_mbps(fabric, topology, demand, [10, 10], [10, 10]).tolist() == [[0, 80], [100, 0]]


def test_paths_share_circuits_and_the_rest_shares_the_electrical_network():
    fabric = arrays(4, 2, [(0, 0), (1, 0), (1, 1), (2, 1)])
    first, second = circuit(fabric, 0, 1), circuit(fabric, 2, 3)
    topology = topology_of(path(0, 1, first), path(0, 2, first, second))
    demand = demand_of(4, {(0, 1): 90.0, (0, 2): 30.0, (0, 3): 50.0, (1, 3): 4.0, (2, 0): 70.0})
    served = served_mbps(fabric, topology, demand, [10.0] * 4, [10.0] * 4)
    expected = {(0, 1): 70.0, (0, 2): 30.0, (0, 3): 6.0, (1, 3): 4.0, (2, 0): 70.0}
    assert np.allclose(served, demand_of(4, expected))


def test_paths_may_run_through_circuits_in_either_sense():
    fabric = arrays(3, 2, [(1, 0), (0, 0), (2, 1), (1, 1)])
    topology = topology_of(path(0, 2, circuit(fabric, 0, 1), circuit(fabric, 2, 3)))
    demand = demand_of(3, {(0, 2): 60.0, (2, 0): 100.0})
    served = served_mbps(fabric, topology, demand, [0] * 3, [0] * 3)
    assert np.allclose(served, demand)


def test_without_circuits_all_is_electrical():
    fabric = full(3, 0)
    demand = demand_of(3, {(0, 1): 50.0, (2, 1): 50.0})
    served = served_mbps(fabric, EMPTY_TOPOLOGY, demand, [10] * 3, [10] * 3)
    assert np.allclose(served, demand_of(3, {(0, 1): 5.0, (2, 1): 5.0}))
    assert not served_mbps(fabric, EMPTY_TOPOLOGY, np.zeros((3, 3)), [0] * 3, [0] * 3).any()


def test_bad_input_to_served_is_named():
    fabric = full(2, 1)
    with pytest.raises(PlanError, match=r"demand\[1, 0\] is nan"):
        served_mbps(fabric, EMPTY_TOPOLOGY, [[0, 0], [np.nan, 0]], [1, 1], [1, 1])
    with pytest.raises(PlanError, match="electrical_in_mbps has shape"):
        served_mbps(fabric, EMPTY_TOPOLOGY, np.zeros((2, 2)), [1, 1], [1, 1, 1])
    broken = Topology(paths=(path(0, 1),))
    with pytest.raises(PlanError, match="ends at rack 0"):
        served_mbps(fabric, broken, np.zeros((2, 2)), [1, 1], [1, 1])


@given(st.data())
def test_what_is_served_fits_everywhere(data):
    fabric = data.draw(fabrics())
    n = fabric.n_racks
    demand = data.draw(demands(n))
    topology = plan_hydra_bfs(fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(3)).topology
    electrical = np.array(data.draw(st.lists(st.sampled_from([0.0, 5.0]), min_size=n, max_size=n)))
    served = served_mbps(fabric, topology, demand, electrical, electrical)
    assert (served >= 0).all()
    assert (served <= demand + 1e-6).all()
    load: dict[tuple[object, int], float] = {}
    rest = served.copy()
    for its_path in topology.paths:
        racks = fabric.racks_along(its_path)
        for link, here, there in zip(its_path.circuits, racks, racks[1:], strict=False):
            for rack, (src, dst) in (
                (here, (its_path.src, its_path.dst)),
                (there, (its_path.dst, its_path.src)),
            ):
                load[link, rack] = load.get((link, rack), 0.0) + served[src, dst]
        rest[its_path.src, its_path.dst] = rest[its_path.dst, its_path.src] = 0.0
    assert all(mbps <= fabric.rate_of(link) + 1e-6 for (link, _), mbps in load.items())
    assert (rest.sum(axis=1) <= electrical + 1e-6).all()
    assert (rest.sum(axis=0) <= electrical + 1e-6).all()


# --- flows ----------------------------------------------------------------------------------


@given(st.data())
def test_flows_get_what_progressive_filling_gives_each(data):
    n = data.draw(st.integers(2, 6))
    rack = st.integers(0, n - 1)
    pair = st.tuples(rack, rack).filter(lambda ends: ends[0] != ends[1])
    flows = data.draw(st.lists(pair, max_size=20))
    level = st.sampled_from([0.0, 1.0, 3.0, 10.0, 12.5, 40.0])
    out, into = (data.draw(st.lists(level, min_size=n, max_size=n)) for _ in range(2))
    plain = _one_by_one([{a, n + b} for a, b in flows], [*out, *into], [np.inf] * len(flows))
    expected = np.zeros((n, n))
    for (a, b), rate in zip(flows, plain, strict=True):
        expected[a, b] += rate
    estimate = estimate_flows([a for a, _ in flows], [b for _, b in flows], out, into)
    assert np.allclose(estimate, expected)
    elephants = np.zeros((n, n))
    for a, b in flows:
        elephants[a, b] = 5.0
    distinct = sorted(set(flows))
    once = estimate_flows([a for a, _ in distinct], [b for _, b in distinct], out, into)
    assert np.allclose(estimate_maxmin(elephants, out, into, 1.0), once)


def test_many_flows_are_as_the_general_kernel_has_them():
    random = np.random.default_rng(7)
    n, weight = 60, np.random.default_rng(8).lognormal(0, 1.5, 60)
    src, dst = random.choice(n, (2, 20_000), p=weight / weight.sum())
    src, dst = src[src != dst], dst[src != dst]
    out, into = random.uniform(50, 150, (2, n))
    rates = max_min_rates(
        np.stack([src, n + dst], axis=1), np.concatenate([out, into]), np.full(len(src), np.inf)
    )
    expected = np.zeros((n, n))
    np.add.at(expected, (src, dst), rates)
    assert np.allclose(estimate_flows(src, dst, out, into), expected)


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [
        ([0, 3], [1, 0], r"src\[1\] is rack 3: there are only 3"),
        ([0], [-1], r"dst\[0\] is rack -1"),
        ([0, 1], [1], "2 sources and 1 destinations"),
        ([0, 2], [1, 2], "flow 1 stays in rack 2"),
        ([0.5], [1], "src is not a list of rack numbers"),
        ([[0]], [[1]], "src is not a list of rack numbers"),
    ],
)
def test_bad_flows_are_named(src, dst, message):
    with pytest.raises(PlanError, match=message):
        estimate_flows(src, dst, [1.0] * 3, [1.0] * 3)


def test_no_flows_no_estimate():
    assert not estimate_flows([], [], [5.0, 5.0], [5.0, 5.0]).any()
    assert estimate_flows([], [], [], []).shape == (0, 0)
