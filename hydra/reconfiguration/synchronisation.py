"""Switches that connect, or did not confirm, get the whole table of the present state."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from hydra.failures import Failure, FailureKind
from hydra.forwarding.rules import are_alike, installed
from hydra.model import DatapathId
from hydra.reconfiguration.commands import (
    ApplyRules,
    Batch,
    ConfirmRules,
    Course,
    HeldRules,
    Pause,
    Steps,
    TakeSwitches,
    ask,
)
from hydra.reconfiguration.relaying import only, relay_rules, stale_relays
from hydra.reconfiguration.switches import Switches
from hydra.reconfiguration.uplink_detours import UplinkDetours

LOG: Final = logging.getLogger("hydra.switches")


class Synchronisation:
    """Courses run one at a time, except :meth:`bring_beside`, which runs beside other courses."""

    def __init__(self, switches: Switches, detours: UplinkDetours) -> None:
        self._switches, self._detours = switches, detours

    def synchronise(self, datapaths: Collection[DatapathId], *, hurries: bool = True) -> Steps:
        """Bring whole switches to the present state, in one atomic bundle each.

        Switches are read first, and skipped if already exact. With ``hurries``, switches far slower
        than most to accept this controller are skipped. On all switches, rules go around servers'
        uplinks found down, and back where uplinks have returned.
        """
        if not self._switches.settled:
            return  # the devices come first; every connected switch is synchronised after
        known = dict.fromkeys(
            datapath for datapath in datapaths if self._switches.is_known(datapath)
        )
        for stranger in set(datapaths) - known.keys():
            LOG.warning(
                "switch %#x is not in the configuration; leaving the switch alone", stranger
            )
        yield from self._detours.follow(known)
        if known:
            yield from self._bring(tuple(known), hurries=hurries)

    def _take(
        self, datapaths: tuple[DatapathId, ...], *, beside: bool, hurries: bool
    ) -> Course[list[DatapathId]]:
        """Become the master of switches; return the switches taken."""
        self._switches.note_tried(datapaths)
        taken = yield from ask("take", TakeSwitches(datapaths, hurries), beside=beside)
        if not taken.confirmed:
            LOG.error("%s: leaving the switch alone", taken.failure)
            return []
        mastered = taken.value_or(frozenset())
        self._switches.note_mastered(mastered)
        others = [datapath for datapath in datapaths if datapath not in mastered]
        if others:
            names = ", ".join(self._switches.known[datapath] for datapath in others)
            LOG.error("not ours yet: %s: left alone, and asked again later", names)
            self._switches.doubt(others)
        return [datapath for datapath in datapaths if datapath in mastered]

    def _bring(self, datapaths: tuple[DatapathId, ...], *, hurries: bool) -> Steps:
        taken = yield from self._take(datapaths, beside=False, hurries=hurries)
        if not taken:
            return
        self._switches.electrical -= set(taken)
        renumbered = self._switches.numbers_in_rules()
        errors = yield from self._write(taken)
        refused = {
            dp: self._switches.refusal(dp, error)
            for dp, error in errors.items()
            if error is not None and self._switches.refuses(dp, error)
        }
        brought = {dp for dp, error in errors.items() if error is None}
        self._switches.note_refused(refused, brought)
        self._switches.note_brought(brought - self._switches.reconnected, renumbered)
        if not refused:
            return
        # Some rules of the refused tables may have taken effect: the switches get smaller tables.
        self._switches.electrical |= refused.keys()
        renumbered = self._switches.numbers_in_rules()
        errors = yield from self._write(sorted(refused))
        brought = {dp for dp, error in errors.items() if error is None}
        self._switches.note_brought(brought - self._switches.reconnected, renumbered)

    def _write(self, datapaths: Collection[DatapathId]) -> Course[dict[DatapathId, Failure | None]]:
        """Write whole tables to switches that hold other rules; return the failure or None by
        switch.
        """
        tables = dict(self._switches.whole_tables(datapaths))
        read = yield from ask("confirm", ConfirmRules(tables), alone=True)
        held = read.value_or(HeldRules())
        changes = {
            dp: self._switches.anew(dp, table, held)
            for dp, table in tables.items()
            if dp not in held.exact
        }
        done = yield from ask("synchronise", ApplyRules(changes), alone=True)
        errors = {**dict.fromkeys(held.exact), **done.value_or({})}
        for datapath in self._unread(tables, held):
            errors[datapath] = errors[datapath] or Failure(
                "synchronise",
                self._switches.known[datapath],
                FailureKind.UNKNOWN,
                "the rule table could not be read: the table may hold relays of an earlier state",
            )
        for datapath, error in errors.items():
            if error is not None:
                self._switches.note_failure(datapath, error)
        return errors

    def _unread(self, datapaths: Iterable[DatapathId], held: HeldRules) -> frozenset[DatapathId]:
        """The given switches that may hold unknown relay rules, but should not."""
        if self._switches.substrate.retags or self._switches.spares_relays:
            return frozenset()
        known = held.exact | held.relays.keys()
        return frozenset(
            datapath
            for datapath in datapaths
            if datapath in self._switches.owned and datapath not in known
        )

    def bring_beside(self, datapaths: Collection[DatapathId]) -> Course[frozenset[DatapathId]]:
        """Bring switches to the present state while other courses and changes run; return the
        switches brought. Several such courses may be under way, for different switches.

        Until brought, a switch is not ready: no other course writes the switch's rules, and changes
        leave the paths of its rack in place, so both old and new rules lead somewhere. A switch
        gets the rules of the present state. If the state has changed by the time the switch
        confirms, the switch gets the new rules, too.
        """
        some = frozenset(filter(self._switches.is_known, datapaths))
        for stranger in set(datapaths) - some:
            LOG.warning(
                "switch %#x is not in the configuration; leaving the switch alone", stranger
            )
        self._switches.note_begun_beside(some)
        try:
            return (yield from self._bring_beside(set(some)))
        finally:
            self._switches.note_ended_beside(some)

    def _bring_beside(self, remaining: set[DatapathId]) -> Course[frozenset[DatapathId]]:
        yield from self._detours.follow(remaining)
        remaining &= {
            *(yield from self._take(tuple(sorted(remaining)), beside=True, hurries=False))
        }
        self._switches.electrical -= remaining
        tables = dict(self._switches.whole_tables(sorted(remaining)))
        read = yield from ask("confirm", ConfirmRules(tables), beside=True)
        before = read.value_or(HeldRules())
        held = {dp: self._switches.anew(dp, tables[dp], before) for dp in before.exact}
        relays = {dp: list(rules) for dp, rules in before.relays.items()}
        relays |= {dp: list(relay_rules(installed(tables[dp]))) for dp in before.exact}
        remaining -= self._unread(remaining, before)
        while self._switches.settled:  # else all switches are brought once the state is known
            remaining -= self._switches.reconnected
            renumbered = self._switches.numbers_in_rules()
            known = replace(before, relays=relays)
            whole = dict(self._switches.whole_tables(sorted(remaining)))
            wanted = {dp: self._switches.anew(dp, table, known) for dp, table in whole.items()}
            changes = {
                dp: some
                for dp, some in wanted.items()
                if dp not in held or not are_alike(held[dp], some)
            }
            if not changes:
                self._switches.note_refused({}, remaining - self._switches.electrical)
                self._switches.note_brought(remaining, renumbered)
                return frozenset(remaining)
            for datapath in changes:
                relays.setdefault(datapath, []).extend(relay_rules(installed(whole[datapath])))
            done = yield from ask("synchronise", ApplyRules(changes), beside=True)
            for datapath, error in done.value_or({}).items():
                if error is None:
                    held[datapath] = changes[datapath]
                    continue
                self._switches.note_failure(datapath, error)
                if (
                    self._switches.refuses(datapath, error)
                    and datapath not in self._switches.electrical
                ):
                    # Some rules may have taken effect: the switch gets a smaller table.
                    self._switches.note_refused({datapath: self._switches.refusal(datapath, error)})
                    self._switches.electrical |= {datapath}
                    held.pop(datapath, None)
                else:
                    remaining.discard(datapath)
        return frozenset()

    def tidy_relays(self) -> Steps:
        """Remove relay rules of earlier states; keep the rules of the present state.

        Runs before anything moves: an old rule could match the frames of a new path.
        """
        if not self._switches.spares_relays or not self._switches.settled:
            return
        self._switches.spares_relays = False
        tables = dict(
            self._switches.tables(sorted(self._switches.owned.keys() & self._switches.ready()))
        )
        read = yield from ask("confirm", ConfirmRules(tables), alone=True)
        held = read.value_or(HeldRules())
        self._switches.doubt(self._unread(tables, held))
        stale = {
            datapath: tuple(stale_relays(rules, installed(tables[datapath])))
            for datapath, rules in held.relays.items()
        }
        changes = only(stale, tables)
        if not changes:
            return
        # A barrier confirms tables, not the packets in flight.
        yield Batch("drain", (Pause(self._switches.policy.now.drain.bound_ms / 1000),))
        done = yield from ask("tidy", ApplyRules(changes))
        self._switches.doubt(
            datapath for datapath, error in done.value_or({}).items() if error is not None
        )
