"""Circuits, paths, moments and conditions in a line of text or a few."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from hydra_hybrid_network_client.errors import JsonObject

_UTC: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
"""A moment in the controller's sentences."""


def describe_path(path: JsonObject) -> str:
    """``r1 =p2= r4 =p1= r3``; for one-way circuits ``r1 =p2> r4``."""
    way = _way(path)
    hops = (f" ={hop['plane']}{way} {hop['to_rack']}" for hop in path["hops"])
    return "".join([path["src"], *hops])


def describe_circuit(circuit: JsonObject) -> str:
    """``r1 =p2= r4``, or ``r1 =p2> r4`` for a one-way circuit."""
    return f"{circuit['a']['rack']} ={circuit['plane']}{_way(circuit)} {circuit['b']['rack']}"


def _way(json_object: JsonObject) -> str:
    return ">" if json_object["one_way"] else "="


def moment(unix_s: float) -> str:
    """Local date and time of day, with the zone."""
    return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def local(text: str) -> str:
    """Rewrite the moments in a sentence of the controller as by :func:`moment`."""
    return _UTC.sub(lambda found: moment(datetime.fromisoformat(found[0]).timestamp()), text)


def health(document: JsonObject) -> str:
    """``healthy``, or ``not healthy`` and the number of conditions."""
    many = len(document["conditions"])
    if not many:
        return "healthy"
    return f"not healthy: {many} {'thing is' if many == 1 else 'things are'} wrong"


def describe_condition(condition: JsonObject) -> list[str]:
    """Lines about a condition: the fault, the start, affected pairs and reservations, the
    controller's action, the next step.
    """
    lines = [
        f"{condition['kind']}, since {moment(condition['since_unix_s'])}",
        f"  {local(condition['what'])}",
    ]
    affected = [
        _some(what, [*map(str, names)], condition[f"{what}_total"])
        for what, names in (
            ("pairs", (f"{pair['src']}-{pair['dst']}" for pair in condition["pairs"])),
            ("reservations", condition["reservations"]),
        )
    ]
    if any(affected):
        lines.append("  affects " + "; ".join(filter(None, affected)))
    lines.append(f"  done: {local(condition['done'])}")
    lines.append(f"  to do: {local(condition['to_do'])}: {condition['command']}")
    return lines


def _some(what: str, names: list[str], total: int) -> str:
    if not names:
        return ""
    more = total - len(names)
    return f"{what} {', '.join(names)}" + (f" and {more:,} more" if more > 0 else "")
