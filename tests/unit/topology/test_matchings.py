"""Assignments, matchings, b-matchings and colourings against networkx, scipy and exhaustion."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog

from topology.assignment import heaviest_assignment
from topology.bmatching import heaviest_b_matching
from topology.colouring import colour_edges
from topology.matching import heaviest_matching


def symmetric(random, n, high, density=1.0):
    weight = np.triu(random.integers(0, high, (n, n)) * (random.random((n, n)) < density), 1)
    return (weight + weight.T).astype(np.int64)


def weight_of(mate, weight):
    return sum(int(weight[a, b]) for a, b in enumerate(mate.tolist()) if a < b)


# --- assignment -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 13, 40])
@pytest.mark.parametrize("high", [2, 10, 10**12])
def test_assignments_are_as_heavy_as_scipys_and_prove_it(n, high):
    random = np.random.default_rng(n)
    for _ in range(60):
        weight = random.integers(0, high, (n, n)).astype(float)
        rows, columns = linear_sum_assignment(weight, maximize=True)
        guess = random.integers(-5, 5, n).astype(float)
        for found in (heaviest_assignment(weight), heaviest_assignment(weight, guess)):
            assert sorted(found.column_of.tolist()) == list(range(n))
            value = weight[np.arange(n), found.column_of].sum()
            assert value == weight[rows, columns].sum()
            assert (found.profit[:, None] + found.price >= weight).all()
            assert found.profit.sum() + found.price.sum() == value


@pytest.mark.parametrize("most", [10**4, 10**9])
@pytest.mark.parametrize("n", [33, 150])
def test_assignments_of_skewed_weights_are_as_heavy_as_scipys_and_prove_it(n, most):
    """Products of weights, also capped ones: prices come from an auction."""
    random = np.random.default_rng(n)
    for _ in range(5):
        sends, receives = random.lognormal(0.0, 1.5, (2, n))
        weight = np.minimum(np.rint(1e6 * np.outer(sends, receives)), most)
        found = heaviest_assignment(weight)
        rows, columns = linear_sum_assignment(weight, maximize=True)
        assert sorted(found.column_of.tolist()) == list(range(n))
        assert weight[np.arange(n), found.column_of].sum() == weight[rows, columns].sum()
        slack = found.profit[:, None] + found.price - weight
        assert slack.min() == 0.0
        assert (slack[np.arange(n), found.column_of] == 0.0).all()
        assert (found.price == np.rint(found.price)).all()


def test_no_rows_have_no_columns():
    assert heaviest_assignment(np.zeros((0, 0))).column_of.size == 0


# --- matching -------------------------------------------------------------------------------


@pytest.mark.parametrize("high", [2, 5, 1000])
def test_matchings_are_as_heavy_as_networkxs(high):
    random = np.random.default_rng(high)
    for _ in range(500):
        n = int(random.integers(1, 15))
        weight = symmetric(random, n, high, density=random.choice([0.2, 0.6, 1.0]))
        found = heaviest_matching(weight)
        graph = nx.from_numpy_array(weight)
        oracle = sum(weight[a, b] for a, b in nx.max_weight_matching(graph))
        assert weight_of(found.mate, weight) == found.weight == found.bound == oracle
        partners = np.flatnonzero(found.mate >= 0)
        assert (found.mate[found.mate[partners]] == partners).all()
        assert (weight[partners, found.mate[partners]] > 0).all()


def test_of_skewed_weights_too():
    """Some nodes are left out for what others' prices are too small to tell."""
    random = np.random.default_rng(3)
    for _ in range(300):
        n = int(random.integers(2, 24))
        size = random.lognormal(0.0, 2.0, n)
        weight = np.rint(1000 * np.outer(size, size)).astype(np.int64)
        weight *= symmetric(random, n, 2, density=0.8)
        found = heaviest_matching(weight)
        graph = nx.from_numpy_array(weight)
        oracle = sum(int(weight[a, b]) for a, b in nx.max_weight_matching(graph))
        assert weight_of(found.mate, weight) == found.weight == found.bound == oracle


