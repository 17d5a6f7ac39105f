"""Books in random use, with every answer compared with the referee's."""

import random
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from math import inf, isclose

from hydra.errors import AdmissionError
from hydra.lifecycle import ReservationState as State
from hydra.reservations.book import ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.modification import Modification
from hydra.reservations.quotas import Quota
from hydra.reservations.reservation import HOLDING_STATES, ReservationRequest, ServiceClass

from .referee import SLACK_MBPS, Promise, Referee
from .test_calendar import fabric_of

NOTICE_S = 2.0
QUOTA = Quota(max_reservations=6, max_mbps=150.0, max_priority=3)
SHAPES = [(3, 1, 1), (3, 2, 1), (3, 1, 2), (4, 1, 1), (4, 2, 1)]


@lru_cache(maxsize=1024)
def referee_of(shape, missing, server_mbps, max_hops, paths_per_pair):
    racks, planes, per_plane = shape
    fabric = fabric_of(racks, planes, missing, per_plane)
    return Referee(replace(fabric, server_rate_mbps=server_mbps), max_hops, paths_per_pair)


class Play:
    """A book on a small random fabric; ``counts`` has the numbers of events.

    Times are whole seconds, so that begins and ends coincide often. Each method raises
    AssertionError if the book contradicts the referee.
    """

    def __init__(self, seed):
        self.chance = random.Random(seed)
        shape = self.chance.choice(SHAPES)
        ports = shape[0] * shape[1] * shape[2]
        missing = frozenset(self.chance.sample(range(ports), self.chance.choice([0, 0, 1])))
        server_mbps = self.chance.choice([60.0, 100.0])
        self.max_hops = self.chance.choice([1, 2, 3])
        self.paths_per_pair = self.chance.choice([1, 2, 16])
        self.referee = referee_of(shape, missing, server_mbps, self.max_hops, self.paths_per_pair)
        self.fabric = self.referee.fabric
        self.book = ReservationBook(self.fabric)
        self.now = 0.0
        self.made = 0
        self.counts = Counter()

    def run(self, steps):
        kinds = [self.ask, self.series, self.preview, self.modify, self.release, self.reroute]
        weights = [10, 2, 1, 2, 2, 1]
        for step in self.chance.choices(kinds, weights, k=steps):
            self.now += self.chance.choice([0.0, 0.0, 1.0, 2.0])
            if self.chance.random() < 0.7:  # otherwise the conductor is late
                self.keep_time()
            step()
            broken = self.referee.broken(self.promises(), self.now)
            assert not broken, f"promised twice: {broken}"
        return self.counts

    def booked(self):
        return [one for one in self.book if one.is_booked]

    def promises(self):
        return [self.referee.promise(one) for one in self.booked()]

    def snapshot(self):
        return {one.id: one for one in self.book}

    def keep_time(self):
        """The conductor's work over time: end expired and begin due reservations."""
        for one in self.book.expired(self.now):
            gave_way = self.book.get(one).preempted_by is not None
            self.book.transition(one, State.PREEMPTED if gave_way else State.EXPIRED)
        for one in self.book.due(self.now):
            self.book.transition(one, State.ACTIVATING)
        for one in self.book.active():
            if one.state is State.ACTIVATING:
                self.book.transition(one.id, State.ACTIVE)

    # -- what may be asked -------------------------------------------------------------------------

    def request(self):
        pick = self.chance.choice
        service = self.chance.choices(list(ServiceClass), [2, 6, 2])[0]
        src, dst = self.chance.sample(self.fabric.racks, 2)
        mbps = pick([10.0, 25.0, 40.0, 55.0, 70.0, 100.0, 120.0])
        shared = service is ServiceClass.SHARED
        owned = {"owner": "tina", "quota": QUOTA} if self.chance.random() < 0.2 else {}
        return ReservationRequest(
            pick([src.name, *(server.name for server in src.servers)]),
            pick([dst.name, *(server.name for server in dst.servers)]),
            mbps,
            start_unix_s=pick([None, None, self.now + self.chance.randrange(1, 8)]),
            duration_s=pick([None, 1.0, 2.0, 5.0, 9.0]),
            hold_s=pick([None] * 8 + [3.0]),
            minimum_mbps=mbps * pick([0.1, 0.5, 1.0]) if shared and pick([True, False]) else None,
            priority=pick([0, 0, 0, 1, 2, 3]),
            service=service,
            **owned,
        )

    def limits(self):
        """Blocked ports, and standing paths without a reservation."""
        chance = self.chance
        blocked = frozenset(p.id for p in self.fabric.ports if chance.random() < 0.04)
        standing = ()
        if chance.random() < 0.3:
            standing = (chance.choice(self.referee.paths),)
        return self.within(blocked, standing)

    def within(self, blocked=frozenset(), standing=()):
        return AdmissionLimits(self.max_hops, blocked, standing, paths_per_pair=self.paths_per_pair)

    # -- the rule ----------------------------------------------------------------------------------

    def verdict(self, request, limits):
        """(Mb/s, start) to which ``request`` is entitled, and the rank below which others may have
        to give way (None: no preemption). None: to be refused.
        """
        start = self.now if request.start_unix_s is None else request.start_unix_s
        for begins, rank in self.attempts(request, start):
            limit = self.limit_mbps(request, begins)
            if limit is None:
                return None
            fits = self.fitting_mbps(request, begins, rank, limits)
            if fits >= request.least_mbps - SLACK_MBPS:
                return min(fits, limit) if rank is None else request.least_mbps, begins, rank
        return None

    def attempts(self, request, start):
        """Beside all promises; else in place of best effort; else, with notice, in place of lower
        priorities.
        """
        yield start, None
        if request.service is not ServiceClass.BEST_EFFORT and request.hold_s is None:
            yield start, 0
            if request.priority:
                yield max(start, self.now + NOTICE_S), request.priority

    def fitting_mbps(self, request, start, rank, limits):
        """Beside all promises except those below ``rank``."""
        promised = [self.referee.promise(one, self.now) for one in self.booked()]
        if rank is not None:
            promised = [one for one in promised if one.rank >= rank]
        blocked = limits.blocked if start <= self.now else frozenset()
        return self.referee.most_mbps(self.wanted(request, start), promised, blocked)

    def wanted(self, request, start):
        racks = [self.rack_of(name) for name in (request.src, request.dst)]
        return Promise(
            "wanted",
            tuple(sorted(racks)),
            None,
            request.least_mbps,
            start,
            inf if request.duration_s is None else start + request.duration_s,
            request.service is ServiceClass.GUARANTEED,
            frozenset({request.src, request.dst} & self.fabric.server_by_name.keys()),
        )

    def rack_of(self, name):
        return next(
            rack.id
            for rack in self.fabric.racks
            if name in (rack.name, *(server.name for server in rack.servers))
        )

    def limit_mbps(self, request, start):
        """The highest rate by the request and its quota; None: not even the least."""
        most = 0.0 if request.service is ServiceClass.BEST_EFFORT else request.bandwidth_mbps
        if request.quota is None:
            return most
        wanted = self.wanted(request, start)
        mine = [one for one in self.booked() if one.owner == request.owner]
        if len(mine) >= request.quota.max_reservations:
            return None
        meeting = [
            one for one in (self.referee.promise(m, self.now) for m in mine) if one.meets(wanted)
        ]
        moments = {start, *(one.start for one in meeting if one.start > start)}
        peak = max(sum(o.mbps for o in meeting if o.start <= at < o.end) for at in moments)
        left = max(0.0, request.quota.max_mbps - peak)
        return None if left < request.least_mbps - SLACK_MBPS else min(most, left)

    # -- what is done ------------------------------------------------------------------------------

    def ask(self):
        new = self.add(self.request(), self.limits())
        if new is not None:
            self.book.settle(new.id)
        if new is not None and new.state is State.HELD and self.chance.random() < 0.5:
            self.book.transition(new.id, State.COMMITTED)
            self.book.begin(new.id, self.now)

    def add(self, request, limits, may_refuse=True):
        """Ask the book and the referee; None: rightly refused."""
        before = self.snapshot()
        due = self.verdict(request, limits)
        self.made += 1
        name = f"n{self.made}"
        try:
            new = self.book.add(name, request, self.now, limits, notice_s=NOTICE_S)
        except AdmissionError as error:
            assert due is None, f"refused what fits ({due}): {request}: {error}"
            assert may_refuse, f"an alternative that is none: {request}: {error}"
            assert self.snapshot() == before
            self.counts["refused"] += 1
            if request.quota is None:
                self.check_alternatives(request, limits, error)
            return None
        assert due is not None, f"admitted what does not fit: {new}"
        mbps, start, rank = due
        assert isclose(new.promised_mbps, mbps, abs_tol=SLACK_MBPS), (new, due)
        assert new.starts_unix_s == start, (new, due)
        assert new.booked.hops <= self.max_hops
        if start <= self.now:
            ends = {end for c in new.booked.circuits for end in (c.a, c.b)}
            assert ends.isdisjoint(limits.blocked)
        self.check_displaced(before, new, rank)
        self.counts["admitted"] += 1
        self.counts["given way"] += rank is not None
        return new

    def check_displaced(self, before, new, rank):
        displaced = {one.id for one in self.book.displaced(new.id)}
        after = self.snapshot()
        assert {name for name, one in after.items() if before.get(name) != one} == {
            new.id,
            *displaced,
        }
        if rank is None:
            assert not displaced
        beside = self.promises()
        for name in displaced:
            old, one = before[name], after[name]
            best_effort = old.service is ServiceClass.BEST_EFFORT
            assert best_effort or old.priority < rank, (old, new)
            assert one.preempted_by == new.id
            if old.state in HOLDING_STATES and new.state is not State.ACTIVATING:
                assert one.expires_unix_s == new.starts_unix_s
            else:
                assert one.state is State.PREEMPTED
            kept = [other for other in beside if other.id != name]
            both = [*kept, self.referee.promise(old, self.now)]
            assert self.referee.broken(both, self.now), f"need not have given way: {old}"

    def check_alternatives(self, request, limits, error):
        """The alternatives of a refusal are available, with the highest possible rate."""
        if not request.priority and request.least_mbps:
            start = self.now if request.start_unix_s is None else request.start_unix_s
            fits = self.fitting_mbps(request, start, None if request.hold_s else 0, limits)
            offered = [one.bandwidth_mbps for one in error.alternatives if one.start_unix_s is None]
            assert isclose(sum(offered), max(fits, 0.0), abs_tol=SLACK_MBPS), (request, fits, error)
        for one in error.alternatives:
            start = one.start_unix_s if one.start_unix_s is not None else request.start_unix_s
            other = replace(
                request,
                bandwidth_mbps=one.bandwidth_mbps,
                minimum_mbps=None,
                start_unix_s=start,
                end_unix_s=one.end_unix_s or request.end_unix_s,
            )
            if request.service is ServiceClass.BEST_EFFORT:
                other = replace(other, bandwidth_mbps=request.bandwidth_mbps)
            taken = self.add(other, limits, may_refuse=False)
            self.book.remove(taken.id)
            self.counts["alternatives"] += 1

    def preview(self):
        """An admission taken back leaves no trace."""
        before = self.snapshot()
        new = self.add(self.request(), self.limits())
        if new is not None:
            self.book.remove(new.id)
        assert self.snapshot() == before

    def series(self):
        """A group at recurring times, all or none."""
        before = self.snapshot()
        every_s = self.chance.choice([2.0, 3.0])
        first = replace(
            self.request(),
            start_unix_s=self.now + self.chance.randrange(1, 4),
            duration_s=self.chance.choice([1.0, every_s]),
            hold_s=None,
        )
        members = []
        for number in range(3):
            start = first.start_unix_s + number * every_s
            new = self.add(replace(first, start_unix_s=start), self.within())
            if new is None:
                for one in reversed(members):
                    self.book.remove(one.id)
                assert self.snapshot() == before
                return
            members.append(new)
        for one in members:
            self.book.settle(one.id)
        self.counts["series"] += 1

    def modify(self):
        """Another rate or end, on the same path; without circuits, also on another path."""
        if not (booked := [one for one in self.booked() if one.preempted_by is None]):
            return
        old = self.chance.choice(booked)
        begins = max(old.starts_unix_s, self.now)
        change = Modification(
            bandwidth_mbps=self.chance.choice([None, 10.0, 60.0, 100.0]),
            end_unix_s=self.chance.choice([None, begins + self.chance.randrange(1, 9)]),
        )
        end = old.expires_unix_s if change.end_unix_s is None else change.end_unix_s
        if end is not None and end <= begins:
            return
        as_asked = replace(
            old,
            bandwidth_mbps=change.bandwidth_mbps or old.bandwidth_mbps,
            expires_unix_s=end,
            starts_unix_s=begins,
        )
        wanted = self.referee.promise(as_asked)
        others = [self.referee.promise(one, self.now) for one in self.booked() if one.id != old.id]
        enough = wanted.mbps - SLACK_MBPS
        stays = self.referee.most_mbps(wanted, others) >= enough
        moves = self.referee.most_mbps(replace(wanted, path=None), others) >= enough
        before = self.snapshot()
        try:
            new = self.book.modify(old.id, change, self.now, self.limits())
        except AdmissionError as error:
            assert not stays, f"refused a change that fits: {old}, {change}: {error}"
            assert old.holds_capacity or not moves, f"refused: {old}, {change}: {error}"
            assert self.snapshot() == before
            self.counts["unchanged"] += 1
            return
        assert stays or (moves and not old.holds_capacity), f"changed what does not fit: {new}"
        assert not stays or new.booked == old.booked
        self.counts["changed"] += 1

    def release(self):
        if not (booked := self.booked()):
            return
        one = self.chance.choice(booked)
        if one.holds_capacity:
            self.book.transition(one.id, State.RELEASING)
            self.book.transition(one.id, State.RELEASED)
        else:
            self.book.transition(one.id, State.CANCELLED)

    def reroute(self):
        """Ports die: reservations without another path fail, and no others."""
        self.keep_time()
        if not (booked := self.booked()):
            return
        pair = self.chance.choice(booked).pair
        limits = replace(self.limits(), standing=())
        before = self.snapshot()
        _, refused = self.book.reroute(pair, self.now, limits)
        present = [
            self.referee.promise(one, self.now) for one in self.booked() if one.id not in refused
        ]
        for name in refused:
            self.book.transition(name, State.FAILED)
            old = before[name]
            least = 0.0 if old.service is ServiceClass.BEST_EFFORT else old.bandwidth_mbps
            wanted = replace(
                self.referee.promise(old),
                path=None,
                mbps=least,
                start=max(old.starts_unix_s, self.now),
            )
            blocked = limits.blocked if old.holds_capacity else frozenset()
            fits = self.referee.most_mbps(wanted, present, blocked)
            assert fits < least - SLACK_MBPS, f"failed for nothing: {old}"
        self.counts["rerouted"] += 1
