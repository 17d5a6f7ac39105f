"""Jobs, duties and changes at any moment: no starvation, no priority inversion.

The shipped job queue and scheduler, driven like by the conductor, on devices whose replies come
late or never. The lease may end, after which no duty begins and requested jobs are done, or the
controller dies. Replay as in :mod:`tests.unit.reconfiguration.seeds`.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import pytest

from hydra.errors import LifecycleError
from hydra.lifecycle import JobState
from hydra.reconfiguration.commands import Batch, Outcome, Pause
from hydra.reconfiguration.job_queue import MOST_URGENT, Duty, JobQueue, Turn
from hydra.reconfiguration.scheduler import (
    INTENT,
    Running,
    Scheduler,
    Work,
    others_ended,
    outcomes_of,
)
from tests.unit.reconfiguration.seeds import chunks, remembering
from tests.unit.reconfiguration.seeds import hold as hold_seeds
from tests.unit.reconfiguration.watch import Violation

_RUNS = 200
_WRITES = Batch(INTENT, ())
_MOVES = Batch("move", (Pause(0.0),))
_DEEPEST = 3
"""Largest number of simultaneous changes."""
_FLOOD = 40
"""Largest number of urgent jobs that a reconnecting switch may put."""


class Kind(IntEnum):
    """Sources of changes beside others, the most urgent first."""

    LOST = 0
    RESERVED = 1
    ASKED = 2
    STAGE = 3


class Seen(NamedTuple):
    """Counts of events, for the coverage of the simulation."""

    counts: Counter[str]


class _Wish(NamedTuple):
    fits_from_s: float
    """Before, the change would conflict with changes under way."""


class _World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.now_s = 0.0
        self.queue, self.scheduler = JobQueue(), Scheduler()
        self.seen: Counter[str] = Counter()
        self.number = 0
        self.asked: deque[int] = deque()
        """Ordinary jobs that wait, in the order of arrival."""
        self.urgent: deque[int] = deque()
        self.parts: dict[int, int] = {}
        """Waiting parts, with their jobs."""
        self.again: Counter[str] = Counter()
        """Arrivals of unique jobs, since each began."""
        self.turns: list[str] = []
        """Turns since the first ordinary job in the queue became the first."""
        self.urgent_in_a_row = 0
        self.duties: dict[str, Duty] = {}
        self.passed: Counter[str] = Counter()
        """Ordinary jobs begun while each duty was due."""
        self.wishes: dict[Kind, list[_Wish]] = {kind: [] for kind in Kind}
        self.in_turn: Running | None = None
        self.open = False
        """True while the job in its turn lets other changes in."""
        self.flights: dict[Running, float] = {}
        self.late = rng.random() < 0.5
        self.flood = rng.choice((0, 0, 0, _FLOOD))
        self.arrivals = rng.randint(0, 60)
        self.chance = rng.choice((0.1, 0.4))
        self.dies_at = rng.choice((None, None, rng.randint(1, 100)))
        self.lease_ends_at = rng.choice((None, rng.randint(1, 100)))
        self.landed: dict[Running, bool] = {}
        """Courses in the order in which they continue; True for a written intent."""
        for number in range(rng.randint(0, 4)):
            self._give_duty(f"duty {number}", rng.choice((None, 0.0, 0.5, 5.0)))
        self.scheduler.let_begin_beside(
            lambda: self.open and len(self.courses) < _DEEPEST,
            [partial(self._source, kind) for kind in Kind],
        )

    @property
    def courses(self) -> Sequence[Running]:
        return [*self.flights, *self.landed]

    # -- arrivals ---------------------------------------------------------------------------------

    def _give_duty(self, name: str, every_s: float | None) -> None:
        def act() -> Work[None] | None:
            return self._work(1) if self.rng.random() < 0.3 else None

        duty = Duty(stage=name, action=act, every_s=lambda: every_s, last_s=self.now_s)
        self.duties[name] = duty
        self.queue.add_duty(duty)

    def arrive(self) -> None:
        """Any event may come at any moment."""
        rng = self.rng
        if self.dies_at is not None:
            self.dies_at -= 1
            if self.dies_at < 0:
                raise _Death
        if self.lease_ends_at is not None:
            self.lease_ends_at -= 1
            if self.lease_ends_at < 0:
                self._end_lease()
        while self.arrivals > 0 and rng.random() < self.chance:
            self.arrivals -= 1
            what = rng.choice(("asked", "asked", "urgent", "part", "once", "wish", "wish"))
            getattr(self, f"_put_{what}")()
        if self.flood and rng.random() < 0.9:
            self.flood -= 1
            self._put_urgent()

    def _put_asked(self) -> None:
        self.number += 1
        number = self.number
        self.asked.append(number)
        self.queue.put(lambda: self._begin_asked(number))

    def _put_urgent(self) -> None:
        self.number += 1
        number = self.number
        self.urgent.append(number)
        self.queue.put(lambda: self._begin_urgent(number), first=True)

    def _put_part(self) -> None:
        self.number += 1
        number = self.number
        self.urgent.append(number)
        self.parts[number] = number
        self.queue.put(
            lambda: self._begin_urgent(number), first=True, meanwhile=partial(self._do_part, number)
        )

    def _put_once(self) -> None:
        name = self.rng.choice(("look", "follow"))
        job, first = (self._look, False) if name == "look" else (self._follow, True)
        if not self.again[name]:
            (self.urgent if first else self.asked).append(-1)
        self.again[name] += 1
        self.queue.put_once(job, first=first)

    def _put_wish(self) -> None:
        kind = self.rng.choice(list(Kind))
        self.wishes[kind].append(_Wish(self.now_s + self.rng.choice((0.0, 0.0, 1.0))))

    def _end_lease(self) -> None:
        self.lease_ends_at, self.arrivals, self.flood = None, 0, 0
        self.seen["a lease ended"] += 1
        self.queue.end_duties()
        self.queue.close()
        self.duties.clear()

    # -- jobs -------------------------------------------------------------------------------------

    def _begin_asked(self, number: int) -> Work[None] | None:
        self._first_of(self.asked, number)
        return self._job()

    def _begin_urgent(self, number: int) -> Work[None] | None:
        self._first_of(self.urgent, number)
        self.parts.pop(number, None)
        return self._job()

    def _look(self) -> Work[None] | None:
        self._first_of(self.asked, -1)
        self.again["look"] = 0
        return self._job()

    def _follow(self) -> Work[None] | None:
        self._first_of(self.urgent, -1)
        self.again["follow"] = 0
        return self._job()

    def _first_of(self, waiting: deque[int], number: int) -> None:
        if not waiting or waiting[0] != number:
            raise Violation(f"job {number} begins before {[*waiting]}")
        waiting.popleft()

    def _job(self) -> Work[None] | None:
        return None if self.rng.random() < 0.3 else self._work(self.rng.randint(1, 4), turn=True)

    def _do_part(self, number: int) -> None:
        self.seen["parts done meanwhile"] += self.parts.pop(number, None) is not None

    async def _work(self, batches: int, *, turn: bool = False) -> None:
        """Batches, of which the first may be an intent; errors may end the work."""
        if self.rng.random() < 0.5:
            await self._one(_WRITES)
        self.open = turn or self.open
        broken_off_by = None
        for _ in range(batches):
            try:
                await self._one(_MOVES)
            except TimeoutError as error:
                self.seen["replies lost"] += 1
                if self.rng.random() < 0.3:
                    broken_off_by = error
                    break
        if turn:
            self.open = False
            await others_ended()
            if self.scheduler.others:
                raise Violation("a job ends before the changes beside it")
        if broken_off_by is not None:
            raise broken_off_by

    async def _one(self, batch: Batch) -> None:
        outcomes = await outcomes_of(batch)
        if any(one.state is JobState.WRITING for one in self.flights):
            raise Violation("a course goes on while an intent is being written")
        self.arrive()
        outcomes()

    # -- changes beside ---------------------------------------------------------------------------

    def _source(self, kind: Kind) -> Work[None] | None:
        wish = self._fitting(kind)
        if wish is None:
            return None
        for other in Kind:
            if other < kind and self._fitting(other) is not None:
                raise Violation(f"a change of {kind.name} begins before one of {other.name}")
        if self.in_turn is None or self.in_turn.over:
            raise Violation("a change begins beside nothing")
        self.wishes[kind].remove(wish)
        self.seen[f"begun beside: {kind.name.lower()}"] += 1
        return self._work(self.rng.randint(1, 3))

    def _fitting(self, kind: Kind) -> _Wish | None:
        fitting = (one for one in self.wishes[kind] if one.fits_from_s <= self.now_s)
        return next(fitting, None)

    # -- the conductor ----------------------------------------------------------------------------

    def play(self) -> Seen:
        try:
            self._live()
        except _Death:
            self.seen["deaths"] += 1
            self.seen["deaths among changes"] += len(self.courses) > 1
            for running in self.courses:
                running.close()
            return Seen(self.seen)
        except LifecycleError as error:
            raise Violation(str(error)) from error
        if left := [*self._left()]:
            raise Violation(f"never done: {left}")
        return Seen(self.seen)

    def _left(self) -> Iterator[Any]:
        yield from (*self.asked, *self.urgent, *self.parts, *self.courses)

    def _live(self) -> None:
        idle = 0
        while not self.queue.closed:
            self.arrive()
            turn = self.queue.next(self.now_s)
            if turn is not None:
                self._judge(turn)
                self._do(turn)
                self.queue.over(turn, self.now_s)
                continue
            if self.queue.closed:
                break
            if self.asked or self.urgent:
                raise Violation(f"nothing is done while {self.asked} and {self.urgent} wait")
            self.urgent_in_a_row = 0
            self.now_s += 0.25
            idle += 1
            if idle > 50 and self.lease_ends_at is None:
                self._end_lease()

    def _judge(self, turn: Turn) -> None:
        """Check the order of the turn. Called before the turn begins."""
        kind = "duty" if turn.duty is not None else "urgent" if self._is_urgent() else "asked"
        if kind == "urgent":
            self.urgent_in_a_row += 1
        else:
            if self.urgent and self.urgent_in_a_row < MOST_URGENT:
                raise Violation(f"{kind} before {len(self.urgent)} urgent jobs")
            self.seen["turns amid a flood of urgent jobs"] += bool(self.urgent)
            self.urgent_in_a_row = 0
        if self.urgent_in_a_row > MOST_URGENT and self.asked:
            raise Violation(f"{self.urgent_in_a_row} urgent jobs in a row while others wait")
        self._judge_duties(turn, kind)
        self.turns = [] if kind == "asked" or not self.asked else [*self.turns, turn.stage]
        for name, times in Counter(self.turns).items():
            if name != "job" and times > 1:
                raise Violation(f"{name} has two turns while a job waits for one")

    def _is_urgent(self) -> bool:
        """The queue has just handed out a job: urgent if fewer urgent jobs wait than arrived."""
        return len(self.queue._urgent) < len(self.urgent)

    def _judge_duties(self, turn: Turn, kind: str) -> None:
        if turn.duty is not None:
            self.passed[turn.stage] = 0
        for name, duty in self.duties.items():
            every_s = duty.every_s()
            if duty is turn.duty or every_s is None or self.now_s < duty.last_s + every_s:
                continue
            self.passed[name] += kind == "asked"
            if self.passed[name] > 1:
                raise Violation(f"{name} is due, and {self.passed[name]} jobs came before")

    def _do(self, turn: Turn) -> None:
        if self.courses:
            raise Violation(f"a job begins while {len(self.courses)} courses are under way")
        self.arrive()
        work = turn.job()
        if work is None:
            return
        self.in_turn = self._begin(work, beside=False)
        while not self.in_turn.over or self.scheduler.others:
            self.arrive()
            running = min(self.flights, key=lambda one: self.flights[one])
            self.now_s = max(self.now_s, self.flights[running])
            while (part := self.queue.next_part()) is not None:
                part()
            if self.parts:
                raise Violation(f"parts {[*self.parts]} wait while a course goes on")
            self._land(running)
            while (beside := self.scheduler.next_beside()) is not None:
                self._begin(beside, beside=True)
        self.in_turn = None

    def _begin(self, work: Work[None], *, beside: bool) -> Running:
        running = self.scheduler.begin(work, beside=beside)
        self._take_off()
        return running

    def _land(self, running: Running) -> None:
        del self.flights[running]
        self.landed[running] = running.state is JobState.WRITING
        lost = running.state is JobState.PERFORMING and self.rng.random() < 0.1
        self.scheduler.outcome(running, _lost if lost else _done)
        self._take_off()

    def _take_off(self) -> None:
        for running in self.scheduler.moved():
            self._judge_order(running)
            if isinstance(running.error, Violation | _Death):
                raise running.error
            if running.batch is not None:
                late = self.late and self.rng.random() < 0.2
                self.flights[running] = self.now_s + self.rng.random() * (30.0 if late else 0.2)
                self.seen[f"state {running.state.value}"] += 1
            elif not running.over:
                self.landed[running] = False
                self.seen[f"state {running.state.value}"] += 1
        held = [one for one in self.landed if one.state is JobState.HELD]
        self.seen["state held"] += len(held)

    def _judge_order(self, running: Running) -> None:
        """True if a held course has waited longer; a course with a written intent continues
        first.
        """
        if running not in self.landed:
            return
        for other in self.landed:
            if other is running:
                break
            if other.state is JobState.HELD and not self.landed[running]:
                raise Violation("a course goes on before one that is held and was over earlier")
        del self.landed[running]


class _Death(Exception):
    """The controller dies."""


def _lost() -> Sequence[Outcome]:
    raise TimeoutError


def _done() -> Sequence[Outcome]:
    return ()


@remembering(_RUNS)
def simulate(seed: int) -> Seen:
    return _World(seed).play()


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_every_job_has_its_turn_and_the_most_urgent_first(seeds):
    hold_seeds(simulate, seeds)


def test_the_seeds_reach_every_corner():
    seen = sum((simulate(seed).counts for seed in range(_RUNS)), Counter())
    corners = {
        "a lease ended",
        "deaths",
        "deaths among changes",
        "replies lost",
        "parts done meanwhile",
        "turns amid a flood of urgent jobs",
        "state performing",
        "state writing",
        "state held",
        "state awaiting-others",
        *(f"begun beside: {kind.name.lower()}" for kind in Kind),
    }
    assert corners - {what for what, times in seen.items() if times} == set()
