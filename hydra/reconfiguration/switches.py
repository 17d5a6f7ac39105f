"""The rules of all switches: which switches hold the present state's, and how others get them.

Courses yield commands and are sent outcomes, as the executor does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
)
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import moving_pairs, pair_named, pair_of, without
from hydra.reconfiguration.readiness import Connections, MovedPort
from hydra.reconfiguration.relaying import only, relays_as_in
from hydra.reconfiguration.whole_tables import Memory, WholeTables
from hydra.rings import rings_of

LOG: Final = logging.getLogger("hydra.switches")
Announced = Sequence[tuple[Server, tuple[VlanId, ...]]]


def _is_refusal(failure: Failure) -> bool:
    """True if a steering switch has refused what a change gave it."""
    return failure.kind is FailureKind.REFUSED and failure.step in ("push", "activate")


def reachable_on(fabric: Fabric, state: NetworkState) -> Announced:
    """Every server with the VLANs that lead to it."""
    vlans: dict[int, set[VlanId]] = {rack.id: set() for rack in fabric.racks}
    for path in state.topology.paths:
        for rack in (path.src, path.dst):
            vlans[rack].add(state.vlans[path])
    ordered = {rack: tuple(sorted(some)) for rack, some in vlans.items()}
    return [(server, ordered[server.rack]) for server in fabric.servers]


class Switches(WholeTables):
    """Courses run one at a time, but for those of :meth:`bring_beside`, beside which others do.
    What :class:`~hydra.reconfiguration.readiness.Readiness` has is for any thread.
    """

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        memory: Memory,
        connections: Connections,
        added_rules: Callable[[DatapathId], Iterable[FlowRule]] = lambda _datapath: (),
        followed: Callable[[Sequence[MovedPort]], None] = lambda _ports: None,
    ) -> None:
        """``added_rules``: rules that a switch holds beside the substrate's. ``followed``: called
        in a course's thread with renumbered ports, once all rules have the new numbers.
        """
        super().__init__(fabric, policy, memory, connections, added_rules)
        self._tell_followed = followed
        self.settled = False
        """True if the present state is known: switches may be brought to it."""
        self.refused: Mapping[DatapathId, Failure] = {}
        """Steering switches that have refused rules of their circuits, until they take them; a new
        object with each change.
        """

    def learn(self, execution: Execution) -> None:
        """Take over what a reconfiguration could not confirm."""
        unconfirmed = execution.unconfirmed
        self.doubt(
            datapath
            for datapath, name in self.owned.items()
            if name in unconfirmed
            or (datapath in self.steering and self.steering[datapath].name in unconfirmed)
        )
        self._dead -= execution.activated
        refused = {failure.subject: failure for failure in execution.silent if _is_refusal(failure)}
        self._note_refused(
            {
                dp: refused[one.name]
                if refused[one.name].step == "push"
                else self._refusal(dp, refused[one.name])
                for dp, one in self.steering.items()
                if one.name in refused
            }
        )
        told = {rack for pair in execution.moving for rack in pair}
        self.doubt(dp for dp in self._electrical if self.steering[dp].rack in told)

    def _note_refused(
        self, refused: Mapping[DatapathId, Failure], taken: Collection[DatapathId] = ()
    ) -> None:
        """Note steering switches that refused rules of their circuits, and those that took them."""
        left = {dp: one for dp, one in self.refused.items() if dp not in taken}
        self.refused = left | {dp: one for dp, one in refused.items() if dp in self.steering}

    # -- courses ----------------------------------------------------------------------------------

    def synchronise(self, datapaths: Collection[DatapathId]) -> Steps:
        """Bring whole switches to the present state, in one atomic bundle each.

        Switches are read first: those that hold just what they should are left as they are.
        Servers' uplinks that went down or came back since are gone around on all switches.
        """
        if not self.settled:
            return  # the devices come first; every connected switch is synchronised after
        known = dict.fromkeys(datapath for datapath in datapaths if self._is_known(datapath))
        for stranger in set(datapaths) - known.keys():
            LOG.warning("switch %#x is not in the configuration; it is left alone", stranger)
        yield from self._note_and_go_around(known)
        if known:
            yield from self._bring(tuple(known))

    def _note_and_go_around(self, connected: Iterable[DatapathId]) -> Steps:
        before = self.dead_uplinks
        if self._note_uplinks(connected) and self._substrate.detours:
            yield from self._go_around(before)

    def _take(self, datapaths: tuple[DatapathId, ...], *, beside: bool) -> Course[list[DatapathId]]:
        """Become the master of switches; returns those of which that came about."""
        self._renewed.difference_update(datapaths)
        (taken,) = yield Batch("take", (TakeSwitches(datapaths),), beside=beside)
        if not taken.confirmed:
            LOG.error("%s: it is left alone", taken.failure)
            return []
        self._untaken.difference_update(taken.value)
        others = [one for one in datapaths if one not in taken.value]
        if others:
            names = ", ".join(self.known[one] for one in others)
            LOG.error("not ours yet: %s: left alone, and asked again later", names)
            self.doubt(others)
        return [one for one in datapaths if one in taken.value]

    def _bring(self, datapaths: tuple[DatapathId, ...]) -> Steps:
        taken = yield from self._take(datapaths, beside=False)
        if not taken:
            return
        self._electrical -= set(taken)
        moved = self._moved.copy()
        errors = yield from self._write(taken)
        refused = {
            dp: self._refusal(dp, error)
            for dp, error in errors.items()
            if error is not None and self._refuses(dp, error)
        }
        brought = {dp for dp, error in errors.items() if error is None}
        self._note_refused(refused, brought)
        self._note_brought(brought - self._renewed, moved)
        if not refused:
            return
        # Of the refused tables, some rules may have taken effect: they are given smaller ones.
        self._electrical |= refused.keys()
        moved = self._moved.copy()
        errors = yield from self._write(sorted(refused))
        brought = {dp for dp, error in errors.items() if error is None}
        self._note_brought(brought - self._renewed, moved)

    def _write(self, datapaths: Collection[DatapathId]) -> Course[dict[DatapathId, Failure | None]]:
        """Give switches whole tables, where they hold others; by switch, the failure or None."""
        tables = dict(self._whole_tables(datapaths))
        (read,) = yield Batch("confirm", (ConfirmRules(tables),), alone=True)
        held: HeldRules = read.value or HeldRules()
        changes = {
            dp: self._anew(dp, table, held) for dp, table in tables.items() if dp not in held.exact
        }
        (done,) = yield Batch("synchronise", (ApplyRules(changes),), alone=True)
        for datapath, error in done.value.items():
            if error is not None:
                self._tell(datapath, error)
                self._synchronised.discard(datapath)
        return {**dict.fromkeys(held.exact), **done.value}

    def _refuses(self, datapath: DatapathId, error: Failure) -> bool:
        return error.kind is FailureKind.REFUSED and datapath in self.steering

    def _tell(self, datapath: DatapathId, error: Failure) -> None:
        if not self._refuses(datapath, error):
            LOG.error("switch %#x was not synchronised: %s", datapath, error)
        elif datapath in self._electrical:
            LOG.error("%s refuses even rules without circuits: %s", self.known[datapath], error)
        elif datapath not in self.refused:
            refusal = self._refusal(datapath, error)
            LOG.error("%s; what it sends is electrical until it takes them", refusal)

    def _refusal(self, datapath: DatapathId, error: Failure) -> Failure:
        """A refusal of whole tables, with the rack pairs whose traffic the switch sends."""
        switch = self.steering[datapath]
        paths = self._memory.state.topology.paths
        pairs = {pair for pair in map(pair_of, paths) if switch.rack in pair}
        named = ", ".join(pair_named(self._fabric, pair) for pair in sorted(pairs))
        reason = f"{switch.name} refuses the rules of {named or 'its rack'} ({error})"
        return Failure("synchronise", switch.name, FailureKind.REFUSED, reason)

    def _note_brought(
        self, datapaths: Collection[DatapathId], moved: Mapping[DatapathId, object]
    ) -> None:
        """Note that switches hold the present state's rules, and tell of the ports that had
        ``moved`` before these were sent.
        """
        followed = self._note_ready(datapaths, moved)
        if self.all_ready:
            self._common_in, self._common = None, {}
        if followed:
            self._tell_followed(followed)

    def bring_beside(self, datapaths: Collection[DatapathId]) -> Course[frozenset[DatapathId]]:
        """Bring switches to the present state, with other courses and changes in between; returns
        those that were brought. Several such courses may be under way, for different switches.

        Until they are, they are not ready: nobody else writes their rules, and changes leave the
        paths of their racks where they are, so what they hold and what they are about to be given
        both lead somewhere. They are given the state of the moment. If that asks for something else
        by the time that they have confirmed it, they are given that, too.
        """
        some = frozenset(filter(self._is_known, datapaths))
        for stranger in set(datapaths) - some:
            LOG.warning("switch %#x is not in the configuration; it is left alone", stranger)
        self.being_brought |= some
        try:
            return (yield from self._bring_beside(set(some)))
        finally:
            self._untried -= some
            self._missed |= some - self._synchronised
            self.being_brought -= some

    def _bring_beside(self, left: set[DatapathId]) -> Course[frozenset[DatapathId]]:
        yield from self._note_and_go_around(left)
        left &= {*(yield from self._take(tuple(sorted(left)), beside=True))}
        self._electrical -= left
        tables = dict(self._whole_tables(sorted(left)))
        (read,) = yield Batch("confirm", (ConfirmRules(tables),), beside=True)
        before: HeldRules = read.value or HeldRules()
        held = {dp: self._anew(dp, tables[dp], before) for dp in before.exact}
        while self.settled:  # else all switches are brought once the state is known
            left -= self._renewed
            moved = self._moved.copy()
            wanted = {
                dp: self._anew(dp, table, before) for dp, table in self._whole_tables(sorted(left))
            }
            changes = {
                dp: some
                for dp, some in wanted.items()
                if dp not in held or not are_alike(held[dp], some)
            }
            if not changes:
                self._note_refused({}, left - self._electrical)
                self._note_brought(left, moved)
                return frozenset(left)
            (done,) = yield Batch("synchronise", (ApplyRules(changes),), beside=True)
            for datapath, error in done.value.items():
                if error is None:
                    held[datapath] = changes[datapath]
                    continue
                self._tell(datapath, error)
                if self._refuses(datapath, error) and datapath not in self._electrical:
                    # Some rules may have taken effect: it is given a smaller table.
                    self._note_refused({datapath: self._refusal(datapath, error)})
                    self._electrical |= {datapath}
                    held.pop(datapath, None)
                else:
                    left.discard(datapath)
        return frozenset()

    def follow_uplinks(self) -> Steps:
        """Go around servers whose uplink to the ToR went down, and back where it returned.

        Where there are detours, no rule about paths is touched: it is right while a
        reconfiguration is under way, too.
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
        """Go around servers whose port at the ToR was closed, and back where it was opened."""
        if self.settled:
            yield from self._note_and_go_around(())

    def _go_around(self, before: Collection[str]) -> Steps:
        """Change what differs in switches that are ready; ``before`` were the dead uplinks."""
        changes = {
            datapath: tuple(self._uplink_changes(datapath, before))
            for datapath in sorted(self.ready() & self.owned.keys())
        }
        (done,) = yield Batch("go around", (ApplyRules(changes, self._hurries),), alone=True)
        self.doubt(datapath for datapath, error in done.value.items() if error is not None)

    @property
    def _hurries(self) -> bool:
        """True if few switches that are far later than all others keep nobody waiting who goes
        around something dead: they are brought to the present state once they answer (decision 36).
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
        """Have rules name ports by their present OpenFlow numbers, where a switch has given a port
        another one: in one bundle, which touches no other rule.

        While ``changes`` are under way, the rules of paths of the pairs that these move are left to
        them; their divert rules are right afterwards. They are followed once more after that.
        Switches that this controller is not the master of yet are left to :meth:`synchronise`.
        """
        able = self._connections.connected() - frozenset(self._untaken)
        moved = {dp: some for dp, some in self._moved.copy().items() if dp in able}
        if not self.settled or not moved:
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
            for datapath, ports in moved.items()
        }
        (done,) = yield Batch("follow numbers", (ApplyRules(rules),), alone=True)
        followed = set[DatapathId]()
        for datapath, error in done.value.items():
            if error is not None:
                LOG.error(
                    "switch %s does not follow its ports' new numbers: %s",
                    self.owned[datapath],
                    error,
                )
                self.doubt([datapath])
            elif datapath in self._only_moved and self._moved.get(datapath) is moved[datapath]:
                followed.add(datapath)
        if not changes:
            self._note_brought(followed, moved)

    def _renamed(
        self,
        datapath: DatapathId,
        ports: Mapping[str, Collection[int]],
        state: NetworkState,
        diverts: Iterable[Install],
    ) -> Iterator[RuleChange]:
        """Changes by which rules name these ports as they are numbered now. Rules that may be
        there or not, such as those of a change, are modified if they are there.
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

        Pairs that ``changes`` under way move are left to them: those that they do not move after
        all, they leave diverted. Returns the dead circuits that pairs are on: if they stand after
        it, they are to be withdrawn, whether or not they have light again by then.
        """
        state = self._memory.state
        pairs = moving_pairs(state, without(state, circuits, paths))
        if not pairs or not self.settled:
            return frozenset()
        self._dead |= pairs
        left = pairs
        for change in changes:
            change.hear_of_dead(pairs)
            left -= change.moving
        diverts = diverting(self._substrate, steering_of(self._substrate, left), state.epoch)
        changed = only(diverts, self.ready())
        (done,) = yield Batch("divert", (ApplyRules(changed, self._hurries),))
        for datapath, error in done.value.items():
            if error is not None:
                LOG.warning("switch %#x was not diverted: %s", datapath, error)
        self.doubt(datapath for datapath, error in done.value.items() if error is not None)
        used = {
            circuit
            for path in state.topology.paths
            if pair_of(path) in pairs
            for circuit in path.circuits
        }
        return frozenset(circuits) & rings_of(used, state.topology.circuits)

    def tidy_relays(self) -> Steps:
        """Leave relays with the rules that the present state needs, and none of an earlier one.

        This comes before anything moves: an old rule could take a new path for its own.
        """
        if not self.spares_relays or not self.settled:
            return
        self.spares_relays = False
        changes = {
            datapath: tuple(relays_as_in(installed(table)))
            for datapath, table in self.tables(sorted(self.owned.keys() & self.ready()))
        }
        # A barrier confirms tables, not the packets that were on their way.
        yield Batch("drain", (Pause(self._policy.now.drain.bound_ms / 1000),))
        (done,) = yield Batch("tidy", (ApplyRules(changes),))
        self.doubt(datapath for datapath, error in done.value.items() if error is not None)
