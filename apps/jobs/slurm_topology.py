"""Slurm's topology files of racks and paths of circuits: topology.yaml(5), topology.conf(5).

A server is a node, and a rack a leaf switch or a base block. Tree: racks joined by paths are below
a common switch, in nested groups as far as paths lead (:func:`topology.nearness.nearest_groups`),
and the electrical network is the root. Block: Slurm aggregates blocks by their places in the file,
aligned to powers of two, so racks joined by paths stand beside each other in the file
(:func:`topology.nearness.block_order`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from apps.jobs.rack_paths import RackPath
from hydra.errors import HydraError
from topology.nearness import Group, block_order, nearest_groups

_LONGEST_NAME: Final = 63
"""Slurm refuses switches with longer names."""


class Entry(NamedTuple):
    """A switch or a block."""

    name: str
    members: Sequence[str]
    """Nodes, or child switches."""
    is_leaf: bool = True


@dataclass(frozen=True, slots=True)
class SlurmTopology:
    """The content of a topology file; a switch comes after its children."""

    entries: Sequence[Entry]
    block_sizes: Sequence[int] = ()
    """Nodes of a block at each level. Empty: a tree."""

    def yaml(self) -> str:
        """A topology.yaml with this topology, ``hydra``, as the default."""
        kind, whole = ("block", "blocks") if self.block_sizes else ("switch", "switches")
        entries: list[dict[str, str]] = [
            {kind: name, "nodes" if is_leaf else "children": ",".join(members)}
            for name, members, is_leaf in self.entries
        ]
        sizes = {"block_sizes": list(self.block_sizes)} if self.block_sizes else {}
        plugin = "block" if self.block_sizes else "tree"
        found = {"topology": "hydra", "cluster_default": True, plugin: {**sizes, whole: entries}}
        return yaml.safe_dump([found], sort_keys=False, explicit_start=True, width=2**31)

    def conf(self) -> str:
        """A topology.conf with this topology."""
        kind = "BlockName" if self.block_sizes else "SwitchName"
        lines = [
            f"{kind}={name} {'Nodes' if is_leaf else 'Switches'}={','.join(members)}\n"
            for name, members, is_leaf in self.entries
        ]
        sizes = f"BlockSizes={','.join(map(str, self.block_sizes))}\n" if self.block_sizes else ""
        return "".join(lines) + sizes


def tree_of(rack_of: Mapping[str, str], paths: Iterable[RackPath]) -> SlurmTopology:
    """The switches of servers (name to rack) and paths.

    Raises HydraError without servers, and for a rack name too long for Slurm.
    """
    leaves = _leaves(rack_of)
    entries = list(leaves)
    taken = {leaf.name for leaf in leaves}
    numbered = (name for at in count(1) if (name := f"circuits{at}") not in taken)

    def switch(group: int | Group) -> str:
        if not isinstance(group, Group):
            return leaves[group].name
        below = [switch(member) for member in group.members]
        entries.append(Entry(next(numbered), below, is_leaf=False))
        return entries[-1].name

    top = [switch(group) for group in nearest_groups(_rates(leaves, paths))]
    if len(top) > 1:
        root = "electrical" if "electrical" not in taken else next(numbered)
        entries.append(Entry(root, top, is_leaf=False))
    return SlurmTopology(entries)


def blocks_of(rack_of: Mapping[str, str], paths: Iterable[RackPath]) -> SlurmTopology:
    """The blocks of servers (name to rack) and paths; sizes double from that of the smallest rack.

    Raises HydraError as :func:`tree_of`.
    """
    leaves = _leaves(rack_of)
    smallest, doublings = min(len(leaf.members) for leaf in leaves), (len(leaves) - 1).bit_length()
    sizes = [smallest << level for level in range(doublings + 1)]
    return SlurmTopology([leaves[at] for at in block_order(_rates(leaves, paths))], sizes)


def _leaves(rack_of: Mapping[str, str]) -> list[Entry]:
    """Racks with servers. Raises HydraError."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for server, rack in rack_of.items():
        nodes[rack].append(server)
    if not nodes:
        raise HydraError("the fabric has no servers, so Slurm has no nodes: add servers to racks")
    if len(longest := max(nodes, key=len)) > _LONGEST_NAME:
        raise HydraError(
            f"the rack name {longest!r} has {len(longest)} characters, and Slurm takes "
            f"{_LONGEST_NAME} for a switch: shorten it in the configuration"
        )
    return [Entry(rack, servers) for rack, servers in nodes.items()]


def _rates(leaves: Sequence[Entry], paths: Iterable[RackPath]) -> NDArray[np.int64]:
    """Mb/s of the paths of each two racks, both directions; a path of n circuits counts 1/n."""
    number = {leaf.name: at for at, leaf in enumerate(leaves)}
    rate = np.zeros((len(leaves), len(leaves)), dtype=np.int64)
    for path in paths:
        if path.src in number and path.dst in number:
            rate[number[path.src], number[path.dst]] += max(1, round(path.mbps / path.hops))
    return rate + rate.T
