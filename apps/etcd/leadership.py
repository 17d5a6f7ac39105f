"""Election of the leader among controllers: the leader's key in etcd hangs on the leader's lease.

A leader has to know the end of its leadership *before* another controller may lead. The leader
counts its lease from before the request, by a clock of its own, and for less time than etcd
granted: less :data:`DRIFT` for two unequal clocks, and :data:`MARGIN_S` for commands on the way to
devices. The clock goes on while the process or the machine is stopped. If a renewal fails until
then, the process ends.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from typing import Final

from apps.etcd.gateway import (
    Answer,
    Entry,
    Etcd,
    EtcdRefused,
    EtcdUnanswered,
    Json,
    get,
    has_value,
    is_absent,
    put,
    was_created,
)
from apps.etcd.survey import Survey
from apps.process.term import Replica, Replicas, Standby, StoreMember
from hydra.errors import HydraError, LifecycleError
from hydra.faults.facts import TakeoverRisk
from hydra.policy import EtcdSettings

LOG = logging.getLogger("hydra.leadership")
DRIFT: Final = 0.01
"""Bound on how much faster etcd's clock may run. NTP slews by 0.0005 at most."""
MARGIN_S: Final = 0.1
_RENEWALS: Final = 10
"""Renewals in the time of a lease. Renewals write nothing in etcd."""
_TRIES: Final = 6
"""Members of etcd that may keep a request, in turn, in the time of a lease."""
_LOOKS: Final = 10
"""Looks of a standby for a leader, in the time of a lease."""
_LOOK_S: Final = 2.0
_SOON_S: Final = 0.02
"""Between two looks of a standby while the leader ends."""
_TELL_S: Final = 0.5
_NOTICE_S: Final = 0.1
"""A look usually takes less time."""
_BEGINS: Final = "this controller begins to lead, and reads the journal: ask again in a moment"
_ENDS: Final = "this controller ends, and another controller leads soon: ask again in a moment"
_UNREPORTED: Final = {"id": "", "name": "unnamed", "url": "", "release": "", "since_unix_s": 0.0}
_SHIFT: Final = 28
"""Generations are revisions of etcd's, times 2**28. Without etcd, generations count from one, by
65,536 a start and two a second: they stay below for years. OpenFlow's have 64 bits.
"""
_MOST: Final = 1 << 62
"""Upper bound of a leader's generations. Switches compare modulo 2**64: a generation ahead of
another generation by half of 2**64 counts as behind.
"""


def boot_s() -> float:
    """Seconds since the machine's start, including sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _NoReplica(HydraError):
    """A controller's key in etcd does not name a controller."""


