"""Election of the leader among controllers: the leader's key in etcd hangs on the leader's lease.

A leader has to know the end of its leadership *before* another controller may lead. The leader
counts its lease from before the request, by a clock of its own, and for less time than etcd
granted: less :data:`DRIFT` for two unequal clocks, and :data:`MARGIN_S` for commands on the way to
devices. The clock goes on while the process or the machine is stopped. If a renewal fails until
then, the process ends.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from apps.etcd.gateway import (
    Answer,
    Etcd,
    EtcdRefused,
    EtcdUnanswered,
    Json,
    get,
    is_absent,
    put,
    was_created,
)
from apps.etcd.generations import Generations
from apps.etcd.roster import NoReplica, Roster, replica_of, text_of
from apps.etcd.survey import Survey
from apps.process.term import Replica, Replicas, Standby
from hydra.errors import HydraError
from hydra.faults.facts import TakeoverRisk
from hydra.settings import EtcdSettings

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
_SOON_S: Final = 0.02
"""Between two looks of a standby while the leader ends."""
_TELL_S: Final = 0.5
_NOTICE_S: Final = 0.1
"""A look usually takes less time."""
_BEGINS: Final = "this controller begins to lead, and reads the journal: ask again in a moment"
_ENDS: Final = "this controller ends, and another controller leads soon: ask again in a moment"


def boot_s() -> float:
    """Seconds since the machine's start, including sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


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
        self._roster = Roster(settings.prefix, self._observer)
        self._generations = Generations(self._roster, self._observer)
        self._patience_s = settings.lease_s / 2
        self._look_s = settings.lease_s / _LOOKS
        """Seconds between two looks of a standby, unless the leader ends."""
        self._lease: int | None = None
        self._until_s = 0.0
        """End of the lease for this controller, by :func:`boot_s`."""
        self._granted_s = 0.0
        """Time of the request of the last answered renewal."""
        self._created: int | None = None
        """The revision of etcd that made this controller the leader; None on standby."""
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
        return None if created is None else self._generations.of(created)

    def exceed(self, generation: int) -> bool:
        """As :meth:`apps.process.term.Term.exceed`."""
        created = self._created
        if created is None or self.over():
            return False
        return self._generations.exceed(generation, created)

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
            self._check_leads()

    def _check_leads(self) -> None:
        """End this controller if etcd names another leader."""
        if self.leads and not self._ask_etcd(self.conditions(), [], []).succeeded:
            key = self._roster.leader_key
            self._handle_loss(f"the key {key} of etcd no longer belongs to this controller")

    def conditions(self) -> tuple[Json, ...]:
        """Conditions of an etcd transaction that hold while this controller leads."""
        if self._created is None:
            raise RuntimeError("a standby writes nothing")
        return (was_created(self._roster.leader_key, self._created),)

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
        return self._roster.read()

    def hand_over(self) -> tuple[Replica, ...]:
        heirs = self._roster.heirs(self._switches())
        names = ", ".join(replica.name for replica in heirs)
        self._end(HydraError(f"handed over, as requested, to a controller of {names}"))
        return heirs

    def end_soon(self) -> None:
        lease = self._lease
        if lease is None or self.over():
            return
        ending = put(self._roster.ending_key, self._me.id, lease)
        # Otherwise standbys would keep their slow pace.
        with suppress(EtcdRefused, EtcdUnanswered, NoReplica):
            (registered,) = self._observer.transaction(
                self.conditions(), [ending, get(*self._roster.range)], patience_s=_TELL_S
            ).found or ((),)
            if any(replica_of(entry).id != self._me.id for entry in registered):
                self._closing.wait(self._look_s + _NOTICE_S)

    # -- the threads ------------------------------------------------------------------------------

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
                    self._asked_s = asked_s = boot_s()
                    try:
                        self._renew()
                    finally:
                        self._asked_s = None
                    renewed_s = asked_s
                if not self.leads and not other_leads:
                    self._try_to_lead()
                self._trouble, warned = None, False
            except (EtcdRefused, EtcdUnanswered, NoReplica) as error:
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
            self._check_leads()
            if self._switches() != self._me.switches:
                self._publish(self._lease)
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
        self._ask_etcd([], [put(self._roster.key_of(me), text_of(me), lease)])
        self._me = me

    def _note_until(self, asked_s: float, granted_s: int) -> None:
        self._granted_s = asked_s
        self._until_s = asked_s + granted_s * (1 - DRIFT) - MARGIN_S
        self._renewed.set()

    def _look(self) -> bool:
        """Read the leader; True for another controller. An etcd without space still answers."""
        answer = self._ask_etcd([], [get(self._roster.leader_key), get(self._roster.ending_key)])
        found, self._leader_ends = answer.found[0], bool(answer.found[1])
        if not found:
            return False
        self._leader_seen = replica_of(found[0])
        return self._leader_seen.id != self._me.id

    def _try_to_lead(self) -> None:
        if self._lease is None:
            return
        key, me = self._roster.leader_key, replace(self._me, since_unix_s=time.time())
        looks = [get(key), get(self._roster.ending_key), get(self._roster.floor_key)]
        answer = self._ask_etcd(
            [is_absent(key)], [put(key, text_of(me), self._lease), *looks], looks
        )
        found, self._leader_ends = answer.found[0][0], bool(answer.found[1])
        self._leader_seen = replica_of(found)
        if self._leader_seen.id != self._me.id:
            return
        if boot_s() >= self._until_s:
            self._handle_loss("the lease ended before etcd answered that this controller leads")
        self._generations.begin(answer.found[2])
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
