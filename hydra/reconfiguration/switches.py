"""Bring the rules of all switches to the present state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hydra.failures import Failure, FailureKind
from hydra.forwarding.resteering import diverting, steering_of
from hydra.forwarding.rules import (
    FlowRule,
    Install,
    Modify,
    Remove,
    RemoveByPort,
    RuleChange,
    are_alike,
    installed,
    match_key,
    matches_port,
    ports_named,
)
from hydra.model import Circuit, DatapathId, Fabric, NetworkState, Path, Server, VlanId
from hydra.policy import CurrentPolicy, OnSilence
from hydra.reconfiguration.commands import (
    Announce,
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
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import Pair, moving_pairs, pair_named, pair_of, without
from hydra.reconfiguration.readiness import Connections, RenumberedPort
from hydra.reconfiguration.relaying import only, relay_rules, stale_relays
from hydra.reconfiguration.switching_over import (
    UNPROTECTED,
    Protection,
    survivors_of,
    switching_over,
)
from hydra.reconfiguration.whole_tables import Memory, WholeTables
from hydra.rings import rings_of

LOG: Final = logging.getLogger("hydra.switches")
Announced = Sequence[tuple[Server, tuple[VlanId, ...]]]


def _is_refusal(failure: Failure) -> bool:
    """True if a steering switch has refused rules of a change."""
    return failure.kind is FailureKind.REFUSED and failure.step in ("push", "activate")


def reachable_on(fabric: Fabric, state: NetworkState) -> Announced:
    """Every server with the VLANs of paths to its rack."""
    vlans: dict[int, set[VlanId]] = {rack.id: set() for rack in fabric.racks}
    for path in state.topology.paths:
        for rack in (path.src, path.dst):
            vlans[rack].add(state.vlans[path])
    ordered = {rack: tuple(sorted(some)) for rack, some in vlans.items()}
    return [(server, ordered[server.rack]) for server in fabric.servers]


class Switches(WholeTables):
    """Courses that bring switches to the present state.

    Courses run one at a time, except :meth:`bring_beside`, which runs beside other courses.
    Attributes of :class:`~hydra.reconfiguration.readiness.Readiness` are for any thread.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        memory: Memory,
        connections: Connections,
        added_rules: Callable[[DatapathId], Iterable[FlowRule]] = lambda _datapath: (),
        protection: Protection = UNPROTECTED,
        followed: Callable[[Sequence[RenumberedPort]], None] = lambda _ports: None,
    ) -> None:
        """``added_rules``: rules that a switch holds beside the substrate's. ``followed``: called
        in a course's thread with renumbered ports, once all rules have the new numbers.
        """
        super().__init__(
            fabric=fabric,
            policy=policy,
            memory=memory,
            connections=connections,
            added_rules=added_rules,
        )
        self._report_followed = followed
        self._protection = protection
        self.settled = False
        """True if the present state is known, and switches may be brought there."""
        self.refused: Mapping[DatapathId, Failure] = {}
        """Steering switches that refuse circuit rules; each change makes a new mapping."""

    def learn(self, execution: Execution) -> None:
        """Take over the unconfirmed steps of a reconfiguration."""
        unconfirmed = execution.unconfirmed
        self.doubt(
            datapath
            for datapath, name in self.owned.items()
            if name in unconfirmed
            or (datapath in self.steering and self.steering[datapath].name in unconfirmed)
        )
        self._dead -= execution.activated
        self.vacated &= self._memory.state.vlans.keys()
        refused = {failure.subject: failure for failure in execution.silent if _is_refusal(failure)}
        self._note_refused(
            {
                dp: refused[steering.name]
                if refused[steering.name].step == "push"
                else self._refusal(dp, refused[steering.name])
                for dp, steering in self.steering.items()
                if steering.name in refused
            }
        )
        moving_racks = {rack for pair in execution.moving for rack in pair}
        self.doubt(dp for dp in self._electrical if self.steering[dp].rack in moving_racks)

    def _note_refused(
        self, refused: Mapping[DatapathId, Failure], taken: Collection[DatapathId] = ()
    ) -> None:
        """Note steering switches refusing rules of circuits; remove ``taken`` switches."""
        remaining = {dp: refusal for dp, refusal in self.refused.items() if dp not in taken}
        self.refused = remaining | {
            dp: refusal for dp, refusal in refused.items() if dp in self.steering
        }

    # -- courses ----------------------------------------------------------------------------------

    def synchronise(self, datapaths: Collection[DatapathId], *, hurries: bool = True) -> Steps:
        """Bring whole switches to the present state, in one atomic bundle each.

        Switches are read first, and skipped if already exact. With ``hurries``, switches far slower
        than most to accept this controller are skipped. On all switches, rules go around servers'
        uplinks found down, and back where uplinks have returned.
        """
        if not self.settled:
            return  # the devices come first; every connected switch is synchronised after
        known = dict.fromkeys(datapath for datapath in datapaths if self._is_known(datapath))
        for stranger in set(datapaths) - known.keys():
            LOG.warning(
                "switch %#x is not in the configuration; leaving the switch alone", stranger
            )
        yield from self._note_and_go_around(known)
        if known:
            yield from self._bring(tuple(known), hurries=hurries)

    def _note_and_go_around(self, connected: Iterable[DatapathId]) -> Steps:
        before = self.dead_uplinks
        if self._note_uplinks(connected) and self._substrate.detours:
            yield from self._go_around(before)

    def _take(
        self, datapaths: tuple[DatapathId, ...], *, beside: bool, hurries: bool
    ) -> Course[list[DatapathId]]:
        """Become the master of switches; return the switches taken."""
        self._renewed.difference_update(datapaths)
        taken = yield from ask("take", TakeSwitches(datapaths, hurries), beside=beside)
        if not taken.confirmed:
            LOG.error("%s: leaving the switch alone", taken.failure)
            return []
        mastered = taken.value_or(frozenset())
        self._untaken.difference_update(mastered)
        others = [datapath for datapath in datapaths if datapath not in mastered]
        if others:
            names = ", ".join(self.known[datapath] for datapath in others)
            LOG.error("not ours yet: %s: left alone, and asked again later", names)
            self.doubt(others)
        return [datapath for datapath in datapaths if datapath in mastered]

    def _bring(self, datapaths: tuple[DatapathId, ...], *, hurries: bool) -> Steps:
        taken = yield from self._take(datapaths, beside=False, hurries=hurries)
        if not taken:
            return
        self._electrical -= set(taken)
        renumbered = self._renumbered.copy()
        errors = yield from self._write(taken)
        refused = {
            dp: self._refusal(dp, error)
            for dp, error in errors.items()
            if error is not None and self._refuses(dp, error)
        }
        brought = {dp for dp, error in errors.items() if error is None}
        self._note_refused(refused, brought)
        self._note_brought(brought - self._renewed, renumbered)
        if not refused:
            return
        # Some rules of the refused tables may have taken effect: the switches get smaller tables.
        self._electrical |= refused.keys()
        renumbered = self._renumbered.copy()
        errors = yield from self._write(sorted(refused))
        brought = {dp for dp, error in errors.items() if error is None}
        self._note_brought(brought - self._renewed, renumbered)

    def _write(self, datapaths: Collection[DatapathId]) -> Course[dict[DatapathId, Failure | None]]:
        """Write whole tables to switches that hold other rules; return the failure or None by
        switch.
        """
        tables = dict(self._whole_tables(datapaths))
        read = yield from ask("confirm", ConfirmRules(tables), alone=True)
        held = read.value_or(HeldRules())
        changes = {
            dp: self._anew(dp, table, held) for dp, table in tables.items() if dp not in held.exact
        }
        done = yield from ask("synchronise", ApplyRules(changes), alone=True)
        errors = {**dict.fromkeys(held.exact), **done.value_or({})}
        for datapath in self._unread(tables, held):
            errors[datapath] = errors[datapath] or Failure(
                "synchronise",
                self.known[datapath],
                FailureKind.UNKNOWN,
                "the rule table could not be read: the table may hold relays of an earlier state",
            )
        for datapath, error in errors.items():
            if error is not None:
                self._log_failure(datapath, error)
                self._synchronised.discard(datapath)
        return errors

    def _unread(self, datapaths: Iterable[DatapathId], held: HeldRules) -> frozenset[DatapathId]:
        """The given switches that may hold unknown relay rules, but should not."""
        if self._substrate.retags or self.spares_relays:
            return frozenset()
        known = held.exact | held.relays.keys()
        return frozenset(
            datapath for datapath in datapaths if datapath in self.owned and datapath not in known
        )

    def _refuses(self, datapath: DatapathId, error: Failure) -> bool:
        return error.kind is FailureKind.REFUSED and datapath in self.steering

    def _log_failure(self, datapath: DatapathId, error: Failure) -> None:
        if not self._refuses(datapath, error):
            LOG.error("switch %#x was not synchronised: %s", datapath, error)
        elif datapath in self._electrical:
            LOG.error("%s refuses even rules without circuits: %s", self.known[datapath], error)
        elif datapath not in self.refused:
            refusal = self._refusal(datapath, error)
            LOG.error(
                "%s; traffic from there is electrical until the switch accepts rules", refusal
            )

    def _refusal(self, datapath: DatapathId, error: Failure) -> Failure:
        """A refusal of a whole table, with the rack pairs whose traffic the switch sends."""
        switch = self.steering[datapath]
        paths = self._memory.state.topology.paths
        pairs = {pair for pair in map(pair_of, paths) if switch.rack in pair}
        named = ", ".join(pair_named(self._fabric, pair) for pair in sorted(pairs))
        reason = f"{switch.name} refuses the rules of {named or 'its rack'} ({error})"
        return Failure("synchronise", switch.name, FailureKind.REFUSED, reason)

    def _note_brought(
        self, datapaths: Collection[DatapathId], renumbered: Mapping[DatapathId, object]
    ) -> None:
        """Note that switches hold the present state's rules. Report the followed ports of
        ``renumbered``, the renumbered ports at the sending of the rules.
        """
        followed = self._note_ready(datapaths, renumbered)
        if self.all_ready:
            self._common_in, self._common = None, {}
        if followed:
            self._report_followed(followed)

    def bring_beside(self, datapaths: Collection[DatapathId]) -> Course[frozenset[DatapathId]]:
        """Bring switches to the present state while other courses and changes run; return the
        switches brought. Several such courses may be under way, for different switches.

        Until brought, a switch is not ready: no other course writes the switch's rules, and changes
        leave the paths of its rack in place, so both old and new rules lead somewhere. A switch
        gets the rules of the present state. If the state has changed by the time the switch
        confirms, the switch gets the new rules, too.
        """
        some = frozenset(filter(self._is_known, datapaths))
        for stranger in set(datapaths) - some:
            LOG.warning(
                "switch %#x is not in the configuration; leaving the switch alone", stranger
            )
        self.being_brought |= some
        try:
            return (yield from self._bring_beside(set(some)))
        finally:
            self._untried -= some
            self._missed |= some - self._synchronised
            self.being_brought -= some

    def _bring_beside(self, remaining: set[DatapathId]) -> Course[frozenset[DatapathId]]:
        yield from self._note_and_go_around(remaining)
        remaining &= {
            *(yield from self._take(tuple(sorted(remaining)), beside=True, hurries=False))
        }
        self._electrical -= remaining
        tables = dict(self._whole_tables(sorted(remaining)))
        read = yield from ask("confirm", ConfirmRules(tables), beside=True)
        before = read.value_or(HeldRules())
        held = {dp: self._anew(dp, tables[dp], before) for dp in before.exact}
        relays = {dp: list(rules) for dp, rules in before.relays.items()}
        relays |= {dp: list(relay_rules(installed(tables[dp]))) for dp in before.exact}
        remaining -= self._unread(remaining, before)
        while self.settled:  # else all switches are brought once the state is known
            remaining -= self._renewed
            renumbered = self._renumbered.copy()
            known = replace(before, relays=relays)
            whole = dict(self._whole_tables(sorted(remaining)))
            wanted = {dp: self._anew(dp, table, known) for dp, table in whole.items()}
            changes = {
                dp: some
                for dp, some in wanted.items()
                if dp not in held or not are_alike(held[dp], some)
            }
            if not changes:
                self._note_refused({}, remaining - self._electrical)
                self._note_brought(remaining, renumbered)
                return frozenset(remaining)
            for datapath in changes:
                relays.setdefault(datapath, []).extend(relay_rules(installed(whole[datapath])))
            done = yield from ask("synchronise", ApplyRules(changes), beside=True)
            for datapath, error in done.value_or({}).items():
                if error is None:
                    held[datapath] = changes[datapath]
                    continue
                self._log_failure(datapath, error)
                if self._refuses(datapath, error) and datapath not in self._electrical:
                    # Some rules may have taken effect: the switch gets a smaller table.
                    self._note_refused({datapath: self._refusal(datapath, error)})
                    self._electrical |= {datapath}
                    held.pop(datapath, None)
                else:
                    remaining.discard(datapath)
        return frozenset()

    def follow_uplinks(self) -> Steps:
        """Go around servers whose uplink to the ToR went down, and back where the uplink returned.

        Where the substrate has detours, no rule about paths is touched: the course may run during a
        reconfiguration, too.
        """
        before = self.dead_uplinks
        if not self.settled:
            self._unseen_uplinks = True
        if not self.settled or not self._note_uplinks():
            return
        if self._substrate.detours:
            yield from self._go_around(before)
        else:
            servers = reachable_on(self._fabric, self._memory.state)
            yield Batch("announce", (Announce(tuple(servers)),))

    def follow_closed(self) -> Steps:
        """Go around servers whose port at the ToR was closed, and back where reopened."""
        if self.settled:
            yield from self._note_and_go_around(())

    def _go_around(self, before: Collection[str]) -> Steps:
        """Change differing uplink rules in ready switches; ``before``: the dead uplinks so far."""
        changes = {
            datapath: tuple(self._uplink_changes(datapath, before))
            for datapath in sorted(self.ready() & self.owned.keys())
        }
        done = yield from ask("go around", ApplyRules(changes, self._hurries), alone=True)
        self.doubt(datapath for datapath, error in done.value_or({}).items() if error is not None)

    @property
    def _hurries(self) -> bool:
        """True if going around a dead part does not wait for few switches far slower than all the
        rest. Such switches are brought to the present state once they answer (decision 36).
        """
        closes = self._policy.now.on_silent_vswitch is OnSilence.CLOSE
        return self._substrate.retags and not closes

    def _uplink_changes(
        self, datapath: DatapathId, before: Collection[str]
    ) -> Iterator[RuleChange]:
        check = self._policy.now.source_check
        old, new = (
            {match_key(rule): rule for rule in self._substrate.own_rules(datapath, dead, check)}
            for dead in (before, self.dead_uplinks)
        )
        yield from (Remove(rule) for key, rule in old.items() if key not in new)
        yield from (Install(rule) for key, rule in new.items() if old.get(key) != rule)

    def follow_numbers(self, changes: Collection[Execution] = ()) -> Steps:
        """Rewrite rules for OpenFlow port numbers changed by switches: one bundle, no other rule
        touched.

        While ``changes`` are under way, path rules of moving pairs are left to the changes; the
        pairs' divert rules are rewritten. A second call after the changes rewrites the path rules.
        Switches not yet mastered by this controller are left to :meth:`synchronise`.
        """
        able = self._connections.connected() - frozenset(self._untaken)
        renumbered = {dp: some for dp, some in self._renumbered.copy().items() if dp in able}
        if not self.settled or not renumbered:
            return
        state = self._memory.state
        moving = frozenset().union(*(change.moving for change in changes))
        standing = without(
            state, (), [path for path in state.topology.paths if pair_of(path) in moving]
        )
        diverts = diverting(
            self._substrate, steering_of(self._substrate, self.diverted | moving), state.epoch
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
                    self.owned[datapath],
                    error,
                )
                self.doubt([datapath])
            elif (
                datapath in self._only_renumbered
                and self._renumbered.get(datapath) is renumbered[datapath]
            ):
                followed.add(datapath)
        if not changes:
            self._note_brought(followed, renumbered)

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
            *substrate.own_rules(datapath, self.dead_uplinks, self._policy.now.source_check),
            *substrate.common_rules(datapath, state),
            *installed(diverts),
            *self._added_rules(datapath),
        )
        named = [rule for rule in rules if not symbols.isdisjoint(ports_named(rule))]
        yield from map(RemoveByPort, sorted(set().union(*ports.values())))
        for rule in named:
            yield Install(rule) if matches_port(rule) else Modify(rule)

    def divert(
        self,
        circuits: Collection[Circuit],
        paths: Collection[Path] = (),
        changes: Collection[Execution] = (),
    ) -> Course[frozenset[Circuit]]:
        """Send the pairs on dead circuits and dead paths electrical, until these are withdrawn.
        Pairs whose lost paths are all protected go to the surviving paths instead.

        Pairs moved by ``changes`` under way are left to the changes; a change leaves its unmoved
        dead pairs diverted. Returns the dead circuits in use by pairs: if still standing after the
        changes, the circuits are to be withdrawn, even if light has returned by then.
        """
        state = self._memory.state
        reduced = without(state, circuits, paths)
        pairs = moving_pairs(state, reduced)
        if not pairs or not self.settled:
            return frozenset()
        moving = frozenset[Pair]().union(*(change.moving for change in changes))
        lost = [path for path in state.topology.paths if path not in reduced.vlans]
        surviving = survivors_of(lost, self._protection.survivors(), reduced, moving)
        over = frozenset(map(pair_of, surviving))
        self.vacated |= surviving.keys()
        self._dead |= pairs - over
        remaining = pairs - over
        for change in changes:
            change.keep_electrical(pairs - over)
            remaining -= change.moving
        diverts = diverting(self._substrate, steering_of(self._substrate, remaining), state.epoch)
        moved = switching_over(self._substrate, self._protection, state, surviving)
        changed = only(
            {
                dp: (*moved.get(dp, ()), *diverts.get(dp, ()))
                for dp in moved.keys() | diverts.keys()
            },
            self.ready(),
        )
        done = yield from ask("divert", ApplyRules(changed, self._hurries))
        for datapath, error in done.value_or({}).items():
            if error is not None:
                LOG.warning("switch %#x was not diverted: %s", datapath, error)
        self.doubt(datapath for datapath, error in done.value_or({}).items() if error is not None)
        used = {
            circuit
            for path in state.topology.paths
            if pair_of(path) in pairs
            for circuit in path.circuits
        }
        return frozenset(circuits) & rings_of(used, state.topology.circuits)

    def tidy_relays(self) -> Steps:
        """Remove relay rules of earlier states; keep the rules of the present state.

        Runs before anything moves: an old rule could match the frames of a new path.
        """
        if not self.spares_relays or not self.settled:
            return
        self.spares_relays = False
        tables = dict(self.tables(sorted(self.owned.keys() & self.ready())))
        read = yield from ask("confirm", ConfirmRules(tables), alone=True)
        held = read.value_or(HeldRules())
        self.doubt(self._unread(tables, held))
        stale = {
            datapath: tuple(stale_relays(rules, installed(tables[datapath])))
            for datapath, rules in held.relays.items()
        }
        changes = only(stale, tables)
        if not changes:
            return
        # A barrier confirms tables, not the packets in flight.
        yield Batch("drain", (Pause(self._policy.now.drain.bound_ms / 1000),))
        done = yield from ask("tidy", ApplyRules(changes))
        self.doubt(datapath for datapath, error in done.value_or({}).items() if error is not None)
