"""Circuits as a networkx graph, and as text for other tools.

networkx takes a tenth of a second to load: import this module only where needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import networkx as nx


def circuit_graph(
    racks: Iterable[Any], circuits: Iterable[Mapping[str, Any]], *, one_way: bool, **about: Any
) -> nx.MultiGraph:
    """Build a graph of racks (names, or names with attributes) and circuits in the form of the REST
    API.

    Edge keys are unique; ``about`` holds graph attributes. Directed if ``one_way``.
    """
    graph = nx.MultiDiGraph(**about) if one_way else nx.MultiGraph(**about)
    graph.add_nodes_from(racks)
    for circuit in circuits:
        plane, a, b = circuit["plane"], circuit["a"], circuit["b"]
        graph.add_edge(
            a["rack"],
            b["rack"],
            key=f"{plane}:{a['rack']}:{a['port']}",
            plane=plane,
            **{f"a_{name}": value for name, value in a.items()},
            **{f"b_{name}": value for name, value in b.items()},
            rate_mbps=circuit["rate_mbps"],
        )
    return graph


def _node_link(graph: nx.MultiGraph) -> str:
    return json.dumps(nx.node_link_data(graph, edges="edges"), indent=2)


def _graphml(graph: nx.MultiGraph) -> str:
    return "\n".join(nx.generate_graphml(graph, named_key_ids=True))


FORMATS: Final[Mapping[str, Callable[[nx.MultiGraph], str]]] = {
    "graphml": _graphml,
    "node-link": _node_link,
}
"""Serializers by format name: GraphML, or node-link JSON of networkx."""
