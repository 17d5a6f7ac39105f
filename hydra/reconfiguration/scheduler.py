"""Courses under way at the same time, each at one batch of commands. No threads, no clock.

A course is a generator of batches, or a coroutine awaiting :func:`carried_out`. The caller carries
out the batches of all courses, in any order and at the same time, and reports each outcome. Each
course goes on as soon as its own batch is over, with two exceptions:

* While an intent is being written, no course goes on: the journal's last entry covers all changes.
* A course awaiting :func:`others_ended` goes on once the courses begun beside it have ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import copy_context
from functools import partial
from types import coroutine
from typing import Any, Final, TypeVar

from hydra.lifecycle import JOB_TRANSITIONS, JobState, check_transition
from hydra.reconfiguration.commands import Batch, Course, Outcome

INTENT: Final = "intent"
"""The step in which a change writes its intent into the journal."""
_OTHERS: Final = Batch("others end", ())
"""Yielded by :func:`others_ended` in place of a batch."""
_ResultT = TypeVar("_ResultT")
Work = Coroutine[Batch, Sequence[Outcome[Any]], _ResultT]
"""A coroutine that awaits batches."""
Job = Callable[[], Work[None] | None]
"""A function that does the job, or returns the job's course."""
Source = Callable[[], Work[None] | None]
"""Returns the next change that may begin beside the changes under way; None if there is none."""
_Outcomes = Callable[[], Sequence[Outcome[Any]]]
"""Returns outcomes, or raises the error of the batch."""


async def carried_out(course: Course[_ResultT]) -> _ResultT:
    """Await a course of batches; return the course's result."""
    return await _batches_of(course)


@coroutine
def _batches_of(course: Course[_ResultT]) -> Generator[Batch, Sequence[Outcome[Any]], _ResultT]:
    return (yield from course)


@coroutine
def performed(batch: Batch) -> Generator[Batch, Sequence[Outcome[Any]], Sequence[Outcome[Any]]]:
    """Await the outcomes of a batch."""
    return (yield batch)


async def outcomes_of(batch: Batch) -> _Outcomes:
    """Await a batch; return the outcomes as a callable, for use in another course."""
    try:
        outcomes = await performed(batch)
    except Exception as error:
        return partial(_fail, error)
    return lambda: outcomes


def _fail(error: Exception) -> Sequence[Outcome[Any]]:
    raise error


@coroutine
def others_ended() -> Generator[Batch, Sequence[Outcome[Any]], None]:
    """Await the end of all courses begun beside the awaiting course."""
    yield _OTHERS


class Running:
    """A course under way, with the context in which the course began."""

    def __init__(self, steps: Course[Any] | Work[Any], *, beside: bool) -> None:
        self.steps = steps
        self.beside = beside
        self.context = copy_context()
        self.batch: Batch | None = None
        """The batch to carry out; None if the course waits for other courses, or is over."""
        self.state = JobState.QUEUED
        self.result: Any = None
        self.error: Exception | None = None
        """The error that ended the course, if any."""

    @property
    def over(self) -> bool:
        """True if the course has ended."""
        return not JOB_TRANSITIONS[self.state]

    def enter(self, state: JobState) -> None:
        """Change the state. Raises LifecycleError for a step outside the transition table."""
        check_transition(JOB_TRANSITIONS, self.state, state, "a course")
        self.state = state

    def go_on(self, outcomes: _Outcomes | None) -> None:
        """Resume the course with the last batch's outcomes (None: start), up to the next batch."""
        self.batch = None
        try:
            batch = self.context.run(self._send, outcomes)
        except StopIteration as end:
            self.result = end.value
            self.enter(JobState.DONE)
        except Exception as error:
            self.error = error
            self.enter(JobState.FAILED)
        else:
            if batch is _OTHERS:
                self.enter(JobState.AWAITING_OTHERS)
            else:
                self.batch = batch
                self.enter(JobState.WRITING if batch.step == INTENT else JobState.PERFORMING)

    def close(self) -> None:
        """Give the course up."""
        if not self.over:
            self.batch = None
            self.context.run(self.steps.close)
            self.enter(JobState.FAILED)

    def _send(self, outcomes: _Outcomes | None) -> Batch:
        if outcomes is None:
            return self.steps.send(None)  # type: ignore[arg-type]  # as for any generator
        try:
            some = outcomes()
        except Exception as error:
            return self.steps.throw(error)
        return self.steps.send(some)


