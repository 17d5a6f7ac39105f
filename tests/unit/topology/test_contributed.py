"""Algorithms that other packages contribute by entry points."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from hydra.errors import PlanError, UnknownName
from hydra.model import EMPTY_TOPOLOGY
from tests.unit.topology.topology_fabrics import full
from topology import algorithms
from topology.algorithms import CONTRIBUTED, ENTRIES, Entries, entry, objection
from topology.problem import Budget, Reserved
from topology.synthetic import synthetic_demand

OURS = dict(ENTRIES)


def points(monkeypatch, **values):
    """Have other packages contribute these."""
    found = [EntryPoint(name, value, CONTRIBUTED) for name, value in values.items()]
    monkeypatch.setattr(algorithms, "entry_points", lambda group: found if group else [])
    monkeypatch.setattr(algorithms, "ENTRIES", Entries(OURS))


def test_a_contributed_algorithm_stands_beside_ours(monkeypatch):
    points(monkeypatch, mine="tests.unit.topology.contributed:MINE")
    assert [*algorithms.ENTRIES] == [*OURS, "mine"]
    assert len(algorithms.ENTRIES) == len(OURS) + 1
    assert entry("mine").summary == "nothing at all"
    assert objection("mine", full(2, 1)) is None


def test_ours_can_not_be_replaced(monkeypatch):
    points(monkeypatch, anytime="tests.unit.topology.contributed:MINE")
    assert entry("anytime") is OURS["anytime"]
    assert [*algorithms.ENTRIES] == [*OURS]
    with pytest.raises(UnknownName, match="choose one of"):
        entry("mine")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("nowhere:MINE", "ModuleNotFoundError: No module named 'nowhere'"),
        ("tests.unit.topology.contributed:LOST", "AttributeError"),
        ("tests.unit.topology.contributed_broken", "RuntimeError: at import"),
        ("topology.multihop:keep_current", "it is a function, not a topology.algorithms.Entry"),
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


def test_an_installed_package_s_algorithm_plans_on_the_command_line(tmp_path):
    (tmp_path / "my_planner.py").write_text(
        "from topology.algorithms import Entry\n"
        "from topology.direct import Joins, direct\n\n\n"
        "@direct\n"
        "def greedy(joins: Joins) -> None:\n"
        "    for a, b in joins.pairs():\n"
        "        for plane in joins.planes(a, b)[:1]:\n"
        "            joins.join(a, b, plane)\n\n\n"
        'GREEDY = Entry(greedy, "a circuit for the greatest demands first", "mine")\n'
    )
    info = tmp_path / "my_planner-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-planner\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[hydra.algorithms]\ngreedy = my_planner:GREEDY\nlost = my_planner:LOST\n"
    )
    here = os.pathsep.join([str(tmp_path), str(Path.cwd())])

    def plan(name):
        command = [sys.executable, "-m", "apps.cli", "plan", "--fabric", "4x1@100"]
        return subprocess.run(
            [*command, "--demand", "r1:r2=50", "--algorithm", name, "--check"],
            env={**os.environ, "PYTHONPATH": here},
            capture_output=True,
            text=True,
            check=False,
        )

    planned = plan("greedy")
    assert planned.returncode == 0, planned.stderr
    assert "greedy" in planned.stdout
    refused = plan("lost")
    assert refused.returncode != 0
    assert "algorithm lost can't be loaded from my_planner:LOST of package my-planner" in " ".join(
        refused.stderr.split()
    )
