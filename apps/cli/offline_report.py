"""Output of ``hydra plan --fabric``: JSON documents and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from apps.cli.network import print_circuits, print_paths
from apps.cli.output import print_facts, print_table
from apps.offline.study import Outcome, Study
from apps.rest.resources.topology import Along, Circuit, Path
from hydra.model import Fabric
from hydra.names import counted
from hydra_hybrid_network_client.errors import JsonObject
from topology.algorithms import Product
from topology.problem import PlanResult, Slot

_LISTED: Final = 40
"""Most rows of a table; JSON has all."""

_NOT_COUNTED: Final = "–"
"""Circuits and hops of a plan of slots, whose light paths come and go."""

Bounds = Mapping[Product, float | None]
"""By kind of plan, the largest share of the demand that any plan can serve."""


def document_of(study: Study, outcome: Outcome, bounds: Bounds) -> JsonObject:
    """The JSON document of a plan; without a plan, only fabric, demand and refusal."""
    fabric, result = study.fabric, outcome.result
    document: JsonObject = {
        "algorithm": outcome.algorithm,
        "fabric": fabric.name,
        "racks": len(fabric.racks),
        "planes": len(fabric.planes),
        "refused": outcome.refused or None,
        "demand_mbps": float(study.demand.sum()),
    }
    if result is None:
        return document
    vlans = {} if outcome.state is None else outcome.state.vlans
    return document | {
        "planning_ms": outcome.planning_ms,
        "vlans_ms": outcome.vlans_ms,
        "vlans": None if outcome.state is None else len(set(vlans.values())),
        "vlan_problem": outcome.vlan_problem or None,
        "served_share": result.served_share,
        "served_share_bound": bounds.get(outcome.entry.product),
        "gap": result.gap,
        "mean_hops": result.mean_hops,
        "connect": len(result.topology.circuits - study.current.topology.circuits),
        "disconnect": len(study.current.topology.circuits - result.topology.circuits),
        "circuits": [
            Circuit.of(fabric, circuit).model_dump() for circuit in sorted(result.topology.circuits)
        ],
        "paths": [
            Path.of(fabric, Along(path, vlans.get(path), path.src)).model_dump()
            for path in result.topology.paths
        ],
        "unserved": [
            {"src": fabric.racks[src].name, "dst": fabric.racks[dst].name}
            for src, dst in result.unserved
        ],
        "slots": [_slot(fabric, slot) for slot in result.slots],
        "makespan": _makespan_document(outcome),
        "problems": None if outcome.problems is None else list(outcome.problems),
    }


def _makespan_document(outcome: Outcome) -> JsonObject | None:
    found = outcome.makespan
    if found is None:
        return None
    window_ms = None if found.window_s is None else found.window_s * 1000
    return {"window_ms": window_ms, "least_ms": found.least_s * 1000}


def _least_window(outcome: Outcome) -> str:
    found = outcome.makespan
    return "" if found is None else f"{found.least_s * 1000:,.1f} ms"


def _makespan(outcome: Outcome) -> str:
    """The shortest window in words; empty if not computed."""
    found = outcome.makespan
    if found is None:
        return ""
    if found.window_s is None:
        return "no window that was tried"
    return f"{found.window_s * 1000:,.1f} ms"


def _slot(fabric: Fabric, slot: Slot) -> JsonObject:
    def end(port_id: int) -> JsonObject:
        port = fabric.ports[port_id]
        return {"rack": fabric.racks[port.rack].name, "port": port.tor_port}

    return {
        "lane": slot.lane,
        "duration_ms": slot.duration_s * 1000,
        "lightpaths": [
            {
                "plane": fabric.planes[light.plane].name,
                "sender": end(light.sender),
                "receiver": end(light.receiver),
            }
            for light in sorted(slot.lightpaths)
        ],
    }


def print_comparison(study: Study, outcomes: Sequence[Outcome], bounds: Bounds) -> None:
    columns = [
        "algorithm",
        "ms>",
        "served>",
        "best possible>",
        "pairs>",
        "hops>",
        "circuits>",
        "slots>",
    ]
    columns += [
        "makespan>",
        "VLANs>",
        "checks" if any(o.problems is not None for o in outcomes) else "",
        "remark",
    ]
    rows: list[list[object]] = []
    for outcome in outcomes:
        result = outcome.result
        if result is None:
            rows.append([outcome.algorithm, *[""] * (len(columns) - 2), outcome.refused])
            continue
        vlans = "" if outcome.state is None else str(_vlans(outcome))
        rows.append(
            [
                outcome.algorithm,
                f"{outcome.planning_ms:,.1f}",
                _percent(result.served_share),
                _percent(bounds.get(outcome.entry.product)),
                _joined_pairs(study, result),
                f"{result.mean_hops:.2f}" if result.topology.paths else _NOT_COUNTED,
                _NOT_COUNTED
                if result.slots
                else f"{len(result.topology.circuits)}{_changes(study, result)}",
                len(result.slots) or "",
                _makespan(outcome),
                vlans,
                _verdict(outcome),
                outcome.vlan_problem or _gap(result),
            ]
        )
    used = [i for i, name in enumerate(columns) if name and any(row[i] != "" for row in rows)]
    fabric = study.fabric
    print_table(
        f"{_sized(fabric)}, {study.demand.sum():,.0f} Mb/s wanted",
        [columns[i] for i in used],
        [[row[i] for i in used] for row in rows],
    )


def _sized(fabric: Fabric) -> str:
    racks, planes = counted(len(fabric.racks), "rack"), counted(len(fabric.planes), "plane")
    return f"{fabric.name}: {racks}, {planes}"


def print_plan(study: Study, outcome: Outcome, bounds: Bounds) -> None:
    result, fabric = outcome.plan, study.fabric
    facts: list[tuple[str, Any]] = [
        ("fabric", _sized(fabric)),
        ("algorithm", f"{outcome.algorithm}: {outcome.entry.summary}"),
        ("planned in", f"{outcome.planning_ms:,.1f} ms"),
        ("demand", f"{study.demand.sum():,.1f} Mb/s"),
        ("served", f"{_percent(result.served_share)} of the demand"),
        ("pairs joined", f"{_joined_pairs(study, result)}; the rest stays electrical"),
        ("circuits", f"{len(result.topology.circuits)}{_changes(study, result)}"),
        ("closing rings", _closing(study, result)),
        ("several paths", _several(result)),
        ("slots", len(result.slots) or None),
        ("makespan", _makespan(outcome)),
        ("no schedule in less than", _least_window(outcome)),
        ("paths by hops", _hops(result)),
        ("VLANs", outcome.vlan_problem or _vlans(outcome)),
        ("proven", _gap(result)),
        ("no plan serves", _at_most(bounds.get(outcome.entry.product))),
        ("checks", _verdict(outcome)),
    ]
    print_facts([(name, value) for name, value in facts if value not in ("", None)])
    document = document_of(study, outcome, bounds) if _short(result) else {}
    if document:
        print_circuits("Circuits", document["circuits"])
        print_paths("Paths", document["paths"])
    if 0 < len(result.slots) <= _LISTED:
        _print_slots(fabric, result)


def _print_slots(fabric: Fabric, result: PlanResult) -> None:
    print_table(
        "Slots",
        ("slot>", "ms>", "light paths>", "the first"),
        [
            (
                number,
                f"{slot.duration_s * 1000:.2f}",
                len(slot.lightpaths),
                ", ".join(_light(fabric, slot)[:4]),
            )
            for number, slot in enumerate(result.slots)
        ],
    )


def _light(fabric: Fabric, slot: Slot) -> list[str]:
    return [
        f"{fabric.racks[fabric.ports[light.sender].rack].name} ={fabric.planes[light.plane].name}> "
        f"{fabric.racks[fabric.ports[light.receiver].rack].name}"
        for light in sorted(slot.lightpaths)
    ]


def _short(result: PlanResult) -> bool:
    return max(len(result.topology.circuits), len(result.topology.paths)) <= _LISTED


def _joined_pairs(study: Study, result: PlanResult) -> str:
    demand = study.demand
    one_way = result.slots or study.fabric.one_way
    pairs = demand > 0 if one_way else np.triu(np.maximum(demand, demand.T)) > 0
    wanted = int(pairs.sum())
    return f"{wanted - len(result.unserved)} of {wanted}"


def _several(result: PlanResult) -> str:
    counts = Counter(Counter((path.src, path.dst) for path in result.topology.paths).values())
    return ", ".join(
        f"{count} pair{'s' if count > 1 else ''} with {many}"
        for many, count in sorted(counts.items())
        if many > 1
    )


def _changes(study: Study, result: PlanResult) -> str:
    """Numbers of added and removed circuits, as ``(+2 -1)``; empty without circuits before."""
    now, then = study.current.topology.circuits, result.topology.circuits
    return f" (+{len(then - now)} -{len(now - then)})" if now else ""


def _closing(study: Study, result: PlanResult) -> str:
    """Number of one-way circuits that only light a port, in words; empty if zero."""
    ends = map(study.fabric.racks_of, result.topology.circuits)
    many = sum(not study.demand[src, dst] for src, dst in ends) if study.fabric.one_way else 0
    return f"{many} of the circuits, without any demand" if many else ""


def _hops(result: PlanResult) -> str:
    counts = sorted(Counter(path.hops for path in result.topology.paths).items())
    return ", ".join(f"{hops}: {count}" for hops, count in counts)


def _vlans(outcome: Outcome) -> int | None:
    return None if outcome.state is None else len(set(outcome.state.vlans.values()))


def _gap(result: PlanResult) -> str:
    if result.gap is None:
        return ""
    return (
        "the best of its kind"
        if result.gap == 0
        else f"within {100 * result.gap:.3g} % of the best of its kind"
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _at_most(share: float | None) -> str:
    return "" if share is None or share > 0.9995 else f"more than {_percent(share)}"


def _verdict(outcome: Outcome) -> str:
    if outcome.problems is None:
        return ""
    return "passed" if not outcome.problems else f"{len(outcome.problems)} PROBLEMS"
