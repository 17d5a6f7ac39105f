"""Circuits as arrays behave like a frozenset of the same circuits."""

import pickle
from operator import and_, eq, ge, le, or_, sub, xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.circuit_arrays import Circuits
from hydra.model import Circuit, OneWayCircuit, PlaneId, PortId

PORTS = st.sampled_from([-1, 0, 1, 2, 2**24, 2**24 + 2, 2**31 - 1])
"""Some ports beyond the range in which keys are unique."""


@st.composite
def _circuits(draw):
    a, b = draw(st.lists(PORTS, min_size=2, max_size=2, unique=True))
    plane = PlaneId(draw(st.integers(0, 1)))
    if draw(st.booleans()):
        return OneWayCircuit(plane, PortId(a), PortId(b))
    return Circuit(plane, PortId(min(a, b)), PortId(max(a, b)))


SETS = st.frozensets(_circuits(), max_size=8)


@pytest.mark.parametrize("operation", [and_, or_, sub, xor, eq, le, ge])
@given(SETS, SETS)
def test_operations_are_those_of_sets(operation, some, others):
    expected = operation(some, others)
    assert operation(Circuits.of(some), Circuits.of(others)) == expected
    assert operation(Circuits.of(some), others) == expected
    assert operation(some, Circuits.of(others)) == expected


@given(SETS)
def test_a_set_comes_back(some):
    circuits = Circuits.of(some)
    assert frozenset(circuits) == some
    assert (len(circuits), hash(circuits)) == (len(some), hash(some))
    assert all(circuit in circuits for circuit in some)
    assert pickle.loads(pickle.dumps(circuits)) == some  # noqa: S301 - our own


@given(st.frozensets(_circuits().filter(lambda circuit: not circuit.one_way), max_size=8))
def test_circuits_ascend(some):
    assert list(Circuits.of(some)) == sorted(some)


def test_equal_objects_are_one_circuit():
    again = [Circuit(PlaneId(0), PortId(1), PortId(2)) for _ in range(2)]
    assert len(Circuits.of(again)) == 1
