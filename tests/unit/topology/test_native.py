"""The compiled kernels refuse invalid input: wrong lengths, types and indices."""

import subprocess
import sys

import networkx as nx
import numpy as np
import pytest

from topology import _native

INTS = np.int32


def ints(*values):
    return np.array(values, dtype=INTS)


def search_arguments():
    """Two racks, one plane, one pair."""
    return [
        *(2, 1, 2),
        *(ints(0, 1), ints(0, 0), ints(0, 0), np.array([100.0, 100.0])),
        np.ones(2, dtype=np.uint8),
        *(ints(), ints(), ints(), ints()),
        *(ints(0), ints(1), ints(0), np.array([60.0])),
        *(3, False, True, False),
        ints(1, 1),
        np.ones(2, dtype=np.uint8),
        *(np.zeros(1, INTS), np.zeros(1, INTS), np.zeros(1)),
        *(np.zeros(1, INTS), np.zeros(1, INTS), np.zeros(3, INTS)),
    ]


def test_a_search():
    arguments = search_arguments()
    assert _native.plan_paths(*arguments) == (1, 1)
    link_a, link_b, residual, pair, hops, links = arguments[-6:]
    assert (link_a[0], link_b[0], residual[0]) == (0, 1, 40.0)
    assert (pair[0], hops[0], links[0]) == (0, 1, 0)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, -1, "argument 1 is out of range"),
        (0, 2**40, "argument 1 is out of range"),
        (3, ints(0, 2), "argument 4 has an entry out of range"),
        (4, ints(0, -1), "argument 5 has an entry out of range"),
        (5, ints(0, 1), "argument 6 has an entry out of range"),
        (6, np.array([100.0]), "argument 7 has the wrong length"),
        (3, np.array([0, 1], dtype=np.int64), "argument 4 has items of the wrong size"),
        (12, ints(2), "argument 13 has an entry out of range"),
        (15, np.array([60.0, 60.0]), "argument 16 has the wrong length"),
        (16, 0, "argument 17 is out of range"),
        (20, ints(1), "argument 21 has the wrong length"),
        (21, np.ones(1, dtype=np.uint8), "argument 22 has the wrong length"),
        (25, np.zeros(2, INTS), "argument 26 has the wrong length"),
        (27, np.zeros(2, INTS), "leaves too little room for hops"),
    ],
)
def test_a_search_refuses(position, value, message):
    arguments = search_arguments()
    arguments[position] = value
    with pytest.raises(ValueError, match=message):
        _native.plan_paths(*arguments)


@pytest.mark.parametrize("value", [[0, 1], None, np.zeros((4, 2), INTS)[:, 0]])
def test_a_search_refuses_what_is_no_contiguous_array(value):
    arguments = search_arguments()
    arguments[3] = value
    with pytest.raises((TypeError, ValueError, BufferError)):
        _native.plan_paths(*arguments)


def test_results_are_not_written_to_read_only_arrays():
    arguments = search_arguments()
    arguments[22].setflags(write=False)
    with pytest.raises((ValueError, BufferError)):
        _native.plan_paths(*arguments)


def test_arguments_are_counted():
    with pytest.raises((IndexError, TypeError)):
        _native.plan_paths(*search_arguments()[:-1])


def test_standing_circuits_that_share_a_port_are_refused():
    arguments = search_arguments()
    arguments[8:10] = ints(0, 0), ints(1, 1)
    arguments[22:25] = np.zeros(3, INTS), np.zeros(3, INTS), np.zeros(3)
    with pytest.raises(RuntimeError, match="share a port"):
        _native.plan_paths(*arguments)


def serve_arguments():
    """Two paths over two links; the first link is shared."""
    return [
        np.array([10.0, 4.0]),
        ints(0, 1, 3),
        ints(0, 0, 1),
        ints(0, 1),
        ints(1, 0),
        np.array([5.0, 7.0]),
        np.zeros(2),
    ]


