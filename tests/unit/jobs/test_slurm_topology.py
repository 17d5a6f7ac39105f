"""Slurm's topology files, in cases worked out by hand; slurmctld reads a file in test_slurm.py."""

import pytest
import yaml

from apps.jobs.rack_paths import RackPath
from apps.jobs.slurm_topology import blocks_of, tree_of
from hydra.errors import HydraError

RACK_OF = {"h11": "r1", "h12": "r1", "h21": "r2", "h22": "r2", "h31": "r3", "h41": "r4"}


def paths(*pairs, hops=1):
    return [RackPath(*pair.split("-"), hops, 100.0) for pair in pairs]


CHAIN = paths("r1-r3", "r3-r2", "r2-r4")


def test_a_chain_as_a_tree():
    tree = tree_of(RACK_OF, CHAIN)
    assert tree.conf().splitlines() == [
        "SwitchName=r1 Nodes=h11,h12",
        "SwitchName=r2 Nodes=h21,h22",
        "SwitchName=r3 Nodes=h31",
        "SwitchName=r4 Nodes=h41",
        "SwitchName=circuits1 Switches=r1,r3",
        "SwitchName=circuits2 Switches=r2,r4",
        "SwitchName=circuits3 Switches=circuits1,circuits2",
    ]
    (document,) = yaml.safe_load(tree.yaml())
    assert list(document) == ["topology", "cluster_default", "tree"], "the name comes first"
    assert document == {
        "topology": "hydra",
        "cluster_default": True,
        "tree": {
            "switches": [
                {"switch": "r1", "nodes": "h11,h12"},
                {"switch": "r2", "nodes": "h21,h22"},
                {"switch": "r3", "nodes": "h31"},
                {"switch": "r4", "nodes": "h41"},
                {"switch": "circuits1", "children": "r1,r3"},
                {"switch": "circuits2", "children": "r2,r4"},
                {"switch": "circuits3", "children": "circuits1,circuits2"},
            ]
        },
    }


def test_the_electrical_network_joins_what_circuits_do_not():
    assert tree_of(RACK_OF, paths("r1-r3")).conf().splitlines()[4:] == [
        "SwitchName=circuits1 Switches=r1,r3",
        "SwitchName=electrical Switches=circuits1,r2,r4",
    ]


def test_a_chain_as_blocks():
    """Blocks of 1, 2 and 4 racks: the smallest rack has one server."""
    blocks = blocks_of(RACK_OF, CHAIN)
    assert blocks.conf().splitlines() == [
        "BlockName=r1 Nodes=h11,h12",
        "BlockName=r3 Nodes=h31",
        "BlockName=r2 Nodes=h21,h22",
        "BlockName=r4 Nodes=h41",
        "BlockSizes=1,2,4",
    ]
    (document,) = yaml.safe_load(blocks.yaml())
    assert document["block"] == {
        "block_sizes": [1, 2, 4],
        "blocks": [
            {"block": "r1", "nodes": "h11,h12"},
            {"block": "r3", "nodes": "h31"},
            {"block": "r2", "nodes": "h21,h22"},
            {"block": "r4", "nodes": "h41"},
        ],
    }


def test_a_rack_alone():
    assert tree_of({"h1": "r1"}, ()).conf() == "SwitchName=r1 Nodes=h1\n"
    assert blocks_of({"h1": "r1"}, ()).conf() == "BlockName=r1 Nodes=h1\nBlockSizes=1\n"


def test_a_short_path_is_nearer_than_a_long_one():
    tree = tree_of(RACK_OF, [*paths("r1-r2", hops=2), *paths("r1-r3")])
    assert "SwitchName=circuits1 Switches=r1,r2,r3" in tree.conf().splitlines()
    order = [
        entry.name
        for entry in blocks_of(RACK_OF, [*paths("r1-r2", hops=2), *paths("r1-r3")]).entries
    ]
    assert order == ["r1", "r3", "r2", "r4"]


def test_racks_named_as_groups_are():
    tree = tree_of({"h1": "circuits1", "h2": "electrical", "h3": "r3"}, paths("circuits1-r3"))
    assert tree.conf().splitlines()[3:] == [
        "SwitchName=circuits2 Switches=circuits1,r3",
        "SwitchName=circuits3 Switches=circuits2,electrical",
    ]


def test_names_that_yaml_takes_for_numbers_stay_names():
    (document,) = yaml.safe_load(tree_of({"1": "12"}, ()).yaml())
    assert document["tree"]["switches"] == [{"switch": "12", "nodes": "1"}]


@pytest.mark.parametrize("shape_of", [tree_of, blocks_of])
def test_what_slurm_can_not_take(shape_of):
    with pytest.raises(HydraError, match="no servers, so Slurm has no nodes: add servers"):
        shape_of({}, ())
    with pytest.raises(HydraError, match=r"'r{64}' has 64 characters, and Slurm takes 63"):
        shape_of({"h1": "r" * 64}, ())
