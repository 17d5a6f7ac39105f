"""Whole tables: all rules that each switch should hold in the present state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_not
from typing import Protocol

from hydra.forwarding.resteering import diverting, steering_of
from hydra.forwarding.rules import (
    ROUND_RULES,
    FlowRule,
    Install,
    InstallAll,
    Installation,
    Lane,
    RuleChange,
    installed,
)
from hydra.model import DatapathId, Fabric, NetworkState, Pair, Path, RackId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.commands import HeldRules
from hydra.reconfiguration.plan import Unsettled, pair_of, without
from hydra.reconfiguration.readiness import Connections
from hydra.reconfiguration.reconcile import Held
from hydra.reconfiguration.relaying import WIPE, stale_relays
from hydra.reconfiguration.uplinks import Uplinks


class Memory(Protocol):
    """The controller's memory of the present state of the network."""

    @property
    def state(self) -> NetworkState: ...

    @property
    def unsettled(self) -> Unsettled:
        """Paths and circuits left open by interrupted changes."""

    def settle(self, state: NetworkState) -> None:
        """Note ``state`` as the present state of the network."""

    def unsettle(self, more: Unsettled) -> None:
        """Note the paths and circuits that an interrupted change left open."""

    @property
    def held(self) -> Held:
        """Paths left standing beside the state."""

    def hold(self, held: Held) -> None:
        """Leave exactly these paths standing. Each save of the state records these paths for the
        next controller.
        """


class WholeTables(Uplinks):
    """For the thread that runs courses."""

    electrical: frozenset[DatapathId] = frozenset()
    """Switches that refuse circuit rules, and hold none: the traffic they send is electrical."""
    _dead: frozenset[Pair] = frozenset()
    vacated: frozenset[Path] = frozenset()
    """Lost paths of the present state that carry no traffic since a switch-over."""

    def may_send(self, lane: Lane) -> bool:
        """True if a switch may still send on an earlier path: the switch has not been brought to
        the present state, and its port is not closed.
        """
        ready, closed = self.ready(), self.closed
        return any(
            switch.datapath not in ready and switch.name not in closed
            for here, _ in lane[0].directions
            for switch in self.substrate.steering(here)
        )

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        memory: Memory,
        connections: Connections,
        added_rules: Callable[[DatapathId], Iterable[FlowRule]],
    ) -> None:
        """``added_rules``: rules that a switch holds beside the substrate's."""
        super().__init__(fabric, connections)
        self.policy = policy
        self.memory = memory
        self.added_rules = added_rules
        self.spares_relays = False
        """True after a start, as long as a switch may rely on relays of an earlier state."""
        self._common: dict[RackId, InstallAll] = {}
        """Rules common to a rack's switches, with their encodings, kept while some switches are yet
        to be brought: after a start, switches come a few at a time.
        """
        self._common_in: tuple[NetworkState, frozenset[Path]] | None = None
        """The state of ``_common``, and the lost paths left out."""

    @property
    def diverted(self) -> frozenset[Pair]:
        """Pairs electrical because their circuits or paths died, until a withdrawal or a move of
        the pair.
        """
        return self._dead.intersection(map(pair_of, self.memory.state.topology.paths))

    def tables(
        self, datapaths: Iterable[DatapathId], common: dict[RackId, InstallAll] | None = None
    ) -> Iterator[tuple[DatapathId, tuple[Installation, ...]]]:
        """All rules of HydRA for each of the given known switches; an owned switch should hold no
        other rules.

        The rules common to a rack's switches are one object, taken from ``common`` or added there.
        A switch that refuses rules of its circuits gets none of these rules.
        """
        substrate, state = self.substrate, self.memory.state
        if self.vacated:
            state = without(state, (), self.vacated)
        diverts = diverting(substrate, steering_of(substrate, self.diverted), state.epoch)
        common = {} if common is None else common
        tor_rules = tuple(map(Install, substrate.tor_rules()))
        rounds = (ROUND_RULES,) if substrate.reports_rounds else ()
        held: dict[DatapathId, list[FlowRule]] = {}
        for path, vlan in sorted(self.memory.held.lanes):
            for datapath, rules in substrate.relays(path, vlan, state.epoch).items():
                held.setdefault(datapath, []).extend(rules)
        for datapath in datapaths:
            if datapath not in self.owned:
                yield datapath, tor_rules
                continue
            rack = self._rack_of(datapath)
            if datapath in self.electrical:
                shared = InstallAll(tuple(substrate.common_rules(datapath, self._off(rack))))
            else:
                if rack not in common:
                    common[rack] = InstallAll(tuple(substrate.common_rules(datapath, state)))
                shared = common[rack]
            own = substrate.own_rules(datapath, self.dead_uplinks, self.policy.now.source_check)
            added = (*self.added_rules(datapath), *held.get(datapath, ()))
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
        """The present state without paths at a rack."""
        state = self.memory.state
        paths = [path for path in state.topology.paths if rack in (path.src, path.dst)]
        return without(state, (), paths)

    def whole_tables(
        self, datapaths: Iterable[DatapathId]
    ) -> Iterator[tuple[DatapathId, tuple[Installation, ...]]]:
        """As :meth:`tables`; the rules common to a rack are kept for the next call."""
        basis = self.memory.state, self.vacated
        if self._common_in is None or any(map(is_not, self._common_in, basis)):
            self._common_in, self._common = basis, {}
        yield from self.tables(datapaths, self._common)

    def anew(
        self, datapath: DatapathId, table: Sequence[Installation], held: HeldRules
    ) -> tuple[RuleChange, ...]:
        """Changes that leave a switch with this table, whatever the switch holds.

        Revalidation-round rules stay in place, since a new rule is blind for a second. Relay rules
        of the table are never removed. Other relay rules of a switch that was read are removed,
        unless relays are spared.
        """
        if datapath not in self.owned:
            return tuple(table)
        rounds = held.rounds.get(datapath)
        if rounds:
            table = [command for command in table if command is not ROUND_RULES]
            table += [Install(rule) for rule in ROUND_RULES.rules if rule.cookie not in rounds]
        relays = () if self.spares_relays else held.relays.get(datapath, ())
        return (WIPE, *stale_relays(relays, installed(table)), *table)
