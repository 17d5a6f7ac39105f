"""The topology as a picture: Graphviz' DOT, or self-contained SVG.

One-way circuits are arrows, duplex circuits plain lines. Planes differ by colour and by dash, so
the picture is readable without distinguishing colours. Colours by Okabe and Ito, "Color Universal
Design" (2008).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from importlib import import_module
from math import cos, hypot, pi, sin
from typing import Final
from xml.etree import ElementTree as Xml

from apps.cli.wording import describe_circuit
from hydra.names import counted
from hydra_hybrid_network_client.errors import JsonObject

_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: Final = ("", "8 3", "2 3", "10 3 2 3", "5 5")
_RACK_LENGTH: Final = 34.0
_RACK_RADIUS: Final = 5.0
_HEAD: Final = (11.0, 4.5)
"""Length and half the width of an arrow's head."""
_LEGEND: Final = 190.0


def graph(document: JsonObject, form: str) -> str:
    """The graph of :meth:`hydra.model.Topology.to_networkx`, as text in ``form``."""
    library = import_module("hydra.circuit_graph")  # networkx takes a tenth of a second
    circuits = document["circuits"]
    made = library.circuit_graph(
        document["racks"],
        circuits,
        one_way=any(circuit["one_way"] for circuit in circuits),
        fabric=document["fabric"],
        electrical_rate_mbps=document["electrical_rate_mbps"],
    )
    return str(library.FORMATS[form](made))


def _style(index: int) -> tuple[str, str]:
    return _COLOURS[index % len(_COLOURS)], _DASHES[index % len(_DASHES)]


def dot(topology: JsonObject) -> str:
    """DOT text, for ``dot``, ``neato`` and the like."""
    planes = [plane["name"] for plane in topology["planes"]]
    one_way = any(circuit["one_way"] for circuit in topology["circuits"])
    kind, edge = ("digraph", "->") if one_way else ("graph", "--")
    lines = [f"{kind} {_quoted(topology['fabric'])} {{", "  layout=circo; node [shape=box];"]
    lines += [f"  {_quoted(rack)};" for rack in topology["racks"]]
    for circuit in topology["circuits"]:
        colour, dash = _style(planes.index(circuit["plane"]))
        label = f"{circuit['plane']}, {_load(circuit)}"
        lines.append(
            f"  {_quoted(circuit['a']['rack'])} {edge} {_quoted(circuit['b']['rack'])} "
            f'[label={_quoted(label)}, color="{colour}", style={"dashed" if dash else "solid"}];'
        )
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _load(circuit: JsonObject) -> str:
    """Load of a circuit in words: both directions summed, or the single direction of a one-way
    circuit.
    """
    known = [circuit[way] for way in ("a_to_b_mbps", "b_to_a_mbps") if circuit[way] is not None]
    rate = f"{circuit['rate_mbps']:g} Mb/s"
    most = rate if circuit["one_way"] else f"2 × {rate}"
    return f"{sum(known):.1f} of {most}" if known else rate


def svg(topology: JsonObject) -> str:
    """Racks on a circle, circuits as lines or arrows; hovering shows the load."""
    racks, planes = topology["racks"], [plane["name"] for plane in topology["planes"]]
    radius = max(140.0, len(racks) * _RACK_LENGTH / (2 * pi))
    middle = radius + 90.0
    width, height = 2 * middle + _LEGEND, max(2 * middle, 60.0 + 20.0 * len(planes))
    root = Xml.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        style="background:#fff;font:12px sans-serif",
    )
    title = f"{topology['fabric']}, epoch {topology['epoch']}"
    Xml.SubElement(root, "title").text = title
    spots = {
        rack: (
            middle + radius * sin(2 * pi * index / len(racks)),
            middle - radius * cos(2 * pi * index / len(racks)),
        )
        for index, rack in enumerate(racks)
    }
    _draw_circuits(root, topology, planes, spots)
    for rack, (x, y) in spots.items():
        _draw_rack(root, rack, x, y, (x - middle) / radius, (y - middle) / radius)
    _draw_legend(root, title, topology, planes, 2 * middle)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode")


