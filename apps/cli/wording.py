"""Circuits and paths in a line of text."""

from __future__ import annotations

from apps.connection import JsonObject


def describe_path(path: JsonObject) -> str:
    """``r1 =p2= r4 =p1= r3``; for one-way circuits ``r1 =p2> r4``."""
    way = _way(path)
    hops = (f" ={hop['plane']}{way} {hop['to_rack']}" for hop in path["hops"])
    return "".join([path["src"], *hops])


def describe_circuit(circuit: JsonObject) -> str:
    """``r1 =p2= r4``, or ``r1 =p2> r4`` if it is one-way."""
    return f"{circuit['a']['rack']} ={circuit['plane']}{_way(circuit)} {circuit['b']['rack']}"


def _way(one: JsonObject) -> str:
    return ">" if one["one_way"] else "="
