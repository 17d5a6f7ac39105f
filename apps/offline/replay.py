"""A recorded demand under other policies: the traffic served under each, and the changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import yaml
from pydantic import ValidationError

from apps.offline.recording import Trace
from apps.offline.rehearsal import Rehearsal
from apps.planning.rates import Rates
from hydra.config.schema import PolicySection
from hydra.decisions.decision import Action, Decision
from hydra.demand.elephants import ElephantWatch
from hydra.errors import PlanError
from hydra.model import EMPTY_TOPOLOGY, DemandMatrix, Fabric
from hydra.names import did_you_mean
from hydra.policy import Policy

KEYS: Final = (
    "algorithm",
    "sharing",
    "demand",
    "max_hops",
    "paths_per_pair",
    "disturbance_mbps",
    "planning_budget_ms",
    "epoch_s",
    "elephant_mbps",
    "elephant_release",
    "prediction",
    "season_s",
    "gain_horizon_s",
    "gain_factor",
    "minimum_gain_mbps",
    "minimum_circuit_life_s",
)
"""Keys of ``policy`` that affect when to change, and to which topology."""
_MBIT_PER_GB: Final = 8000.0


@dataclass(frozen=True, slots=True)
class Variant:
    """A policy to try; None: no pair gets a circuit."""

    name: str
    policy: Policy | None


@dataclass(frozen=True, slots=True)
class Moment:
    """The time from one reading to the next."""

    at_s: float
    wanted_mbps: float
    served_mbps: float
    decision: Decision | None

    @property
    def changed(self) -> bool:
        return self.decision is not None and self.decision.action is Action.CHANGE


@dataclass(frozen=True, slots=True)
class Run:
    """Result of a trace under a variant."""

    variant: Variant
    moments: tuple[Moment, ...]
    wanted_gb: float
    served_gb: float
    """Traffic served, less the cost of changes."""
    cost_gb: float
    refused: str
    """Reason why the last attempt gave no plan; empty if there was a plan."""
    prediction_error: float | None
    """Absolute errors of the prediction, as a share of the actual demand; None: unknown."""

    @property
    def changes(self) -> int:
        return sum(moment.changed for moment in self.moments)

    @property
    def circuits_set_up(self) -> int:
        return sum(
            len(moment.decision.proposal.connect)
            for moment in self.moments
            if moment.changed and moment.decision and moment.decision.proposal
        )

    @property
    def served_share(self) -> float:
        return self.served_gb / self.wanted_gb if self.wanted_gb else 1.0

    @property
    def served_words(self) -> str:
        """The share in percent; a dash without demand."""
        return f"{100 * self.served_share:.1f} %" if self.wanted_gb else "-"


def read_variant(text: str, base: Policy) -> Variant:
    """The variant ``KEY=VALUE[,KEY=VALUE…]``, keys of the section ``policy``. Raises PlanError."""
    given: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key not in KEYS:
            hint = did_you_mean(key, KEYS)
            raise PlanError(f"{part!r} is no KEY=VALUE of {', '.join(KEYS)}{hint}")
        try:
            given[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise PlanError(f"{key}: {value!r} is no value: {error}") from None
    try:
        section = PolicySection.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise PlanError(f"{first['loc'][0]}: {first['input']!r}: {first['msg']}") from None
    return Variant(text, replace(base, **{key: getattr(section, key) for key in given}))


def replay(
    fabric: Fabric,
    base: Policy,
    trace: Trace,
    variant: Variant,
    outage_s: float,
    *,
    catches_up: bool = True,
) -> Run:
    """Take a variant through a trace.

    Raises UnknownName for the variant's algorithm, PlanError for a fabric without servers.

    ``base`` estimates the demand for all variants, so that results are comparable. Each reading
    holds until the next; of the last reading, only the decision counts. ``catches_up``: whether
    traffic waiting for a slot is sent later, as in :meth:`Rates.delivered`; decisions always
    assume so.
    """
    if not fabric.servers:
        raise PlanError(
            f"{fabric.name} has no servers to bound traffic by their links: name the "
            "configuration of a fabric"
        )
    judge = Rates(fabric)
    elephants = ElephantWatch(threshold_mbps=base.elephant_mbps, release=base.elephant_release)
    actor = None if variant.policy is None else Rehearsal(fabric, variant.policy, outage_s)
    moments: list[Moment] = []
    due_s = -math.inf
    wanted_mbit = served_mbit = cost_mbit = 0.0
    refused = ""
    for at_s, lasts_s, rates in _steps(trace, len(fabric.racks)):
        decision = None
        if actor is not None:
            actor.see(at_s, rates)
        if actor is not None and at_s >= due_s:
            due_s = _next_due_s(due_s, actor.period_s, at_s)
            decision = actor.step(at_s)
            refused = decision.reason if decision.action is Action.NO_PLAN else ""
            if decision.action is Action.CHANGE and decision.proposal is not None:
                cost_mbit += decision.proposal.verdict.cost_mbit
        wanted = judge.estimate(elephants.elephants(rates))
        wanted_mbps = float(wanted.sum())
        served_mbps = (
            float(judge.served(EMPTY_TOPOLOGY, wanted).sum())
            if actor is None
            else actor.served_mbps(judge, wanted, catches_up=catches_up)
        )
        moments.append(
            Moment(at_s=at_s, wanted_mbps=wanted_mbps, served_mbps=served_mbps, decision=decision)
        )
        wanted_mbit += wanted_mbps * lasts_s
        served_mbit += served_mbps * lasts_s
    return Run(
        variant,
        tuple(moments),
        wanted_gb=wanted_mbit / _MBIT_PER_GB,
        served_gb=max(0.0, served_mbit - cost_mbit) / _MBIT_PER_GB,
        cost_gb=cost_mbit / _MBIT_PER_GB,
        refused=refused,
        prediction_error=None if actor is None else actor.prediction_error,
    )


def _steps(trace: Trace, racks: int) -> Iterator[tuple[float, float, DemandMatrix]]:
    times_s = [reading.at_s for reading in trace.readings]
    for reading, following_s in zip(trace.readings, [*times_s[1:], times_s[-1]], strict=True):
        yield reading.at_s, following_s - reading.at_s, reading.matrix(racks)


def _next_due_s(due_s: float, period_s: float, at_s: float) -> float:
    """Due time of the round after the round at ``at_s``.

    A slightly late reading does not delay later rounds, as with the controller's rounds.
    """
    return (due_s if at_s - due_s < period_s else at_s) + period_s


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def document_of(run: Run) -> Mapping[str, object]:
    """A run as JSON types."""
    policy = run.variant.policy
    return {
        "variant": run.variant.name,
        "policy": None if policy is None else {key: _plain(getattr(policy, key)) for key in KEYS},
        "served_share": run.served_share if run.wanted_gb else None,
        "wanted_gb": run.wanted_gb,
        "served_gb": run.served_gb,
        "cost_gb": run.cost_gb,
        "changes": run.changes,
        "circuits_set_up": run.circuits_set_up,
        "refused": run.refused or None,
        "prediction_error": run.prediction_error,
        "moments": [
            {
                "at_s": moment.at_s,
                "wanted_mbps": moment.wanted_mbps,
                "served_mbps": moment.served_mbps,
                "decision": None if moment.decision is None else moment.decision.action.value,
                "reason": None if moment.decision is None else moment.decision.reason,
            }
            for moment in run.moments
        ],
    }
