"""Whole tables: all rules that each switch is to hold in the present state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from hydra.forwarding.resteering import diverting, steering_of
from hydra.forwarding.rules import (
    ROUND_RULES,
    FlowRule,
    Install,
    InstallAll,
    Installation,
    RuleChange,
)
from hydra.model import DatapathId, Fabric, NetworkState, RackId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.commands import HeldRules
from hydra.reconfiguration.plan import Pair, Unsettled, pair_of, without
from hydra.reconfiguration.readiness import Connections
from hydra.reconfiguration.relaying import wipe
from hydra.reconfiguration.uplinks import Uplinks


class Memory(Protocol):
    """The state that the network is in, as the controller remembers it."""

    @property
    def state(self) -> NetworkState: ...

    @property
    def unsettled(self) -> Unsettled:
        """What a change that broke off leaves open."""

    def settle(self, state: NetworkState) -> None:
        """Note that the network is in ``state`` from now on."""

    def unsettle(self, more: Unsettled) -> None:
        """Note that a change broke off, which leaves this open."""


class WholeTables(Uplinks):
    """For the thread that runs courses."""

    _electrical: frozenset[DatapathId] = frozenset()
    """Refusing switches whose traffic is electrical: they hold no rules of circuits."""
    _dead: frozenset[Pair] = frozenset()

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        memory: Memory,
        connections: Connections,
        added_rules: Callable[[DatapathId], Iterable[FlowRule]],
    ) -> None:
        """``added_rules``: rules that a switch holds beside the substrate's."""
        super().__init__(fabric, connections)
        self._policy = policy
        self._memory = memory
        self._added_rules = added_rules
        self.spares_relays = False
        """True from a start on, as long as a switch may count on relays of an earlier state."""
        self._common: dict[RackId, InstallAll] = {}
        """Rules that racks' switches have in common, and their encodings with them, while some of
        the switches are yet to come: after a start, they come a few at a time.
        """
        self._common_in: NetworkState | None = None
        """State of those."""

    @property
    def diverted(self) -> frozenset[Pair]:
        """Pairs that are electrical since their circuits or paths have died; until these are
        withdrawn, or the pairs moved to others.
        """
        return self._dead.intersection(map(pair_of, self._memory.state.topology.paths))

    def tables(
        self, datapaths: Iterable[DatapathId], common: dict[RackId, InstallAll] | None = None
    ) -> Iterator[tuple[DatapathId, tuple[Installation, ...]]]:
        """All rules that each of these known switches is to hold from us; an owned one no others.

        An object holds what a rack's switches have in common; those in ``common`` are taken from
        there, and others put there. A switch that refuses rules of its circuits has none of them.
        """
        substrate, state = self._substrate, self._memory.state
        diverts = diverting(substrate, steering_of(substrate, self.diverted), state.epoch)
        common = {} if common is None else common
        tor_rules = tuple(map(Install, substrate.tor_rules()))
        rounds = (ROUND_RULES,) if substrate.tells_rounds else ()
        for datapath in datapaths:
            if datapath not in self.owned:
                yield datapath, tor_rules
                continue
            rack = self._rack_of(datapath)
            if datapath in self._electrical:
                shared = InstallAll(tuple(substrate.common_rules(datapath, self._off(rack))))
            else:
                if rack not in common:
                    common[rack] = InstallAll(tuple(substrate.common_rules(datapath, state)))
                shared = common[rack]
            own = substrate.own_rules(datapath, self.dead_uplinks, self._policy.now.source_check)
            added = self._added_rules(datapath)
            yield (
                datapath,
                (
                    *map(Install, own),
                    shared,
                    *rounds,
                    *diverts.get(datapath, ()),
                    *map(Install, added),
                ),
            )

    def _off(self, rack: RackId) -> NetworkState:
        """The present state without paths that begin or end at a rack."""
        state = self._memory.state
        paths = [path for path in state.topology.paths if rack in (path.src, path.dst)]
        return without(state, (), paths)

    def _whole_tables(
        self, datapaths: Iterable[DatapathId]
    ) -> Iterator[tuple[DatapathId, tuple[Installation, ...]]]:
        if self._common_in is not self._memory.state:
            self._common_in, self._common = self._memory.state, {}
        yield from self.tables(datapaths, self._common)

    def _anew(
        self, datapath: DatapathId, table: Sequence[Installation], held: HeldRules
    ) -> tuple[RuleChange, ...]:
        """Changes that leave a switch with this table, whatever it holds.

        Rules that tell of rounds stay where it has them, since new ones can't tell for a second.
        """
        if datapath not in self.owned:
            return tuple(table)
        rounds = held.rounds.get(datapath)
        if rounds:
            table = [one for one in table if one is not ROUND_RULES]
            table += [Install(one) for one in ROUND_RULES.rules if one.cookie not in rounds]
        return (*wipe(spare_relays=self.spares_relays), *table)
