"""Rule changes at steering switches when the paths of rack pairs change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hydra.forwarding.rules import FlowRule, Install, Lane, Remove, RuleChange, in_lanes, match_key
from hydra.forwarding.substrate import Steering, Substrate
from hydra.model import DatapathId, NetworkState, RackId

_Lanes = Mapping[tuple[RackId, RackId], Sequence[Lane]]
"""Lanes by (from, to)."""


def steering_of(
    substrate: Substrate, pairs: Collection[tuple[RackId, RackId]]
) -> dict[Steering, set[RackId]]:
    """Switches that steer traffic of the given rack pairs, each with its destination racks."""
    towards: dict[RackId, set[RackId]] = {}
    for rack, other in pairs:
        towards.setdefault(rack, set()).add(other)
        towards.setdefault(other, set()).add(rack)
    return {
        switch: racks
        for rack, racks in sorted(towards.items())
        for switch in substrate.steering(rack)
    }


def diverting(
    substrate: Substrate, switches: Mapping[Steering, Collection[RackId]], epoch: int
) -> dict[DatapathId, tuple[Install, ...]]:
    """Rule changes per switch that send traffic for the given racks electrical.

    Switches with equal racks, such as the switches of a rack, share the same object.
    """
    made: dict[tuple[RackId, ...], tuple[Install, ...]] = {}
    changes = {}
    for switch, racks in switches.items():
        towards = tuple(sorted(racks))
        if towards not in made:
            made[towards] = tuple(Install(substrate.divert(rack, epoch)) for rack in towards)
        changes[switch.datapath] = made[towards]
    return changes


@dataclass(frozen=True, slots=True)
class Resteering:
    """The step from the circuit rules of a state to the rules of the next state."""

    substrate: Substrate
    before: _Lanes
    after: _Lanes
    epoch: int

    @classmethod
    def between(cls, substrate: Substrate, before: NetworkState, after: NetworkState) -> Resteering:
        old, new = (in_lanes(state.topology.paths, state.vlans) for state in (before, after))
        return cls(substrate, old, new, after.epoch)

    def changes(self, rack: RackId, to: RackId) -> Iterator[RuleChange]:
        """Changes at each switch that steers traffic from ``rack`` to ``to``."""
        old, new = (self._rules(lanes, rack, to) for lanes in (self.before, self.after))
        matched = {match_key(rule) for rule in new}
        yield from (Remove(rule) for rule in old if match_key(rule) not in matched)
        yield from map(Install, new)

    def _rules(self, lanes: _Lanes, rack: RackId, to: RackId) -> Sequence[FlowRule]:
        return self.substrate.steer(rack, to, lanes.get((rack, to), ()), self.epoch)