def test_all_matchings_of_all_graphs_of_five_nodes():
    nodes = 5
    edges = list(itertools.combinations(range(nodes), 2))
    matchings = [
        chosen
        for size in range(nodes // 2 + 1)
        for chosen in itertools.combinations(edges, size)
        if len(set(itertools.chain(*chosen))) == 2 * size
    ]
    for present in range(2 ** len(edges)):
        weight = np.zeros((nodes, nodes), dtype=np.int64)
        for number, (a, b) in enumerate(edges):
            if present >> number & 1:
                weight[a, b] = weight[b, a] = 3 + (7 * number) % 5
        best = max(sum(int(weight[edge]) for edge in chosen) for chosen in matchings)
        assert heaviest_matching(weight).weight == best


def test_a_larger_matching_is_proven_and_equals_rustworkxs():
    random = np.random.default_rng(1)
    weight = symmetric(random, 120, 10**10)
    found = heaviest_matching(weight)
    graph = nx.from_numpy_array(weight)
    oracle = sum(int(weight[a, b]) for a, b in nx.max_weight_matching(graph))
    assert found.weight == found.bound == oracle


def test_an_odd_number_of_equal_nodes():
    # Any bound by prices is half a pair too high here, so that only looking at all edges proves it.
    weight = np.ones((31, 31), dtype=np.int64) - np.eye(31, dtype=np.int64)
    found = heaviest_matching(weight)
    assert found.weight == found.bound == 15


# --- b-matching and colouring ---------------------------------------------------------------


def lp_weight(demand, capacity, row_degree, column_degree):
    """The same problem as a linear programme, whose vertices are whole: HiGHS."""
    n_rows, n_columns = demand.shape
    size = demand.size
    edges = np.arange(size).reshape(n_rows, n_columns)
    limits = np.zeros((n_rows + n_columns, 2 * size))
    for row in range(n_rows):
        limits[row, edges[row]] = limits[row, size + edges[row]] = 1
    for column in range(n_columns):
        limits[n_rows + column, edges[:, column]] = 1
        limits[n_rows + column, size + edges[:, column]] = 1
    full, rest = (part.ravel() for part in np.divmod(demand, capacity))
    solved = linprog(
        -np.concatenate([capacity.ravel(), rest]),
        A_ub=limits,
        b_ub=np.concatenate([row_degree, column_degree]),
        bounds=np.stack([np.zeros(2 * size), np.concatenate([full, np.ones(size)])], axis=1),
        method="highs",
    )
    return -solved.fun


def check_b_matching(found, demand, capacity, row_degree, column_degree):
    n_rows, n_columns = demand.shape
    assert (np.bincount(found.rows, minlength=n_rows) <= row_degree).all()
    assert (np.bincount(found.columns, minlength=n_columns) <= column_degree).all()
    count = np.zeros_like(demand)
    np.add.at(count, (found.rows, found.columns), 1)
    assert np.minimum(count * capacity, demand).sum() == found.weight == found.bound


def test_b_matchings_are_as_heavy_as_the_linear_programme_allows():
    random = np.random.default_rng(1)
    for _ in range(300):
        n_rows, n_columns = random.integers(1, 7, 2)
        demand = random.integers(0, random.choice([3, 10, 100]), (n_rows, n_columns))
        capacity = random.integers(1, random.choice([3, 20]), (n_rows, n_columns))
        degrees = random.integers(0, 4, n_rows), random.integers(0, 4, n_columns)
        found = heaviest_b_matching(demand, capacity, *degrees)
        check_b_matching(found, demand, capacity, *degrees)
        assert found.weight == pytest.approx(lp_weight(demand, capacity, *degrees))


@pytest.mark.parametrize("kind", ["uniform", "gravity", "ties"])
def test_larger_b_matchings_prove_themselves(kind):
    random = np.random.default_rng(2)
    n, degree = 64, 8
    if kind == "gravity":
        demand = (1e9 * np.outer(*random.lognormal(0, 1.5, (2, n)))).astype(np.int64)
    else:
        demand = random.integers(0, 2 if kind == "ties" else 10**11, (n, n))
    capacity = np.full((n, n), 10**10)
    degrees = np.full(n, degree)
    check_b_matching(
        heaviest_b_matching(demand, capacity, degrees, degrees), demand, capacity, degrees, degrees
    )


def test_one_edge_per_node_is_an_assignment():
    random = np.random.default_rng(3)
    for n in (1, 2, 9, 30):
        weight = random.integers(0, 50, (n, n))
        rows, columns = linear_sum_assignment(weight, maximize=True)
        ones = np.ones(n, dtype=np.int64)
        found = heaviest_b_matching(weight, np.maximum(weight, 1), ones, ones)
        assert found.weight == weight[rows, columns].sum()


@settings(deadline=None)
@given(st.data())
def test_colours_differ_at_every_node_and_suffice_where_all_nodes_have_all(data):
    n_rows, n_columns, n_colours = (data.draw(st.integers(1, 6)) for _ in range(3))
    node = st.tuples(st.integers(0, n_rows - 1), st.integers(0, n_columns - 1))
    edges = data.draw(st.lists(node, max_size=30))
    uneven = data.draw(st.booleans())
    flags = st.lists(st.booleans(), min_size=n_colours, max_size=n_colours)
    has = [
        np.array([data.draw(flags) if uneven else [True] * n_colours for _ in range(n)])
        for n in (n_rows, n_columns)
    ]
    kept, degree = [], np.zeros((2, 6), dtype=int)
    for row, column in edges:
        if degree[0, row] < has[0][row].sum() and degree[1, column] < has[1][column].sum():
            degree[0, row] += 1
            degree[1, column] += 1
            kept.append((row, column))
    rows, columns = np.array(kept, dtype=np.int32).reshape(-1, 2).T
    colour = colour_edges(rows, columns, *has)
    given_one = colour >= 0
    for side, ends in ((0, rows), (1, columns)):
        used = list(zip(ends[given_one].tolist(), colour[given_one].tolist(), strict=True))
        assert len(set(used)) == len(used)
        assert all(has[side][end, shade] for end, shade in used)
    if not uneven:
        assert given_one.all()
