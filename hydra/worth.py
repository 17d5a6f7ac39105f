"""Worth of a topology change: the gain over the expected life, compared with the cost.

The decision follows from the comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

import numpy as np

from hydra.decisions.decision import Action, Decision, Proposal, SeenDemand, Verdict
from hydra.errors import PlanError
from hydra.model import Circuit, Fabric
from hydra.policy import Policy, Sharing, SharingChoice
from hydra.service import DemandReport, PlanReport
from hydra.sharing.slots import Week

_NAMED: Final = 5
"""Number of racks named in a reason."""


def judge(
    policy: Policy,
    *,
    served_now_mbps: float,
    served_then_mbps: float,
    disturbed_mbps: float,
    outage_s: float,
    young_circuits: int = 0,
) -> Verdict:
    """Weigh a change.

    ``disturbed_mbps``: traffic that the change takes off circuits temporarily
    (:meth:`hydra.reconfiguration.course_choice.Way.cost_mbps`). ``outage_s``: time that a course
    keeps traffic off circuits (measured on recent courses). ``young_circuits``: number of circuits
    that the plan left alone, since their age is below ``policy.minimum_circuit_life_s``.
    """
    gain_mbps = served_then_mbps - served_now_mbps
    gain_mbit = gain_mbps * policy.gain_horizon_s
    cost_mbit = disturbed_mbps * outage_s

    def verdict(pays: bool, reason: str) -> Verdict:
        if young_circuits:
            which = "1 circuit" if young_circuits == 1 else f"{young_circuits:,} circuits"
            reason += f"; {which} younger than {policy.minimum_circuit_life_s:g} s left alone"
        return Verdict(pays, reason, gain_mbps=gain_mbps, gain_mbit=gain_mbit, cost_mbit=cost_mbit)

    if gain_mbps < policy.minimum_gain_mbps:
        return verdict(
            False, f"gains {gain_mbps:.1f} Mb/s, less than {policy.minimum_gain_mbps:g} Mb/s"
        )
    if gain_mbit < policy.gain_factor * cost_mbit:
        return verdict(
            False,
            f"gains {gain_mbit:.1f} Mbit in {policy.gain_horizon_s:g} s, less than "
            f"{policy.gain_factor:g} times its cost of {cost_mbit:.1f} Mbit",
        )
    return verdict(True, f"gains {gain_mbit:.1f} Mbit for a cost of {cost_mbit:.1f} Mbit")


def decide(
    report: PlanReport, algorithm: str, demand: tuple[SeenDemand, ...], trigger: str, unix_s: float
) -> Decision:
    """Change if the plan differs from the present topology, and pays."""
    plan = report.plan
    if plan.target == plan.current:
        action, proposal = Action.KEEP, None
        reason = "the topology in place is the best known for this demand"
    else:
        action = Action.CHANGE if report.verdict.pays else Action.KEEP
        reason = report.verdict.reason
        proposal = Proposal(
            algorithm, plan.connect, plan.disconnect, report.served_mbps, report.verdict
        )
    return Decision(
        unix_s,
        trigger,
        action,
        reason,
        plan.current.topology.circuits,
        report.demand_mbps,
        demand,
        proposal,
    )


def doubting(decision: Decision, fabric: Fabric, seen: DemandReport) -> Decision:
    """The decision, with the names of racks with unreliable demand."""
    racks = [fabric.racks[rack].name for rack in np.flatnonzero(seen.doubted.any(axis=1))]
    if not racks:
        return decision
    more = f" and {len(racks) - _NAMED} other racks" if len(racks) > _NAMED else ""
    reason = (
        f"{decision.reason}; readings of {', '.join(racks[:_NAMED])}{more} are late or too few: "
        "the pairs keep their paths, without further paths"
    )
    return replace(decision, reason=reason)


def decide_week(
    week: Week,
    algorithm: str,
    standing: AbstractSet[Circuit],
    demand: tuple[SeenDemand, ...],
    trigger: str,
    unix_s: float,
) -> Decision:
    """The decision to share circuits by the schedule from now on."""
    circuits = frozenset[Circuit]().union(*(slot.state.topology.circuits for slot in week.slots))
    gain_mbps = week.served_mbps - week.served_before_mbps
    reason = (
        f"a week of {len(week.slots)} slot{'s' * (len(week.slots) != 1)} in {week.period_s:g} s, "
        f"duty cycle {week.duty_cycle:.3f}: circuits carry {week.served_mbps:.1f} of "
        f"{week.demand_mbps:.1f} Mb/s"
    )
    verdict = Verdict(
        True, reason, gain_mbps=gain_mbps, gain_mbit=gain_mbps * week.period_s, cost_mbit=0.0
    )
    proposal = Proposal(
        algorithm, circuits - standing, standing - circuits, week.served_mbps, verdict
    )
    return Decision(
        unix_s, trigger, Action.CHANGE, reason, standing, week.demand_mbps, demand, proposal
    )


def choose_sharing(
    policy: Policy,
    before: SharingChoice,
    decision: Decision,
    report: PlanReport | None,
    draft: Callable[[], Week | None],
) -> SharingChoice:
    """The sharing that carries more until ``policy.gain_horizon_s``.

    ``decision`` and ``report`` are from a planning round for a standing topology. ``draft`` plans a
    week for the same demand; None without demand; may raise PlanError. ``draft`` is called unless a
    standing topology carries all but ``policy.minimum_gain_mbps``.

    Both alternatives count both networks and the loss while circuits move: the cost of the change
    to the standing topology, and all nights of the week. The present sharing stays if the
    alternative carries less than ``policy.minimum_gain_mbps`` more.
    """
    if report is None:
        return SharingChoice(
            Sharing.BY_DEMAND, f"no plan to weigh slots against: {decision.reason}"
        )
    standing_mbps = _standing_mbps(policy, decision, report)
    standing = (
        f"a standing topology would carry {standing_mbps:,.1f} of {report.demand_mbps:,.1f} Mb/s "
        f"wanted in the next {policy.gain_horizon_s:g} s"
    )
    if standing_mbps > report.demand_mbps - policy.minimum_gain_mbps:
        return SharingChoice(Sharing.BY_DEMAND, standing)
    try:
        week = draft()
    except PlanError as error:
        return SharingChoice(Sharing.BY_DEMAND, f"{standing}, and slots can't be: {error}")
    if week is None or len(week.slots) < 2:
        return SharingChoice(Sharing.BY_DEMAND, f"{standing}, and no slots would carry more")
    gain_mbps = week.delivered_mbps - standing_mbps
    if before.sharing is Sharing.SLOTTED:
        slotted = gain_mbps > -policy.minimum_gain_mbps
    else:
        slotted = gain_mbps >= policy.minimum_gain_mbps
    slots = (
        f"{len(week.slots)} slots in {week.period_s:g} s, with nights of "
        f"{week.night_s * 1000:.0f} ms, {week.delivered_mbps:,.1f}"
    )
    chosen = Sharing.SLOTTED if slotted else Sharing.BY_DEMAND
    return SharingChoice(chosen, f"{standing}, and {slots}")


def _standing_mbps(policy: Policy, decision: Decision, report: PlanReport) -> float:
    """Mean Mbps carried until the horizon if the decision is carried out."""
    verdict = report.verdict
    if decision.action is Action.CHANGE:
        return report.served_mbps - verdict.cost_mbit / policy.gain_horizon_s
    return report.served_mbps - verdict.gain_mbps


def keep(
    reason: str,
    standing: AbstractSet[Circuit],
    demand: tuple[SeenDemand, ...],
    trigger: str,
    unix_s: float,
    demand_mbps: float = 0.0,
) -> Decision:
    """The decision to keep the topology without weighing a change."""
    return Decision(unix_s, trigger, Action.KEEP, reason, standing, demand_mbps, demand, None)


def no_plan(
    error: str,
    standing: AbstractSet[Circuit],
    demand: tuple[SeenDemand, ...],
    trigger: str,
    unix_s: float,
    demand_mbps: float = 0.0,
) -> Decision:
    """The decision after a failed planning attempt."""
    return Decision(
        unix_s, trigger, Action.NO_PLAN, error, standing, demand_mbps, demand, proposal=None
    )
