"""Changes of the rules in switches' tables: in bundles, at once or staged, and their
confirmation.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from apps.openflow.asking import Asking, Sending
from apps.openflow.interface import SwitchConnection
from apps.openflow.replies import Reply
from apps.openflow.requests import Answer, Asked, Pending
from apps.openflow.switch import ConnectedSwitch, Rounds, Staged, Wait
from drivers.codecs.openflow.messages import (
    BUNDLE_COMMIT,
    BUNDLE_DISCARD,
    encode_barrier,
    encode_bundle_control,
)
from drivers.codecs.openflow.rules import (
    NO_BUNDLES,
    EncodedOnce,
    SwitchPorts,
    encode_changes,
    encode_end_of_round,
    encode_open_bundle,
    encode_round_again,
)
from hydra.failures import Failure, FailureKind
from hydra.forwarding.rules import ROUND_RULES, RuleChange, round_number, round_rule
from hydra.model import DatapathId

LOG = logging.getLogger("hydra.fleet")
_RULES_IN_TIME = 5000
_ROUNDS = 3
_BUNDLE, _STAGED_BUNDLE = 1, 2
"""Ids of bundles. A connection has at most one bundle sent from open to commit in one piece, and
one waiting bundle. So all bundles of a kind may share an id, and the encoding compiled for the id.
"""


class Tables(Asking):
    """Rules of the connected switches."""

    def apply(
        self,
        changes: Mapping[DatapathId, Sequence[RuleChange]],
        timeout_s: float,
        *,
        hurries: bool = False,
    ) -> dict[DatapathId, Failure | None]:
        """Change tables on many switches at once, with an atomic bundle each.

        A refused change may have taken effect in part (:class:`~hydra.failures.FailureKind`). For
        staged changes (:meth:`stage`), only the commit is sent. A switch without bundles changes
        rule by rule. Returns, by switch, None once an error-free barrier confirmed the change, else
        the failure. ``timeout_s`` is for changes of up to 5000 rules, and grows in proportion for
        larger changes. With ``hurries``, a few switches far later than the rest get less time.
        """
        timeout_s *= max(1.0, max(map(len, changes.values()), default=0) / _RULES_IN_TIME)

        bundled, one_by_one = (EncodedOnce(partial(_confirmed, how)) for how in (_BUNDLE, None))

        def encode(datapath: DatapathId, ports: SwitchPorts, xid: int) -> bytes:
            encoded = bundled if self._takes_bundles(datapath) else one_by_one
            return encoded(changes[datapath], ports, xid)

        committed = self._commit_staged(changes)
        others = [datapath for datapath in changes if datapath not in committed]
        results: dict[DatapathId, Answer] = {}

        def in_turn(datapaths: Iterable[DatapathId], *, hurries: bool = False) -> None:
            answers = self._in_turn(
                datapaths, encode, timeout_s, hurries=hurries, give_up=self._answer_or_set_aside
            )
            results.update(answers)

        in_turn(others, hurries=hurries)
        self._await([asked.reply for asked in committed.values()], timeout_s)
        for datapath, commit in committed.items():
            results[datapath] = self._answer_or_set_aside(datapath, commit, timeout_s)
        # A refused bundle may have waited too long. If a member was refused when added, the commit
        # has changed the rest: after a failure, the caller must doubt the switch's state.
        refused = [datapath for datapath in committed if _was_refused(results[datapath])]
        in_turn(refused)
        without = [datapath for datapath, result in results.items() if _knows_no_bundles(result)]
        self._remember_without_bundles(without)
        in_turn(without)
        return failures(results)

    def stage(self, changes: Mapping[DatapathId, Sequence[RuleChange]]) -> None:
        """Send the changes ahead of :meth:`apply`, which must get the same sequences.

        Tables stay as they are. Returns at once; earlier staged changes are discarded.
        """
        self._send_all(self._bundles(changes))

    def _bundles(self, changes: Mapping[DatapathId, Sequence[RuleChange]]) -> Iterator[Sending]:
        """Bundles without a commit, each noted at the switch."""
        encoded = EncodedOnce(
            lambda some, ports, xid: encode_open_bundle(some, ports, xid, _STAGED_BUNDLE)
        )
        for datapath, some in changes.items():
            switch = self._switch(datapath)
            if switch is None or switch.is_mute or not switch.takes_bundles:
                continue
            if (discard := self._discard_staged(switch)) is not None:
                yield switch.connection, discard
            staged = Staged(some, switch.ports, self._next_xid(), Reply())
            bundle = encoded(some, staged.ports, staged.xid)
            with self._lock:
                if self._switches.get(datapath) is not switch:
                    continue
                switch.staged = staged
                self._pending[staged.xid] = Pending(datapath, switch.connection, staged.reply)
            yield switch.connection, bundle

    def _takes_bundles(self, datapath: DatapathId) -> bool:
        switch = self._switch(datapath)
        return switch is None or switch.takes_bundles

    def _remember_without_bundles(self, datapaths: Iterable[DatapathId]) -> None:
        """Remember the lack of bundles until the switch connects again, perhaps with other
        software.
        """
        for datapath in datapaths:
            switch = self._switch(datapath)
            if switch is not None:
                switch.takes_bundles = False
            LOG.warning(
                "%s: a change takes effect rule by rule there, not at once: %s",
                self._name(datapath),
                NO_BUNDLES,
            )

    def _discard_staged(self, switch: ConnectedSwitch) -> bytes | None:
        """Forget a switch's staged bundle; returns the discard message, if any is needed."""
        with self._lock:
            staged, switch.staged = switch.staged, None
            if staged is None:
                return None
            self._pending.pop(staged.xid, None)
        return encode_bundle_control(_STAGED_BUNDLE, BUNDLE_DISCARD, self._next_xid())

    def _commit_staged(
        self, changes: Mapping[DatapathId, Sequence[RuleChange]]
    ) -> dict[DatapathId, Asked]:
        """Commit the staged changes among ``changes``."""
        committed: dict[DatapathId, Asked] = {}
        self._send_all(self._commits(changes, committed))
        return committed

    def _commits(
        self,
        changes: Mapping[DatapathId, Sequence[RuleChange]],
        committed: dict[DatapathId, Asked],
    ) -> Iterator[Sending]:
        """Commits of staged changes; each is entered in ``committed`` first."""
        for datapath, some in changes.items():
            with self._lock:
                switch = self._switches.get(datapath)
                staged = None if switch is None or switch.is_mute else switch.staged
                if switch is None or staged is None or staged.changes is not some:
                    continue
                if staged.ports != switch.ports:
                    continue  # the rules use outdated port numbers
                switch.staged = None
            xid = staged.xid
            commit = encode_bundle_control(_STAGED_BUNDLE, BUNDLE_COMMIT, xid)
            committed[datapath] = Asked(xid, staged.reply)
            yield switch.connection, commit + encode_barrier(xid)

    def await_rounds(
        self, datapaths: Collection[DatapathId], timeout_s: float
    ) -> frozenset[DatapathId]:
        """Wait until the given switches have looked at all their cached flows since now.

        Returns the switches without a report in time. A switch reports the end of :data:`_ROUNDS`
        looks. The last one or two of these looks began after now: a look may have been under way,
        and a second begun, before the switch received the first message.
        """
        waiting: dict[DatapathId, tuple[Rounds, Wait]] = {}
        self._send_all(self._first_looks(datapaths, waiting))
        self._await([wait.reply for _, wait in waiting.values()], timeout_s)
        with self._lock:
            for rounds, wait in waiting.values():
                if wait in rounds.waits:
                    rounds.waits.remove(wait)
        return frozenset(d for d in datapaths if d not in waiting or not waiting[d][1].reply.done())

    def _first_looks(
        self, datapaths: Iterable[DatapathId], waiting: dict[DatapathId, tuple[Rounds, Wait]]
    ) -> Iterator[Sending]:
        """Messages that begin a wait at each switch; other waits at the switch count the same
        looks.
        """
        for datapath in datapaths:
            with self._lock:
                switch = self._switches.get(datapath)
                if switch is None or switch.is_mute:
                    continue
                wait = Wait(_ROUNDS)
                switch.rounds.waits.append(wait)
                waiting[datapath] = switch.rounds, wait
                message = self._next_round(switch)
            yield switch.connection, message

    def rule_ended(self, datapath: int, connection: SwitchConnection, cookie: int) -> None:
        """Put the ended rule back; if a wait depends on the rule, begin the next look. Ended rules
        of other owners are left alone.
        """
        number = round_number(cookie)
        if number is None or datapath not in self._owned:
            return
        switch = self._used(datapath, connection)
        if switch is None:
            return
        with self._lock:
            rounds = switch.rounds
            waited_for = cookie == round_rule(rounds.number).cookie
            over = rounds.ended() if waited_for else []
            goes_on = waited_for and rounds.waits
            message = self._next_round(switch) if goes_on else self._round_again(number)
        self._deliver([(connection, message)])
        for wait in over:
            wait.reply.set_result(None)

    def _round_again(self, number: int) -> bytes:
        return encode_round_again(number, self._next_xid())

    def _next_round(self, switch: ConnectedSwitch) -> bytes:
        """Messages that make a switch look at all flows (any change does), and report the end."""
        rounds = switch.rounds
        again = self._round_again(rounds.number)
        rounds.number = (rounds.number + 1) % len(ROUND_RULES.rules)
        return again + encode_end_of_round(rounds.number, self._next_xid())


def _confirmed(
    bundle_id: int | None, changes: Sequence[RuleChange], ports: SwitchPorts, xid: int
) -> bytes:
    """Messages that make changes, and a barrier."""
    return encode_changes(changes, ports, xid, bundle_id) + encode_barrier(xid)


def _knows_no_bundles(answer: Answer) -> bool:
    return isinstance(answer, Failure) and answer.kind is FailureKind.NO_BUNDLES


def _was_refused(answer: Answer) -> bool:
    return isinstance(answer, Failure) and answer.kind is not FailureKind.UNKNOWN


def failures(answers: Mapping[DatapathId, Answer]) -> dict[DatapathId, Failure | None]:
    return {dp: answer if isinstance(answer, Failure) else None for dp, answer in answers.items()}