def test_serving_in_turn():
    arguments = serve_arguments()
    _native.serve_paths(*arguments)
    assert arguments[0].tolist() == [0.0, 1.0]
    assert arguments[5].tolist() == [5.0, 7.0]
    assert arguments[6].tolist() == [7.0, 3.0]


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (1, ints()),
        (1, ints(1, 1, 3)),
        (1, ints(0, 3, 1)),
        (1, ints(0, 1, 4)),
        (2, ints(0, 0, 2)),
        (3, ints(2)),
        (4, ints(2, 0)),
        (4, ints(-1, 0)),
        (6, np.zeros(3)),
    ],
)
def test_serving_refuses(position, value):
    arguments = serve_arguments()
    arguments[position] = value
    with pytest.raises(ValueError, match="argument"):
        _native.serve_paths(*arguments)


def turn_arguments():
    """Two turns of a path over both places, between them one of a path over the first."""
    return [
        np.array([10.0, 4.0]),
        ints(0, 1, 3),
        ints(0, 0, 1),
        ints(1, 0, 1),
        np.array([0.5, 1.0, 0.5]),
        np.array([7.0, 6.0]),
        np.zeros(2),
    ]


def test_booking_by_turns():
    arguments = turn_arguments()
    _native.book_turns(*arguments)
    assert arguments[6].tolist() == [7.0, 3.0]  # 3 of 6, then 7: nothing is left of the first place
    assert arguments[0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, np.zeros(1)),
        (1, ints(0, 3, 1)),
        (2, ints(0, 0, 2)),
        (2, ints(0, -1, 1)),
        (3, ints(1, 0, 2)),
        (4, np.zeros(2)),
        (5, np.zeros(3)),
        (6, np.zeros(3)),
    ],
)
def test_booking_refuses(position, value):
    arguments = turn_arguments()
    arguments[position] = value
    with pytest.raises(ValueError, match="argument"):
        _native.book_turns(*arguments)


def pack_arguments():
    """A triangle of three racks: two of its sides fit one bin."""
    return [
        3,
        3,
        np.full(6, -1, INTS),
        ints(0, 1, 2, 3),
        ints(0, 1, 2),
        ints(0, 1, 1, 2, 0, 2),
        ints(),
        0,
        ints(0, 1, 2),
        np.zeros(3, INTS),
    ]


def test_packing():
    arguments = pack_arguments()
    assert _native.pack_paths(*arguments) == 2
    assert arguments[-1].tolist() == [0, 0, 1]


def test_rivals_are_in_different_bins():
    arguments = pack_arguments()
    arguments[2] = ints(-1, 1, 0, -1, -1, -1)  # a leaving circuit joins the first two circuits
    assert _native.pack_paths(*arguments) == 2
    assert arguments[-1].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, 70_000),
        (1, 2),
        (1, 2**30),
        (2, np.full(6, 3, INTS)),
        (2, np.full(6, -2, INTS)),
        (3, ints(0, 1, 2, 4)),
        (4, ints(0, 1, 3)),
        (5, ints(0, 1, 1, 2, 0, 3)),
        (5, ints(0, 1, 1, 2, 0)),
        (6, ints(0)),
        (8, ints(3)),
        (9, np.zeros(2, INTS)),
    ],
)
def test_packing_refuses(position, value):
    arguments = pack_arguments()
    arguments[position] = value
    with pytest.raises(ValueError, match="argument"):
        _native.pack_paths(*arguments)


def walk_arguments():
    """Racks 0 and 1, 1 and 2 are joined; a path of both circuits, and a path that ends early."""
    return [
        *(3, ints(0, 1, 1, 2)),
        *(ints(0, 2, 3), ints(0, 2, 0), ints(1, 3, 1)),
        *(ints(0, 0), ints(2, 2)),
        *(np.zeros(5, INTS), np.zeros(2, dtype=np.uint8)),
    ]


def test_walking():
    arguments = walk_arguments()
    _native.walk_paths(*arguments)
    assert arguments[-2].tolist() == [0, 1, 2, 0, 1]
    assert arguments[-1].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, 2),
        (2, ints(0, 2, 4)),
        (3, ints(0, 2, 4)),
        (5, ints(0, 3)),
        (7, np.zeros(4, INTS)),
        (8, np.zeros(3, dtype=np.uint8)),
    ],
)
def test_walking_refuses(position, value):
    arguments = walk_arguments()
    arguments[position] = value
    with pytest.raises(ValueError, match="argument"):
        _native.walk_paths(*arguments)


