"""Topologies as graphs of networkx."""

import os
import random
import shlex
import subprocess
import sys
from dataclasses import replace

import networkx as nx
import pytest

from tests.unit.core.fabrics import (
    first_state,
    parallel_paths,
    random_fabric,
    small_fabric,
    topology_of,
    with_one_way_circuits,
)
from tests.unit.docs.blocks import ROOT, blocks, starting_with


def test_circuits_between_two_racks_are_edges_of_their_own():
    fabric = small_fabric(racks=3, planes=2, servers=1)
    graph = topology_of(*parallel_paths(fabric)).to_networkx(fabric)
    assert type(graph) is nx.MultiGraph
    assert dict(graph.nodes(data="spine")) == {"r1": False, "r2": False, "r3": False}
    assert graph.graph == {
        "fabric": fabric.name,
        "electrical_rate_mbps": fabric.electrical_rate_mbps,
    }
    assert sorted(graph.edges(data="plane")) == [("r1", "r2", "p1"), ("r1", "r2", "p2")]
    assert nx.number_connected_components(graph) == 2


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("one_way", [False, True])
def test_the_graph_says_what_the_topology_says(seed, one_way):
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    if one_way and not fabric.one_way:
        fabric = with_one_way_circuits(fabric)
    elif not one_way:
        fabric = replace(fabric, one_way=False)
    topology = first_state(fabric, rng).topology
    graph = topology.to_networkx(fabric)
    assert graph.is_directed() == one_way
    assert set(graph) == {rack.name for rack in fabric.racks}
    found = set()
    for one, other, edge in graph.edges(data=True):
        ends = (edge["a_rack"], edge["b_rack"])
        assert ends == (one, other) if one_way else set(ends) == {one, other}
        a = fabric.port_by_name[edge["a_rack"], edge["a_port"]]
        b = fabric.port_by_name[edge["b_rack"], edge["b_port"]]
        circuit = fabric.circuit(a.id, b.id)
        assert fabric.planes[circuit.plane].name == edge["plane"]
        assert fabric.rate_of(circuit) == edge["rate_mbps"]
        found.add(circuit)
    assert found == topology.circuits
    assert graph.number_of_edges() == len(topology.circuits)
    keys = [key for _, _, key in graph.edges(keys=True)]
    assert len(set(keys)) == len(keys)


def test_the_model_does_without_networkx():
    """networkx takes a tenth of a second to load."""
    program = "import sys, hydra.model, apps.cli.network; print('networkx' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_documents_programs_run(tmp_path):
    command, *_ = starting_with("hydra plan --fabric 64x8@10000 --demand gravity --graph")
    main = [sys.executable, "-m", "apps.cli", *shlex.split(command)[1:]]
    subprocess.run(main, cwd=tmp_path, env=environment(), capture_output=True, check=True)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    programs = [text for kind, text in blocks(ROOT / "docs/planning.md") if kind == "python"]
    assert len(programs) == 3
    for program in programs:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        said = done.stdout.split()
        expected = program.partition("#")[2].split()[:1] or said
        assert [word.rstrip(":") for word in expected] == said != []


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}
