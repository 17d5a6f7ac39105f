"""Relays, switches that pass on others' frames: their rules before, during and after a move.

Where ToRs learn there are none. Elsewhere a relay's rules for an old path go before any mirror
moves, so that a late frame ends there and not in the dark; those for a new path are pushed while
mirrors move, and a path whose relay did not take them is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hydra.failures import Failure
from hydra.forwarding.pipeline import (
    COOKIE_KIND_MASK,
    RENEWED,
    RENEWED_MASK,
    RuleKind,
    cookie,
)
from hydra.forwarding.rules import FlowRule, Install, Remove, RemoveByCookie, RuleChange
from hydra.forwarding.substrate import Substrate
from hydra.model import DatapathId, NetworkState, Path
from hydra.reconfiguration.plan import Plan

RelayChanges = dict[DatapathId, list[RuleChange]]


def leaving(substrate: Substrate, plan: Plan) -> RelayChanges:
    """Removals of the rules that relays hold for paths that go."""
    return _changes(substrate, plan.current, _only_in(plan.current, plan.target), Remove)


def joining(substrate: Substrate, plan: Plan) -> RelayChanges:
    """Rules that relays of new paths need."""
    return _changes(substrate, plan.target, _only_in(plan.target, plan.current), Install)


def abandoned(substrate: Substrate, target: NetworkState, result: NetworkState) -> RelayChanges:
    """Removals of the rules that relays hold for paths of ``target`` that ``result`` lacks."""
    lost = sorted(set(target.topology.paths) - set(result.topology.paths))
    return _changes(substrate, target, lost, Remove)


def _only_in(state: NetworkState, other: NetworkState) -> list[Path]:
    """Paths that ``other`` lacks, or has with another VLAN-ID; a pair may keep other paths."""
    return [path for path, vlan in state.vlans.items() if other.vlans.get(path) != vlan]


def unrelayed(
    substrate: Substrate, plan: Plan, deaf: Callable[[DatapathId], Failure | None]
) -> Iterator[tuple[Path, Failure]]:
    """New paths that a relay does not serve, and why.

    ``deaf`` gives the failure of a switch to take its rules; None if it took them.
    """
    names = substrate.owned()
    for path in _only_in(plan.target, plan.current):
        for datapath in substrate.relays(path, plan.target.vlans[path], plan.target.epoch):
            failure = deaf(datapath)
            if failure is not None:
                reason = f"{names[datapath]} does not relay it ({failure})"
                yield path, replace(failure, reason=reason)
                break


def wipe(*, spare_relays: bool) -> list[RuleChange]:
    """Remove every rule of ours that may differ from switch to switch, or from time to time.

    Rules that tell of rounds stay: they have to be a second old. ``spare_relays``: those of relays
    stay, too, which others may still count on.
    """
    if not spare_relays:
        return [RemoveByCookie(RENEWED, RENEWED_MASK)]
    spared = RuleKind.TOR_RELAY, RuleKind.ROUND
    return [
        RemoveByCookie(cookie(kind), COOKIE_KIND_MASK) for kind in RuleKind if kind not in spared
    ]


def relays_as_in(rules: Iterable[FlowRule]) -> list[RuleChange]:
    """Leave a switch with the relay rules that are among ``rules``, and no others."""
    kind = RuleKind.TOR_RELAY
    return [
        RemoveByCookie(cookie(kind), COOKIE_KIND_MASK),
        *(Install(rule) for rule in rules if rule.kind is kind),
    ]


def only(
    changes: Mapping[DatapathId, Sequence[RuleChange]], switches: Collection[DatapathId]
) -> Mapping[DatapathId, tuple[RuleChange, ...]]:
    """The changes of these switches."""
    return {dp: tuple(mine) for dp, mine in changes.items() if dp in switches and mine}


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