class Scheduler:
    """Resumes courses when batches end. For one thread.

    The states of a course are in :mod:`hydra.lifecycle`.
    """

    def __init__(self) -> None:
        self._beside: set[Running] = set()
        """Courses under way, begun beside another course."""
        self._may_begin_beside: Callable[[], bool] = lambda: False
        self._sources: Sequence[Source] = ()
        self._writing: set[Running] = set()
        """Courses whose intents are being written."""
        self._ready: deque[tuple[Running, _Outcomes | None]] = deque()
        """Courses to resume, with outcomes, once no intent is being written."""
        self._waiting: list[Running] = []
        """Courses awaiting the end of ``_beside``."""
        self._moved: list[Running] = []
        """Courses for :meth:`moved`."""

    @property
    def others(self) -> bool:
        """True if courses begun beside another course are under way."""
        return bool(self._beside)

    def let_begin_beside(self, may_begin: Callable[[], bool], sources: Sequence[Source]) -> None:
        """Have :meth:`next_beside` ask ``sources``, the most urgent first, if ``may_begin()``."""
        self._may_begin_beside, self._sources = may_begin, sources

    def next_beside(self) -> Work[None] | None:
        """The most urgent change that may begin beside the courses under way, if any."""
        if not self._may_begin_beside():
            return None
        return next(filter(None, (source() for source in self._sources)), None)

    def begin(self, steps: Course[Any] | Work[Any], *, beside: bool = False) -> Running:
        """Begin a course, up to the first batch."""
        running = Running(steps, beside=beside)
        if beside:
            self._beside.add(running)
        self._resume(running, None)
        self._settle()
        return running

    def outcome(self, running: Running, outcomes: _Outcomes) -> None:
        """Report the outcomes of a course's batch."""
        if running in self._writing:
            self._writing.remove(running)
            self._ready.appendleft((running, outcomes))
        else:
            self._ready.append((running, outcomes))
        self._settle()

    def _settle(self) -> None:
        while self._ready and not self._writing:
            self._resume(*self._ready.popleft())
        for running, _outcomes in self._ready:
            if running.state is not JobState.HELD:
                running.enter(JobState.HELD)

    def moved(self) -> Sequence[Running]:
        """Courses begun or resumed since the last call. Each course has a batch to carry out, waits
        for other courses, or is over.
        """
        moved, self._moved = self._moved, []
        return moved

    def _resume(self, running: Running, outcomes: _Outcomes | None) -> None:
        running.go_on(outcomes)
        while running.state is JobState.AWAITING_OTHERS and not self._beside:
            running.go_on(_nothing)
        if running.state is JobState.AWAITING_OTHERS:
            self._waiting.append(running)
        self._moved.append(running)
        if running.state is JobState.WRITING:
            self._writing.add(running)
        if running.over and running.beside:
            self._beside.remove(running)
            if not self._beside:
                self._ready.extend((running, _nothing) for running in self._waiting)
                self._waiting.clear()


def _nothing() -> Sequence[Outcome[Any]]:
    return ()


def drive(
    steps: Course[_ResultT] | Work[_ResultT],
    perform: Callable[[Batch], Sequence[Outcome[Any]]],
) -> _ResultT:
    """Carry out a single course, batch by batch; return the result. Raises the course's errors."""
    scheduler = Scheduler()
    running = scheduler.begin(steps)
    while (batch := running.batch) is not None:
        scheduler.outcome(running, partial(perform, batch))
    if running.error is not None:
        raise running.error
    result: _ResultT = running.result
    return result