@pytest.mark.parametrize(
    ("position", "value", "strays"),
    [
        (5, ints(0, 0), [0, 1]),
        (5, ints(0, 3), [0, 1]),
        (5, ints(-1, 0), [1, 1]),
        (3, ints(0, 0, 0), [1, 1]),
        (4, ints(1, 4, 1), [1, 1]),
        (6, ints(2, 1), [0, 0]),
    ],
)
def test_strays(position, value, strays):
    arguments = walk_arguments()[:7]
    arguments[position] = value
    found = np.zeros(2, dtype=np.uint8)
    _native.find_strays(*arguments, found)
    assert found.tolist() == strays


def test_the_engine_is_imported_without_anything_large():
    code = (
        "import sys, topology.multihop, topology.vlan; "
        "print(sorted({'scipy', 'networkx', 'numba', 'ryu'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def loop_arguments():
    """A triangle of racks 0, 1, 2 in one domain, two sides of it in another."""
    return [
        3,
        ints(0, 0, 1, 1, 2, 2),
        ints(0, 3, 5),
        ints(0, 3, 1, 0, 3),
        ints(2, 4, 5, 2, 4),
        np.zeros(5, INTS),
    ]


def test_loops():
    arguments = loop_arguments()
    _native.find_loops(*arguments)
    assert arguments[-1].tolist() == [0, 0, 1, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_loops_are_those_of_a_graph(seed):
    """Old and new circuits, which may share ports: those that do stand at different times."""
    random = np.random.default_rng(seed)
    n_racks, domains = 6, []
    port_rack = np.repeat(np.arange(n_racks, dtype=INTS), 3)
    for _ in range(5):
        ends = random.integers(0, len(port_rack), (12, 2))
        domains.append(ends[port_rack[ends[:, 0]] != port_rack[ends[:, 1]]])
    expected = []
    for ends in domains:
        for place, (a, b) in enumerate(ends.tolist()):
            graph = nx.Graph()
            graph.add_nodes_from(range(n_racks))
            earlier = [two for two in ends[:place].tolist() if not {a, b} & set(two)]
            graph.add_edges_from(port_rack[two].tolist() for two in earlier)
            expected.append(int(nx.has_path(graph, int(port_rack[a]), int(port_rack[b]))))
    start = np.cumsum([0, *map(len, domains)]).astype(INTS)
    lower, higher = np.sort(np.concatenate(domains), axis=1).astype(INTS).T.copy()
    closes = np.zeros(start[-1], INTS)
    _native.find_loops(n_racks, port_rack, start, lower, higher, closes)
    assert closes.tolist() == expected
    assert 0 < sum(expected) < len(expected)


@pytest.mark.parametrize("seed", range(20))
def test_without_circuits_that_are_held_back_nothing_closes_a_loop(seed):
    random = np.random.default_rng(seed)
    n_racks, n_vlans = 6, 70
    port_rack = np.repeat(np.arange(n_racks, dtype=INTS), 3)
    n_ports = len(port_rack)
    ends = np.sort(random.integers(0, n_ports, (30, 2)), axis=1)
    ends = ends[port_rack[ends[:, 0]] != port_rack[ends[:, 1]]]
    lower, higher = ends.astype(INTS).T.copy()
    hops = random.integers(0, n_ports, (2, 200)).astype(INTS)
    vlan = random.integers(0, n_vlans, 200).astype(INTS)
    words = np.zeros(2 * n_ports, np.uint64)
    _native.carry_vlans(n_ports, n_vlans, np.arange(201, dtype=INTS), *hops, vlan, words)
    carries = np.zeros((n_ports, n_vlans), dtype=np.bool_)
    carries[hops, vlan] = True
    held, is_fixed = np.zeros((2, len(lower)), np.uint8)
    _native.hold_circuits_back(n_racks, port_rack, lower, higher, is_fixed, n_vlans, words, held)
    assert held.any(), "a seed that shows nothing"
    circuits = [np.flatnonzero(both & (held == 0)) for both in (carries[lower] & carries[higher]).T]
    left = np.cumsum([0, *map(len, circuits)]).astype(INTS)
    every = np.concatenate(circuits)
    closes = np.zeros(len(every), INTS)
    _native.find_loops(n_racks, port_rack, left, lower[every], higher[every], closes)
    assert not closes.any()


@pytest.mark.parametrize("n_vlans", [1, 63, 64, 130])
def test_circuits_of_a_vlan_have_both_ports_there(n_vlans):
    random = np.random.default_rng(n_vlans)
    n_ports = 12
    hops = random.integers(-1, n_ports + 1, (2, 150)).astype(INTS)
    vlan = random.integers(0, n_vlans, 50).astype(INTS)
    words = np.zeros(n_ports * -(-n_vlans // 64), np.uint64)
    three_each = np.arange(0, 151, 3, dtype=INTS)
    _native.tag_ports(n_ports, n_vlans, three_each, *hops, vlan, words)
    carries = np.zeros((n_ports, n_vlans), dtype=np.bool_)
    for port, of_hop in zip(hops.ravel().tolist(), np.tile(np.repeat(vlan, 3), 2), strict=True):
        if 0 <= port < n_ports:
            carries[port, of_hop] = True
    ends = random.integers(0, n_ports, (2, 40)).astype(INTS)
    start = np.zeros(n_vlans + 1, INTS)
    domains = n_ports, n_vlans, words, *ends, start
    circuit = np.zeros(_native.list_domains(*domains, ints()), INTS)
    assert _native.list_domains(*domains, circuit) == start[-1] == len(circuit) > 0
    both = carries[ends[0]] & carries[ends[1]]
    for place in range(n_vlans):
        listed = circuit[start[place] : start[place + 1]].tolist()
        assert listed == np.flatnonzero(both[:, place]).tolist()


def domain_arguments():
    return [3, 2, np.full(3, 3, np.uint64), ints(0, 1), ints(1, 2), np.zeros(3, INTS), ints()]


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, 4),
        (1, 65),
        (2, np.zeros(4, np.uint64)),
        (3, ints(0, 3)),
        (4, ints(1)),
        (5, np.zeros(2, INTS)),
    ],
)
def test_listing_domains_refuses(position, value):
    arguments = domain_arguments()
    assert _native.list_domains(*arguments) == 4
    arguments[position] = value
    with pytest.raises(ValueError, match="argument"):
        _native.list_domains(*arguments)


@pytest.mark.parametrize("kernel", [_native.carry_vlans, _native.tag_ports])
@pytest.mark.parametrize(
    ("position", "value"),
    [
        (1, 1),
        (1, 65),
        (2, ints(0, 3)),
        (3, ints(0)),
        (4, ints(1)),
        (5, ints(2)),
        (6, np.zeros(2, np.uint64)),
    ],
)
def test_tagging_refuses(kernel, position, value):
    arguments = [3, 2, ints(0, 2), ints(0, 1), ints(1, 2), ints(1), np.zeros(3, np.uint64)]
    kernel(*arguments)
    assert arguments[-1].tolist() == [2, 2, 2]
    arguments[position] = value
    with pytest.raises(ValueError, match="argument"):
        kernel(*arguments)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (1, ints(0, 0, 1, 1, 2, 3)),
        (2, ints(0, 3, 6)),
        (3, ints(0, 3, 1, 0, 6)),
        (4, ints(2, 4, 5, 2, -1)),
        (5, np.zeros(4, INTS)),
    ],
)
def test_looking_for_loops_refuses(position, value):
    arguments = loop_arguments()
    arguments[position] = value
    with pytest.raises(ValueError, match="argument"):
        _native.find_loops(*arguments)


def hold_arguments():
    """The same triangle in one VLAN; its first side stays."""
    return [
        3,
        ints(0, 0, 1, 1, 2, 2),
        ints(0, 3, 1),
        ints(2, 4, 5),
        np.array([1, 0, 0], np.uint8),
        1,
        np.ones(6, np.uint64),
        np.zeros(3, np.uint8),
    ]


def test_holding_back():
    arguments = hold_arguments()
    _native.hold_circuits_back(*arguments)
    assert arguments[-1].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (1, ints(0, 0, 1, 1, 2, 3)),
        (2, ints(0, 3, 6)),
        (3, ints(2, 4)),
        (4, np.zeros(2, np.uint8)),
        (5, 65),
        (6, np.ones(5, np.uint64)),
        (7, np.zeros(2, np.uint8)),
    ],
)
def test_holding_back_refuses(position, value):
    arguments = hold_arguments()
    arguments[position] = value
    with pytest.raises(ValueError, match="argument"):
        _native.hold_circuits_back(*arguments)
