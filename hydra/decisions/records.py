"""Decisions as JSON-able records, with names instead of positions (like
:mod:`hydra.journal_format`).

Reading leaves out parts that the configuration has lost: a decision is history, and the rest is
still true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from hydra.decisions.decision import Action, Decision, Proposal, SeenDemand, Verdict
from hydra.journal_format import circuit_record, read_circuits
from hydra.model import Circuit, Fabric


def decision_record(fabric: Fabric, decision: Decision) -> dict[str, Any]:
    """``decision`` as nested dicts and lists of names and numbers."""
    proposal = decision.proposal
    return {
        "unix_s": decision.unix_s,
        "trigger": decision.trigger,
        "action": decision.action.value,
        "reason": decision.reason,
        "standing": _circuits(fabric, decision.standing),
        "demand_mbps": decision.demand_mbps,
        "demand": [
            [
                fabric.racks[estimate.src].name,
                fabric.racks[estimate.dst].name,
                estimate.rate_mbps,
                estimate.estimated_mbps,
                estimate.expected_mbps,
            ]
            for estimate in decision.demand
        ],
        "proposal": None
        if proposal is None
        else {
            "algorithm": proposal.algorithm,
            "connect": _circuits(fabric, proposal.connect),
            "disconnect": _circuits(fabric, proposal.disconnect),
            "served_mbps": proposal.served_mbps,
            "verdict": asdict(proposal.verdict),
        },
        "reconfiguration": decision.reconfiguration,
    }


def _circuits(fabric: Fabric, circuits: Iterable[Circuit]) -> list[list[list[str]]]:
    return [circuit_record(fabric, circuit) for circuit in sorted(circuits)]


def read_decision(fabric: Fabric, record: Mapping[str, Any]) -> Decision:
    """Read a record of :func:`decision_record`, without parts that ``fabric`` has lost."""
    racks = fabric.rack_by_name
    proposal = record["proposal"]
    return Decision(
        unix_s=record["unix_s"],
        trigger=record["trigger"],
        action=Action(record["action"]),
        reason=record["reason"],
        standing=read_circuits(fabric, record["standing"]),
        demand_mbps=record["demand_mbps"],
        demand=tuple(
            SeenDemand(
                racks[src].id,
                racks[dst].id,
                rate_mbps=rate_mbps,
                estimated_mbps=estimated_mbps,
                expected_mbps=expected_mbps,
            )
            for src, dst, rate_mbps, estimated_mbps, expected_mbps in record["demand"]
            if src in racks and dst in racks
        ),
        proposal=None
        if proposal is None
        else Proposal(
            proposal["algorithm"],
            read_circuits(fabric, proposal["connect"]),
            read_circuits(fabric, proposal["disconnect"]),
            proposal["served_mbps"],
            Verdict(**proposal["verdict"]),
        ),
        reconfiguration=record["reconfiguration"],
    )
