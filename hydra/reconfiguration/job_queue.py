"""The order of jobs and duties: urgent jobs, then in rounds every duty that is due and one job.

Starts no thread and reads no clock. No job starves: after ``MOST_URGENT`` urgent jobs in a row a
duty or an ordinary job has its turn, and each round has a turn for an ordinary job. Otherwise an
urgent job waits for the job under way only. If a part of an urgent job can't wait for the end of
the job under way, the part is done while that job waits for devices (:meth:`next_part`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hydra.reconfiguration.scheduler import Job, Work

MOST_URGENT: Final = 16
"""Largest number of urgent jobs in a row, so that a switch that reconnects again and again does not
starve requests.
"""
Part = Callable[[], None]
"""A part of a job, done when called."""


@dataclass(slots=True, kw_only=True, eq=False)
class Duty:
    """A repeated action."""

    stage: str
    action: Job
    every_s: Callable[[], float | None]
    last_s: float
    in_part_s: float = float("-inf")
    """Time of the last partial run while a job waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A job to do now."""

    job: Job
    stage: str = "job"
    duty: Duty | None = None
    due_s: float = 0.0
    every_s: float = 0.0


class JobQueue:
    """:meth:`put` and :meth:`put_once` are for any thread, all other methods for one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._urgent: deque[tuple[Job, Part | None]] = deque()
        self._jobs: deque[Job | None] = deque()
        self._once: set[Job] = set()
        """Queued jobs of :meth:`put_once`."""
        self._parts: dict[Part, None] = {}
        self._duties: list[Duty] = []
        self._at = 0
        """Number of duties seen in this round."""
        self._rested = False
        """True once this round has ended without a job."""
        self._urgent_in_a_row = 0
        self._closed = False
        self._without_duties = False

    @property
    def closed(self) -> bool:
        """True once all jobs put before :meth:`close` are done."""
        return self._closed

    def close(self) -> None:
        """Begin no job after the jobs queued so far."""
        self._jobs.append(None)

    # -- for any thread ---------------------------------------------------------------------------

    def put(self, job: Job, *, first: bool = False, meanwhile: Part | None = None) -> None:
        """Queue a job; with ``first``, as urgent. ``meanwhile``: a part of an urgent job, to do
        while the job under way waits.
        """
        with self._lock:
            self._put(job, first=first, meanwhile=meanwhile)

    def put_once(self, job: Job, *, first: bool = False, meanwhile: Part | None = None) -> None:
        """:meth:`put` a job, unless the same job is queued already."""

        def begin() -> Work[None] | None:
            with self._lock:
                self._once.remove(job)
            return job()

        with self._lock:
            if job not in self._once:
                self._once.add(job)
                self._put(begin, first=first, meanwhile=meanwhile)
            elif meanwhile is not None:
                self._parts[meanwhile] = None

    def _put(self, job: Job, *, first: bool, meanwhile: Part | None) -> None:
        if first:
            self._urgent.append((job, meanwhile))
        else:
            self._jobs.append(job)
        if meanwhile is not None:
            self._parts[meanwhile] = None

    # -- turns ------------------------------------------------------------------------------------

    def add_duty(self, duty: Duty) -> None:
        """Add a duty, to be done whenever the duty is due, after the duties added earlier."""
        self._duties.append(duty)

    def end_duties(self) -> None:
        """Begin no more duties. For any thread."""
        self._without_duties = True

    def part_is_due(self, duty: Duty, now_s: float) -> bool:
        """True if a part of a duty may be done while a job waits; at most once per interval."""
        every_s = duty.every_s()
        if every_s is None or self._without_duties:
            return False
        return now_s >= max(duty.last_s, duty.in_part_s) + every_s

    def next(self, now_s: float) -> Turn | None:
        """The next job or duty to do; None if there is nothing to do. Call :meth:`over` after its
        end.
        """
        with self._lock:
            passed = self._urgent_in_a_row >= MOST_URGENT
            if not self._urgent:  # the jobs done so far have covered all parts
                self._parts.clear()
        if self._urgent and not passed:
            return self._next_urgent()
        turn = self._next_in_round(now_s)
        if turn is None and self._urgent:
            return self._next_urgent()
        self._urgent_in_a_row = 0
        return turn

    def _next_urgent(self) -> Turn:
        """The next urgent job, which covers its part."""
        self._urgent_in_a_row += 1
        with self._lock:
            job, part = self._urgent.popleft()
            if part is not None and all(part != other for _, other in self._urgent):
                self._parts.pop(part, None)
        return Turn(job=job)

    def _next_in_round(self, now_s: float) -> Turn | None:
        """The next due duty, or at the end of a round a job. A round without a job ends with None;
        a job put since then is done at once, before the next round.
        """
        while True:
            while self._at < len(self._duties):
                duty = self._duties[self._at]
                self._at += 1
                if not self._without_duties and (turn := _turn_of(duty, now_s)) is not None:
                    return turn
            if self._jobs and not (self._jobs[0] is None and self._urgent):
                self._at, self._rested = 0, False
                job = self._jobs.popleft()
                self._closed = job is None
                return None if job is None else Turn(job=job)
            if not self._rested:
                self._rested = True
                return None
            self._at, self._rested = 0, False

    def over(self, turn: Turn, now_s: float) -> None:
        """Note the end of a turn."""
        if turn.duty is not None:
            in_time = now_s - turn.due_s < turn.every_s
            turn.duty.last_s = turn.due_s if in_time else now_s

    def next_part(self) -> Part | None:
        """A part to do while the job under way waits, in the order of arrival."""
        with self._lock:
            part = next(iter(self._parts), None)
            if part is not None:
                del self._parts[part]
        return part


def _turn_of(duty: Duty, now_s: float) -> Turn | None:
    """The turn of a duty, if the duty is due."""
    every_s = duty.every_s()
    if every_s is None:
        duty.last_s = now_s
        return None
    due_s = duty.last_s + every_s
    if now_s < due_s:
        return None
    return Turn(job=duty.action, stage=duty.stage, duty=duty, due_s=due_s, every_s=every_s)
