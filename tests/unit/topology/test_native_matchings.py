"""The input of the compiled matchings is checked before use."""

import numpy as np
import pytest

from topology import _native


def ints(*values, of=np.int32):
    return np.array(values, dtype=of)


def network(**changes):
    arguments = {
        "begin": True,
        "n_rows": 1,
        "n_nodes": 2,
        "tail": ints(0),
        "head": ints(1),
        "gain": ints(5, of=np.int64),
        "flow": ints(0, of=np.int8),
        "at": ints(1, of=np.int8),
        "spare": ints(1, 1, of=np.int64),
        "potential": ints(0, 0, 0, of=np.int64),
        "parent": ints(2, 2, 2),
        "via": ints(-1, -1, -1),
        "depth": ints(0, 0, 0),
        "child": ints(-1, -1, -1),
        "following": ints(-1, -1, -1),
        "preceding": ints(-1, -1, -1),
    } | changes
    _native.improve_network(*arguments.values())
    return arguments["flow"].tolist()


def test_a_network_of_one_edge():
    assert network() == [1]


@pytest.mark.parametrize(
    "changes",
    [
        {"n_rows": 3},
        {"tail": ints(1)},
        {"head": ints(0)},
        {"head": ints(2)},
        {"gain": ints(5, 6, of=np.int64)},
        {"flow": ints(2, of=np.int8)},
        {"at": ints(-2, of=np.int8)},
        {"spare": ints(1, of=np.int64)},
        {"parent": ints(3, 2, 2)},
        {"via": ints(1, -1, -1)},
        {"child": ints(-2, -1, -1)},
        {"following": ints(3, -1, -1)},
        {"preceding": ints(-1, -1)},
        {"depth": ints(0, 0, 0, of=np.int64)},
    ],
)
def test_bad_networks_are_refused(changes):
    with pytest.raises(ValueError, match="argument"):
        network(**changes)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("assign_rows", (2, np.zeros(3), np.zeros(2), ints(0, 0))),
        ("assign_rows", (2, np.zeros(4), np.zeros(1), ints(0, 0))),
        ("assign_rows", (-1, np.zeros(1), np.zeros(1), ints(0))),
        ("assign_rows", (70_000, np.zeros(4), np.zeros(2), ints(0, 0))),
        ("colour_edges", (1, 1, 1, ints(1), ints(0), ints(-1), ints(-1), ints(-1))),
        ("colour_edges", (1, 1, 1, ints(0), ints(1), ints(-1), ints(-1), ints(-1))),
        ("colour_edges", (1, 1, 1, ints(0), ints(0), ints(0), ints(-1), ints(-1))),
        ("colour_edges", (1, 1, 1, ints(0), ints(0), ints(-1), ints(-3), ints(-1))),
        ("colour_edges", (1, 1, 1, ints(0), ints(0), ints(-1), ints(-1), ints(0))),
        ("stuff", (2, np.zeros(4, np.int64), np.zeros(1, np.int64), np.zeros(2, np.int64))),
    ],
)
def test_bad_arrays_are_refused(function, arguments):
    with pytest.raises(ValueError, match="argument"):
        getattr(_native, function)(*arguments)


@pytest.mark.parametrize(
    ("start", "least", "column_of"), [(0, 1, (-1,)), (1, 0, (-1,)), (1, 1, (1,)), (1, 1, (-2,))]
)
def test_bad_levels_and_matchings_are_refused(start, least, column_of):
    entry = np.ones(1, dtype=np.int64)
    levels = ints(start, of=np.int64), ints(least, of=np.int64)
    with pytest.raises(ValueError, match="argument"):
        _native.widest_matching(1, entry, *levels, True, ints(*column_of))


def test_a_column_in_two_rows_is_refused():
    entry = np.ones(4, dtype=np.int64)
    one = ints(1, of=np.int64)
    with pytest.raises(ValueError, match="twice"):
        _native.widest_matching(2, entry, one, one, True, ints(0, 0))
