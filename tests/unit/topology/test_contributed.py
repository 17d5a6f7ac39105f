"""Algorithms that other packages contribute by entry points."""

from importlib.metadata import EntryPoint

import pytest

from hydra import plugins
from hydra.errors import PlanError, UnknownName
from hydra.model import EMPTY_TOPOLOGY
from tests.unit.topology.topology_fabrics import full
from topology import algorithms
from topology.algorithms import CONTRIBUTED, ENTRIES, contributions, entry, objection
from topology.problem import Budget, Reserved
from topology.synthetic import synthetic_demand

OURS = dict(ENTRIES)


def points(monkeypatch, **values):
    """Have other packages contribute these algorithms."""
    found = [EntryPoint(name, value, CONTRIBUTED) for name, value in values.items()]
    monkeypatch.setattr(plugins, "points_of", lambda group: found if group else [])
    monkeypatch.setattr(algorithms, "ENTRIES", contributions(OURS))


def test_a_contributed_algorithm_stands_beside_ours(monkeypatch):
    points(monkeypatch, mine="tests.unit.topology.contributed:MINE")
    assert [*algorithms.ENTRIES] == [*OURS, "mine"]
    assert len(algorithms.ENTRIES) == len(OURS) + 1
    assert entry("mine").summary == "nothing at all"
    assert objection("mine", full(2, 1)) is None


def test_a_name_of_ours_and_of_a_package_s_is_nobody_s(monkeypatch):
    points(monkeypatch, anytime="tests.unit.topology.contributed:MINE")
    assert [*algorithms.ENTRIES] == [*OURS]
    assert objection("anytime", full(2, 1)) == (
        "algorithm anytime can't be used: tests.unit.topology.contributed:MINE has the name of "
        "one of HydRA's own; rename the entry point in hydra.algorithms, or uninstall the package"
    )
    assert entry("hydra-bfs") is OURS["hydra-bfs"]
    with pytest.raises(UnknownName, match="choose one of"):
        entry("mine")


def test_a_name_of_two_packages_is_nobody_s(monkeypatch):
    found = [EntryPoint("mine", f"{module}:MINE", CONTRIBUTED) for module in ("here", "there")]
    monkeypatch.setattr(plugins, "points_of", lambda group: found if group else [])
    monkeypatch.setattr(algorithms, "ENTRIES", contributions(OURS))
    assert "here:MINE and there:MINE have the name, each;" in objection("mine", full(2, 1))


def test_a_place_is_a_name(monkeypatch):
    points(monkeypatch)
    assert entry("tests.unit.topology.contributed:MINE").summary == "nothing at all"
    assert "tests.unit.topology.contributed:MINE" not in [*algorithms.ENTRIES]


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("nowhere:MINE", "ModuleNotFoundError: No module named 'nowhere'"),
        ("no where:MINE", "the name is not written as module:object"),
        (
            "os:getcwd",
            "the object is a builtin_function_or_method, not a topology.algorithms.Entry",
        ),
    ],
)
def test_a_bad_place_says_what_is_wrong(place, problem):
    assert objection(place, full(2, 1)) == (
        f"algorithm {place} can't be loaded ({problem}): make the module importable "
        "(pip install, PYTHONPATH), or repair it"
    )


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("nowhere:MINE", "ModuleNotFoundError: No module named 'nowhere'"),
        ("tests.unit.topology.contributed:LOST", "AttributeError"),
        ("tests.unit.topology.contributed_broken", "RuntimeError: at import"),
        (
            "topology.multihop:keep_current",
            "the object is a function, not a topology.algorithms.Entry",
        ),
    ],
)
def test_a_bad_one_says_what_is_wrong_and_stops_nothing_else(monkeypatch, value, problem):
    points(monkeypatch, bad=value)
    fabric = full(2, 1)
    why = objection("bad", fabric)
    assert f"algorithm bad can't be loaded from {value} ({problem}" in why
    assert why.endswith("choose another algorithm")
    demand = synthetic_demand("gravity", 2, seed=1, busiest_mbps=50.0)
    nothing = (fabric, demand, EMPTY_TOPOLOGY, Reserved(), Budget(1))
    with pytest.raises(PlanError, match="can't be loaded"):
        entry("bad").plan(*nothing)
    assert entry("anytime").plan(*nothing).served_share == 1.0
    assert not entry("bad").spares
