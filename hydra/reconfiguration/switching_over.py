"""Switch-over: traffic of lost paths goes to protecting paths that stand, by a rule change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from hydra.forwarding.resteering import steering_of
from hydra.forwarding.rules import Install, Lane, RuleChange, in_lanes
from hydra.forwarding.substrate import Substrate
from hydra.model import DatapathId, NetworkState, Pair, Path, RackId
from hydra.reconfiguration.plan import pair_of


class Protection(Protocol):
    """Protected traffic, and its second paths."""

    def survivors(self, state: NetworkState, lost: Collection[Path]) -> Mapping[Path, Path]:
        """For each lost path of protected reservations, the standing path that survives the
        loss.
        """

    def switch_over(self, lost: Collection[Path]) -> Mapping[DatapathId, Sequence[RuleChange]]:
        """Rule changes that send protected traffic of lost paths on its path on standby."""


class _Unprotected:
    def survivors(self, _state: NetworkState, _lost: Collection[Path]) -> Mapping[Path, Path]:
        return {}

    def switch_over(self, _lost: Collection[Path]) -> Mapping[DatapathId, Sequence[RuleChange]]:
        return {}


UNPROTECTED: Final = _Unprotected()


def survivors_of(
    lost: Iterable[Path],
    survivors: Mapping[Path, Path],
    reduced: NetworkState,
    moving: Collection[Pair],
) -> dict[Path, Path]:
    """The surviving path for each lost path, of pairs whose lost paths all have a survivor in the
    ``reduced`` state. Pairs ``moving`` by a change under way are left out: the change sets their
    rules.
    """
    if not survivors:
        return {}
    lost = tuple(lost)
    bare = {
        pair_of(path)
        for path in lost
        if survivors.get(path) not in reduced.vlans or pair_of(path) in moving
    }
    return {path: survivors[path] for path in lost if pair_of(path) not in bare}


def switching_over(
    substrate: Substrate,
    protection: Protection,
    state: NetworkState,
    surviving: Mapping[Path, Path],
) -> dict[DatapathId, list[RuleChange]]:
    """Rule changes that put the traffic of lost paths on the ``surviving`` paths."""
    if not surviving:
        return {}
    changes: dict[DatapathId, list[RuleChange]] = {}
    for datapath, rules in protection.switch_over(surviving.keys()).items():
        changes.setdefault(datapath, []).extend(rules)
    over: dict[Path, Lane] = {lost: (path, state.vlans[path]) for lost, path in surviving.items()}
    pairs = set(map(pair_of, surviving))
    lanes = in_lanes((p for p in state.topology.paths if pair_of(p) in pairs), state.vlans)
    steered: dict[tuple[RackId, RackId], tuple[Install, ...]] = {}
    for ends in {way for pair in pairs for way in (pair, pair[::-1])}:
        before = lanes.get(ends, ())
        after = [over.get(path, (path, vlan)) for path, vlan in before]
        old = substrate.steer(*ends, before, state.epoch)
        new = substrate.steer(*ends, after, state.epoch)
        steered[ends] = tuple(Install(rule) for rule in new if rule not in old)
    for switch, racks in steering_of(substrate, pairs).items():
        for to in sorted(racks):
            changes.setdefault(switch.datapath, []).extend(steered[switch.rack, to])
    return changes