class Leadership:
    """A :class:`apps.process.term.Term`; :meth:`start` makes the controller a candidate.

    ``on_lead`` is called once in a separate thread, when this controller leads. ``on_lost`` is
    called at the end of a lease without renewal: nothing may be done any more, and the call must
    not return. ``end`` ends the process as an operator does; ``switches`` counts connected
    switches.
    """

    def __init__(
        self,
        settings: EtcdSettings,
        name: str,
        url: str,
        release: str,
        on_lead: Callable[[], None],
        on_lost: Callable[[str], None],
        end: Callable[[HydraError], None],
        switches: Callable[[], int],
        digest: Callable[[], str] = str,
    ) -> None:
        """``digest`` of the common part of all controllers' configuration files."""
        self._settings = settings
        self._on_lead = on_lead
        self._handle_loss = on_lost
        self._end = end
        self._switches = switches
        self._me = Replica(uuid.uuid4().hex, name, url, release, time.time())
        self._try_s = settings.lease_s / _TRIES
        self._etcd = Etcd(settings, try_s=self._try_s)
        self._observer = Etcd(settings)
        self._patience_s = settings.lease_s / 2
        self._lease: int | None = None
        self._until_s = 0.0
        """End of the lease for this controller, by :func:`boot_s`."""
        self._granted_s = 0.0
        """Time of the request of the last answered renewal."""
        self._created: int | None = None
        """The revision of etcd that made this controller the leader; None on standby."""
        self._exceeding = threading.Lock()
        self._floor = 0
        """Summand of generations from etcd: an earlier store had higher generations."""
        self._begun = self._ends = False
        self._closing = threading.Event()
        self._renewed = threading.Event()
        self._thread = threading.Thread(target=self._stand, name="lease", daemon=True)
        self._watch = threading.Thread(target=self._watch_end, name="lease-end", daemon=True)
        self._trouble: tuple[float, str] | None = None
        """Start of the present trouble with etcd, in Unix seconds, and the last error."""
        self._asked_s: float | None = None
        """When the renewal under way began, by :func:`boot_s`; None: there is none."""
        self._survey = Survey(
            settings, self._me.id, name, lambda: self._lease, lambda: not self.over(), digest
        )
        self._leader_seen: Replica | None = None
        self._leader_ends = False
        """True if the leader is about to give its lease back."""

    # -- the term ---------------------------------------------------------------------------------

    is_shared = True

    @property
    def leads(self) -> bool:
        return self._created is not None

    @property
    def generation(self) -> int | None:
        created = self._created
        return None if created is None else self._floor + (created << _SHIFT)

    def exceed(self, generation: int) -> bool:
        """As :meth:`apps.process.term.Term.exceed`.

        The floor only grows, and only the leader raises the floor. The next leader reads the floor
        in the transaction of its election, and so begins beyond all generations of this leader.
        """
        with self._exceeding:
            return self._exceed(generation)

    def _exceed(self, generation: int) -> bool:
        created, floor = self._created, self._floor
        if created is None or self.over() or generation >= _MOST:
            return False
        wanted = ((generation >> _SHIFT) + 1 - created) << _SHIFT
        if wanted <= floor:
            return True
        key, leads = self._floor_key, was_created(self._leader_key, created)
        before = has_value(key, str(floor)) if floor else is_absent(key)
        looks = [get(key), get(self._leader_key)]
        try:
            answer = self._observer.transaction(
                [before, leads], [put(key, str(wanted)), *looks], looks, patience_s=_LOOK_S
            )
        except (EtcdRefused, EtcdUnanswered) as error:
            LOG.warning(
                "generations are not raised beyond the generations of an earlier store: %s", error
            )
            return False
        found, leader = answer.found
        if not leader or leader[0].created != created:
            return False
        # Of this attempt, or of an attempt with a lost answer.
        self._floor = max(self._floor, _floor(found))
        LOG.warning(
            "switches know generations of an earlier store: generations of this store go on beyond"
        )
        return self._floor >= wanted

    def over(self) -> bool:
        return self.remaining_s() <= 0

    def remaining_s(self) -> float:
        return 0.0 if self._created is None else max(0.0, self._until_s - boot_s())

    def look_at_once(self) -> None:
        threading.Thread(target=self._look_at_once, name="lease-look", daemon=True).start()

    def _look_at_once(self) -> None:
        """End this controller if etcd names another leader; without an answer, the lease
        decides.
        """
        with suppress(EtcdRefused, EtcdUnanswered):
            if self.leads and not self._ask_etcd(self.conditions(), [], []).succeeded:
                self._handle_loss(
                    f"the key {self._leader_key} of etcd no longer belongs to this controller"
                )

    def conditions(self) -> tuple[Json, ...]:
        """Conditions of an etcd transaction that hold while this controller leads."""
        if self._created is None:
            raise RuntimeError("a standby writes nothing")
        return (was_created(self._leader_key, self._created),)

    def note_begun(self) -> None:
        """Note that this controller has read the journal, and takes requests."""
        self._begun = True

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        self._survey.start()

    def take_no_more(self) -> None:
        self._ends = True

    def resign(self) -> None:
        self._closing.set()
        self._renewed.set()
        for thread in (self._thread, self._watch):
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()
        self._created = None

    def close(self) -> None:
        """Give the lease back, so that another controller leads at once; optional, repeatable."""
        self.resign()
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                self._etcd.ask("/lease/revoke", {"ID": str(lease)}, patience_s=self._patience_s)
            except (EtcdRefused, EtcdUnanswered) as error:
                LOG.warning("the lease is not given back, and ends by itself: %s", error)
        self._etcd.close()
        self._observer.close()
        self._survey.stop()

    def risks(self) -> Sequence[TakeoverRisk]:
        return self._survey.risks

    def standby(self) -> Standby | None:
        if not self.over():
            if self._ends:
                return Standby(_ENDS)
            return None if self._begun else Standby(_BEGINS)
        seen, trouble = self._leader_seen, self._trouble
        leader = None if seen is None or seen.id == self._me.id else seen
        if trouble is not None:
            words = f"this controller stands by, and does not know the leader: {trouble[1]}"
        elif leader is None:
            words = "this controller stands by, and no controller leads: ask again in a moment"
        else:
            words = f"this controller stands by, and {leader.name} leads: ask at {leader.url}"
        return Standby(words, leader, trouble)

    def replicas(self) -> Replicas:
        store = self._members()
        try:
            answer = self._observer.transaction(
                [], [get(self._leader_key), get(*self._replicas)], patience_s=_LOOK_S
            )
        except (EtcdRefused, EtcdUnanswered) as error:
            return Replicas(None, (), store, str(error))
        try:
            leader = _replica(answer.found[0][0]) if answer.found[0] else None
            registered = [_replica(entry) for entry in answer.found[1]]
        except _NoReplica as error:
            return Replicas(None, (), store, str(error))
        standing_by = []
        for replica in registered:
            if leader is not None and replica.id == leader.id:
                leader = replace(leader, switches=replica.switches)  # as of now
            else:
                standing_by.append(replica)
        return Replicas(
            leader, tuple(sorted(standing_by, key=lambda replica: replica.since_unix_s)), store
        )

    def hand_over(self) -> tuple[Replica, ...]:
        found = self.replicas()
        if not found.standing_by:
            raise LifecycleError(
                f"no controller stands by to lead{f' ({found.problem})' if found.problem else ''}: "
                "start another controller with the same store first"
            )
        mine = self._switches()
        for replica in found.standing_by:
            if replica.switches is not None and replica.switches < mine:
                raise LifecycleError(
                    f"{replica.name} has {replica.switches} of the {mine} switches connected "
                    f"here: hand over once the switches have found {replica.name}, "
                    "within seconds if the switches name the controller"
                )
        names = ", ".join(replica.name for replica in found.standing_by)
        self._end(HydraError(f"handed over, as requested, to a controller of {names}"))
        return found.standing_by

    def end_soon(self) -> None:
        lease = self._lease
        if lease is None or self.over():
            return
        ending = put(self._ending_key, self._me.id, lease)
        # Otherwise standbys would keep their slow pace.
        with suppress(EtcdRefused, EtcdUnanswered, _NoReplica):
            (registered,) = self._observer.transaction(
                self.conditions(), [ending, get(*self._replicas)], patience_s=_TELL_S
            ).found or ((),)
            if any(_replica(entry).id != self._me.id for entry in registered):
                self._closing.wait(self._look_s + _NOTICE_S)

    def _members(self) -> tuple[StoreMember, ...]:
        member_names = dict(self._observer.members())
        newest = max(
            (
                int(member_name["raftIndex"])
                for member_name in member_names.values()
                if member_name is not None
            ),
            default=0,
        )
        return tuple(
            StoreMember(endpoint, False)
            if member is None
            else StoreMember(
                endpoint,
                True,
                member.get("leader") == member["header"]["member_id"],
                member["version"],
                int(member.get("dbSize", 0)) / 1e6,
                newest - int(member["raftAppliedIndex"]),
                tuple(member.get("errors", ())),
            )
            for endpoint, member in member_names.items()
        )

    # -- the threads ------------------------------------------------------------------------------

    @property
    def _leader_key(self) -> str:
        return f"{self._settings.prefix}leader"

    @property
    def _floor_key(self) -> str:
        return f"{self._settings.prefix}floor"

    @property
    def _ending_key(self) -> str:
        """Key of a leader about to end; removed with the leader's lease."""
        return f"{self._settings.prefix}ending"

    @property
    def _replicas(self) -> tuple[str, str]:
        """Range of the keys of all controllers."""
        first = f"{self._settings.prefix}replicas/"
        return first, f"{first[:-1]}0"

    @property
    def _look_s(self) -> float:
        """Seconds between two looks of a standby, unless the leader ends."""
        return self._settings.lease_s / _LOOKS

    def _stand(self) -> None:
        look_s = self._look_s
        renew_s = self._settings.lease_s / _RENEWALS
        renewed_s = float("-inf")
        warned = False
        while not self._closing.is_set():
            pause_s = renew_s
            other_leads = False
            try:
                if not self.leads:
                    other_leads = self._look()
                if boot_s() - renewed_s >= renew_s:
                    asked_s = boot_s()
                    with self._asking():
                        self._renew()
                    renewed_s = asked_s
                if not self.leads and not other_leads:
                    self._try_to_lead()
                self._trouble, warned = None, False
            except (EtcdRefused, EtcdUnanswered, _NoReplica) as error:
                since_s, _ = self._trouble or (time.time(), "")
                if not warned:
                    LOG.warning("the lease is not renewed: %s", error)
                warned = True
                self._trouble = None if other_leads else (since_s, str(error))
                pause_s = _SOON_S  # etcd elects a leader within a second or two, of a lease of two
            if not self.leads:
                pause_s = _SOON_S if self._leader_ends else look_s
            self._closing.wait(pause_s)

    def _renew(self) -> None:
        asked_s = boot_s()
        if self._lease is None:
            self._grant(asked_s)
            return
        # By a single member, so that the lease counts from the request to the answering member.
        kept = {"ID": str(self._lease)}
        answer = self._etcd.ask("/lease/keepalive", kept, patience_s=self._try_s)
        granted_s = int(answer.get("result", {}).get("TTL", 0))
        if granted_s > 0:
            self._note_until(asked_s, granted_s)
            if self.leads and not self._ask_etcd(self.conditions(), [], []).succeeded:
                self._handle_loss(
                    f"the key {self._leader_key} of etcd no longer belongs to this controller"
                )
            self._notify_switches()
        elif self.leads:
            self._handle_loss("etcd has ended the lease of this controller")
        else:
            self._lease = None
            self._grant(boot_s())

    def _grant(self, asked_s: float) -> None:
        wanted = {"TTL": str(self._settings.lease_s), "ID": "0"}
        answer = self._etcd.ask("/lease/grant", wanted, patience_s=self._patience_s)
        lease, granted_s = int(answer["ID"]), int(answer["TTL"])
        self._publish(lease)
        self._lease = lease
        self._note_until(asked_s, granted_s)

    def _publish(self, lease: int) -> None:
        """Publish this controller, with its number of connected switches."""
        me = replace(self._me, switches=self._switches())
        self._ask_etcd([], [put(f"{self._settings.prefix}replicas/{me.id}", _text(me), lease)])
        self._me = me

    def _notify_switches(self) -> None:
        if self._lease is not None and self._switches() != self._me.switches:
            self._publish(self._lease)

    def _note_until(self, asked_s: float, granted_s: int) -> None:
        self._granted_s = asked_s
        self._until_s = asked_s + granted_s * (1 - DRIFT) - MARGIN_S
        self._renewed.set()

    def _look(self) -> bool:
        """Read the leader; True for another controller. An etcd without space still answers."""
        answer = self._ask_etcd([], [get(self._leader_key), get(self._ending_key)])
        found, self._leader_ends = answer.found[0], bool(answer.found[1])
        if not found:
            return False
        self._leader_seen = _replica(found[0])
        return self._leader_seen.id != self._me.id

    def _try_to_lead(self) -> None:
        if self._lease is None:
            return
        key, me = self._leader_key, replace(self._me, since_unix_s=time.time())
        looks = [get(key), get(self._ending_key), get(self._floor_key)]
        answer = self._ask_etcd([is_absent(key)], [put(key, _text(me), self._lease), *looks], looks)
        found, self._leader_ends = answer.found[0][0], bool(answer.found[1])
        self._leader_seen = _replica(found)
        if self._leader_seen.id != self._me.id:
            return
        if boot_s() >= self._until_s:
            self._handle_loss("the lease ended before etcd answered that this controller leads")
        self._floor = _floor(answer.found[2])
        self._created = found.created
        LOG.info("this controller leads, by revision %s of etcd", found.created)
        self._watch.start()
        threading.Thread(target=self._on_lead, name="leader", daemon=True).start()

    def _watch_end(self) -> None:
        while not self._closing.is_set():
            self._renewed.clear()
            remaining_s = self._until_s - boot_s()
            if remaining_s <= 0:
                why = self._why_not_renewed(-remaining_s)
                self._handle_loss(f"the lease of {self._settings.lease_s} s was not renewed: {why}")
            self._renewed.wait(max(0.0, remaining_s))

    def _why_not_renewed(self, late_s: float) -> str:
        """``late_s``: how long ago the lease ended."""
        asked_s = self._asked_s
        if self._trouble is not None:
            return self._trouble[1]
        if late_s > MARGIN_S:
            return f"the process did not run when the lease ended, {late_s:.1f} s ago"
        late = "the thread that renews the lease did not run in time"
        if asked_s is None:
            return late
        silent = f"{self._etcd.name} has not answered for {boot_s() - asked_s:.1f} s"
        in_time = asked_s - self._granted_s < 2 * self._settings.lease_s / _RENEWALS
        return silent if in_time else f"{late}, and {silent}"

    def _ask_etcd(
        self, compare: Sequence[Json], success: Sequence[Json], failure: Sequence[Json] = ()
    ) -> Answer:
        return self._etcd.transaction(compare, success, failure, patience_s=self._patience_s)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        self._asked_s = boot_s()
        try:
            yield
        finally:
            self._asked_s = None


def _floor(found: Sequence[Entry]) -> int:
    return int(found[0].value) if found else 0


def _text(replica: Replica) -> str:
    return json.dumps(asdict(replica))


def _replica(entry: Entry) -> Replica:
    """The replica in ``entry``; another release may have written more fields, or fewer.

    Raises _NoReplica.
    """
    try:
        document = dict(json.loads(entry.value))
    except (ValueError, TypeError) as error:
        raise _NoReplica(
            f"the key {entry.key} of etcd has content that no controller writes: delete the key"
        ) from error
    known = {
        field.name: document[field.name] for field in fields(Replica) if field.name in document
    }
    return Replica(**{**_UNREPORTED, **known})


def leader_name(settings: EtcdSettings) -> str | None:
    """Name of the present leader; None without a leader. Raises EtcdRefused, EtcdUnanswered."""
    etcd = Etcd(settings)
    try:
        found = etcd.transaction([], [get(f"{settings.prefix}leader")]).found[0]
    finally:
        etcd.close()
    return _replica(found[0]).name if found else None