def _draw_circuits(
    root: Xml.Element,
    topology: JsonObject,
    planes: list[str],
    spots: dict[str, tuple[float, float]],
) -> None:
    beside: dict[tuple[str, str], int] = defaultdict(int)
    for circuit in topology["circuits"]:
        a, b = circuit["a"]["rack"], circuit["b"]["rack"]
        pair = min(a, b), max(a, b)
        offset = 6.0 * beside[pair]  # parallel circuits lie beside each other
        beside[pair] += 1
        (x1, y1), (x2, y2) = spots[a], spots[b]
        colour, dash = _style(planes.index(circuit["plane"]))
        line = Xml.SubElement(
            root,
            "line",
            {
                "x1": f"{x1 + offset:.1f}",
                "y1": f"{y1 + offset:.1f}",
                "x2": f"{x2 + offset:.1f}",
                "y2": f"{y2 + offset:.1f}",
                "stroke": colour,
                "stroke-width": "2.5",
                "stroke-dasharray": dash or "none",
            },
        )
        tip = f"{describe_circuit(circuit)}: {_load(circuit)}"
        Xml.SubElement(line, "title").text = tip
        if circuit["one_way"]:
            ends = (x1 + offset, y1 + offset), (x2 + offset, y2 + offset)
            Xml.SubElement(_draw_head(root, colour, *ends), "title").text = tip


def _draw_head(
    root: Xml.Element, colour: str, start: tuple[float, float], end: tuple[float, float]
) -> Xml.Element:
    """Draw an arrow's head that ends at the edge of a rack's circle."""
    far = hypot(end[0] - start[0], end[1] - start[1])
    dx, dy = (end[0] - start[0]) / far, (end[1] - start[1]) / far
    length, half = _HEAD
    tip = end[0] - _RACK_RADIUS * dx, end[1] - _RACK_RADIUS * dy
    back = tip[0] - length * dx, tip[1] - length * dy
    corners = (
        tip,
        (back[0] - half * dy, back[1] + half * dx),
        (back[0] + half * dy, back[1] - half * dx),
    )
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return Xml.SubElement(root, "polygon", points=points, fill=colour)


def _draw_rack(root: Xml.Element, rack: str, x: float, y: float, dx: float, dy: float) -> None:
    Xml.SubElement(
        root,
        "circle",
        cx=f"{x:.1f}",
        cy=f"{y:.1f}",
        r=f"{_RACK_RADIUS:g}",
        fill="#fff",
        stroke="#222",
    )
    label = Xml.SubElement(
        root,
        "text",
        {
            "x": f"{x + 12 * dx:.1f}",
            "y": f"{y + 14 * dy + 4:.1f}",
            "text-anchor": "start" if dx > 0.2 else "end" if dx < -0.2 else "middle",
        },
    )
    label.text = rack


def _draw_legend(
    root: Xml.Element, title: str, topology: JsonObject, planes: list[str], left_px: float
) -> None:
    Xml.SubElement(root, "text", x=f"{left_px:.0f}", y="24").text = title
    many = Counter(circuit["plane"] for circuit in topology["circuits"])
    for index, plane in enumerate(planes):
        colour, dash = _style(index)
        y = f"{48 + 20 * index}"
        Xml.SubElement(
            root,
            "line",
            {
                "x1": f"{left_px:.0f}",
                "y1": y,
                "x2": f"{left_px + 36:.0f}",
                "y2": y,
                "stroke": colour,
                "stroke-width": "2.5",
                "stroke-dasharray": dash or "none",
            },
        )
        text = Xml.SubElement(root, "text", x=f"{left_px + 44:.0f}", y=f"{52 + 20 * index}")
        text.text = f"{plane}: {counted(many[plane], 'circuit')}"
