"""Ports with new OpenFlow numbers: rules that name the old numbers are rewritten."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from hydra.forwarding.resteering import diverting, steering_of
from hydra.forwarding.rules import (
    Install,
    Modify,
    RemoveByPort,
    RuleChange,
    installed,
    matches_port,
    ports_named,
)
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, NetworkState
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.commands import ApplyRules, Steps, ask
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import pair_of, without
from hydra.reconfiguration.switches import Switches
from hydra.reconfiguration.whole_tables import Memory

LOG: Final = logging.getLogger("hydra.switches")


class PortRenumbering:
    def __init__(
        self, *, fabric: Fabric, policy: CurrentPolicy, memory: Memory, switches: Switches
    ) -> None:
        self._policy, self._memory, self._switches = policy, memory, switches
        self._substrate = substrate_of(fabric)

    def follow(self, changes: Collection[Execution] = ()) -> Steps:
        """Rewrite rules for OpenFlow port numbers changed by switches: one bundle, no other rule
        touched.

        While ``changes`` are under way, path rules of moving pairs are left to the changes; the
        pairs' divert rules are rewritten. A second call after the changes rewrites the path rules.
        Switches not yet mastered by this controller get whole tables instead
        (:class:`~hydra.reconfiguration.synchronisation.Synchronisation`).
        """
        renumbered = self._switches.renumbered_and_mastered()
        if not self._switches.settled or not renumbered:
            return
        state = self._memory.state
        moving = frozenset().union(*(change.moving for change in changes))
        standing = without(
            state, (), [path for path in state.topology.paths if pair_of(path) in moving]
        )
        diverts = diverting(
            self._substrate,
            steering_of(self._substrate, self._switches.diverted | moving),
            state.epoch,
        )
        rules = {
            datapath: tuple(self._renamed(datapath, ports, standing, diverts.get(datapath, ())))
            for datapath, ports in renumbered.items()
        }
        done = yield from ask("follow numbers", ApplyRules(rules), alone=True)
        followed = set[DatapathId]()
        for datapath, error in done.value_or({}).items():
            if error is not None:
                LOG.error(
                    "switch %s does not follow its ports' new numbers: %s",
                    self._switches.owned[datapath],
                    error,
                )
                self._switches.doubt([datapath])
            elif self._switches.lacks_only_numbers(datapath, renumbered[datapath]):
                followed.add(datapath)
        if not changes:
            self._switches.note_brought(followed, renumbered)

    def _renamed(
        self,
        datapath: DatapathId,
        ports: Mapping[str, Collection[int]],
        state: NetworkState,
        diverts: Iterable[Install],
    ) -> Iterator[RuleChange]:
        """Rule changes for renumbered ``ports``. A rule possibly absent, such as a rule of a
        change, is modified only if present.
        """
        substrate = self._substrate
        symbols = substrate.ports(datapath).symbols(ports)
        rules = (
            *substrate.own_rules(
                datapath, self._switches.dead_uplinks, self._policy.now.source_check
            ),
            *substrate.common_rules(datapath, state),
            *installed(diverts),
            *self._switches.added_rules(datapath),
        )
        named = [rule for rule in rules if not symbols.isdisjoint(ports_named(rule))]
        yield from map(RemoveByPort, sorted(set().union(*ports.values())))
        for rule in named:
            yield Install(rule) if matches_port(rule) else Modify(rule)
