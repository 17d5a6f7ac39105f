"""Rules of relays, switches that forward between circuits: before, during and after a move.

Fabrics with learning ToRs have no relays. Elsewhere, a relay's rules for an old path go before any
mirror moves, so that a late frame ends at the relay and not in the dark. Rules for a new path are
pushed while mirrors move; a path is not used if a relay did not take the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hydra.failures import Failure
from hydra.forwarding.pipeline import RENEWED, RENEWED_MASK, RuleKind
from hydra.forwarding.rules import (
    FlowRule,
    Install,
    Remove,
    RemoveByCookie,
    RuleChange,
    match_key,
)
from hydra.forwarding.substrate import Substrate
from hydra.model import DatapathId, NetworkState, Path
from hydra.reconfiguration.plan import Plan

RelayChanges = dict[DatapathId, list[RuleChange]]


def leaving(substrate: Substrate, plan: Plan) -> RelayChanges:
    """Removals of relay rules for leaving paths."""
    return _changes(substrate, plan.current, _only_in(plan.current, plan.target), Remove)


def joining(substrate: Substrate, plan: Plan) -> RelayChanges:
    """Relay rules for new paths."""
    return _changes(substrate, plan.target, _only_in(plan.target, plan.current), Install)


def abandoned(substrate: Substrate, target: NetworkState, result: NetworkState) -> RelayChanges:
    """Removals of relay rules for paths of ``target`` absent from ``result``."""
    lost = sorted(set(target.topology.paths) - set(result.topology.paths))
    return _changes(substrate, target, lost, Remove)


def _only_in(state: NetworkState, other: NetworkState) -> list[Path]:
    """Paths that ``other`` lacks, or has with another VLAN-ID; a pair may keep other paths."""
    return [path for path, vlan in state.vlans.items() if other.vlans.get(path) != vlan]


def unrelayed(
    substrate: Substrate, plan: Plan, deaf: Callable[[DatapathId], Failure | None]
) -> Iterator[tuple[Path, Failure]]:
    """New paths that a relay does not serve, with the failure.

    ``deaf`` returns the failure of a switch to take its rules, or None.
    """
    names = substrate.owned()
    for path in _only_in(plan.target, plan.current):
        for datapath in substrate.relays(path, plan.target.vlans[path], plan.target.epoch):
            failure = deaf(datapath)
            if failure is not None:
                reason = f"{names[datapath]} does not relay the traffic ({failure})"
                yield path, replace(failure, reason=reason)
                break


WIPE: Final = RemoveByCookie(RENEWED, RENEWED_MASK)
"""Removes our rules before a whole table is written, except relay rules and revalidation-round
rules. A switch may refuse a rule of the new table, and still carry out the removal.
"""


def stale_relays(held: Iterable[FlowRule], table: Iterable[FlowRule]) -> list[RuleChange]:
    """Removals of the relay rules in ``held`` that ``table`` lacks."""
    found = {match_key(rule): rule for rule in relay_rules(held)}
    for rule in relay_rules(table if found else ()):
        found.pop(match_key(rule), None)
    return list(map(Remove, found.values()))


def relay_rules(rules: Iterable[FlowRule]) -> Iterator[FlowRule]:
    """The relay rules among ``rules``."""
    return (rule for rule in rules if rule.kind is RuleKind.TOR_RELAY)


def only(
    changes: Mapping[DatapathId, Sequence[RuleChange]], switches: Collection[DatapathId]
) -> Mapping[DatapathId, tuple[RuleChange, ...]]:
    """The changes of ``switches``."""
    return {dp: tuple(rules) for dp, rules in changes.items() if dp in switches and rules}


def _changes(
    substrate: Substrate,
    state: NetworkState,
    paths: Iterable[Path],
    change: Callable[[FlowRule], RuleChange],
) -> RelayChanges:
    found: RelayChanges = {}
    for path in paths:
        for datapath, rules in substrate.relays(path, state.vlans[path], state.epoch).items():
            found.setdefault(datapath, []).extend(map(change, rules))
    return found
