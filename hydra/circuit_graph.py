"""Circuits as a graph of networkx, and as text that other tools read.

networkx takes a tenth of a second to load: only import this where a graph is wanted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypedDict

import networkx as nx


class Edge(TypedDict):
    """The attributes of an edge; a one-way circuit leads from ``a`` to ``b``."""

    plane: str
    a_rack: str
    a_port: str
    b_rack: str
    b_port: str
    rate_mbps: float
    """In each direction that it carries."""


def circuit_graph(
    racks: Iterable[tuple[str, Mapping[str, Any]]],
    circuits: Iterable[Edge],
    *,
    one_way: bool,
    **about: Any,
) -> nx.MultiGraph:
    """Racks by name with their attributes as nodes, circuits as edges, ``about`` of the whole.

    Directed if ``one_way``. The key of an edge is unique in the graph.
    """
    graph = nx.MultiDiGraph(**about) if one_way else nx.MultiGraph(**about)
    graph.add_nodes_from(racks)
    for one in circuits:
        key = f"{one['plane']}:{one['a_rack']}:{one['a_port']}"
        graph.add_edge(one["a_rack"], one["b_rack"], key=key, **one)
    return graph


def _node_link(graph: nx.MultiGraph) -> str:
    return json.dumps(nx.node_link_data(graph, edges="edges"), indent=2)


def _graphml(graph: nx.MultiGraph) -> str:
    return "\n".join(nx.generate_graphml(graph, named_key_ids=True))


FORMATS: Final[Mapping[str, Callable[[nx.MultiGraph], str]]] = {
    "graphml": _graphml,
    "node-link": _node_link,
}
"""The text of a graph, by the format's name: GraphML, or the JSON of networkx."""
