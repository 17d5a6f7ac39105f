"""Servers with a dead uplink to their ToR: traffic to and from the servers goes electrically."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from hydra.forwarding.rules import Install, Remove, RuleChange, match_key
from hydra.model import DatapathId
from hydra.reconfiguration.commands import Announce, ApplyRules, Batch, Steps, ask
from hydra.reconfiguration.switches import Switches, reachable_on


class UplinkDetours:
    """Courses that follow the state of servers' uplinks, and of their ports at the ToR."""

    def __init__(self, switches: Switches) -> None:
        self._switches = switches

    def follow_all(self) -> Steps:
        """Go around servers whose uplink to the ToR went down, and back where the uplink returned.

        Where the substrate has detours, no rule about paths is touched: the course may run during a
        reconfiguration, too.
        """
        before = self._switches.dead_uplinks
        if not self._switches.settled:
            self._switches.have_uplinks_checked()
        if not self._switches.settled or not self._switches.note_uplinks():
            return
        if self._switches.substrate.detours:
            yield from self._go_around(before)
        else:
            servers = reachable_on(self._switches.fabric, self._switches.memory.state)
            yield Batch("announce", (Announce(tuple(servers)),))

    def follow(self, connected: Iterable[DatapathId] = ()) -> Steps:
        """Go around servers whose uplink is down or whose port at the ToR is closed, and back where
        uplinks have returned.

        Checks uplinks of switches that ``connected``, and uplinks known to be down.
        """
        if not self._switches.settled:
            return
        before = self._switches.dead_uplinks
        if self._switches.note_uplinks(connected) and self._switches.substrate.detours:
            yield from self._go_around(before)

    def _go_around(self, before: Collection[str]) -> Steps:
        """Change differing uplink rules in ready switches; ``before``: the dead uplinks so far."""
        changes = {
            datapath: tuple(self._uplink_changes(datapath, before))
            for datapath in sorted(self._switches.ready() & self._switches.owned.keys())
        }
        done = yield from ask("go around", ApplyRules(changes, self._switches.hurries), alone=True)
        self._switches.doubt(
            datapath for datapath, error in done.value_or({}).items() if error is not None
        )

    def _uplink_changes(
        self, datapath: DatapathId, before: Collection[str]
    ) -> Iterator[RuleChange]:
        check = self._switches.policy.now.source_check
        old, new = (
            {
                match_key(rule): rule
                for rule in self._switches.substrate.own_rules(datapath, dead, check)
            }
            for dead in (before, self._switches.dead_uplinks)
        )
        yield from (Remove(rule) for key, rule in old.items() if key not in new)
        yield from (Install(rule) for key, rule in new.items() if old.get(key) != rule)
