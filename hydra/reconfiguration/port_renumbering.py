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
from hydra.model import DatapathId, NetworkState
from hydra.reconfiguration.commands import ApplyRules, Steps, ask
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import pair_of, without
from hydra.reconfiguration.switches import Switches

LOG: Final = logging.getLogger("hydra.switches")


class PortRenumbering:
    """Courses that rewrite rules after a switch has numbered its ports anew."""

    def __init__(self, switches: Switches) -> None:
        self._switches = switches

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
        state = self._switches.memory.state
        moving = frozenset().union(*(change.moving for change in changes))
        standing = without(
            state, (), [path for path in state.topology.paths if pair_of(path) in moving]
        )
        diverts = diverting(
            self._switches.substrate,
            steering_of(self._switches.substrate, self._switches.diverted | moving),
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
        substrate = self._switches.substrate
        symbols = substrate.ports(datapath).symbols(ports)
        rules = (
            *substrate.own_rules(
                datapath, self._switches.dead_uplinks, self._switches.policy.now.source_check
            ),
            *substrate.common_rules(datapath, state),
            *installed(diverts),
            *self._switches.added_rules(datapath),
        )
        named = [rule for rule in rules if not symbols.isdisjoint(ports_named(rule))]
        yield from map(RemoveByPort, sorted(set().union(*ports.values())))
        for rule in named:
            yield Install(rule) if matches_port(rule) else Modify(rule)
