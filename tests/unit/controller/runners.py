"""Executors of the controller's rooms, without delay: on a simulated network, or without one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from apps.controller.conductor import Conductor
from apps.controller.runner import Runner
from hydra.reconfiguration.commands import Batch, Outcome
from hydra.reconfiguration.scheduler import drive

Perform = Callable[[Batch], Sequence[Outcome]]


def no_batch(batch: Batch) -> Sequence[Outcome]:
    raise AssertionError(f"nothing carries out {batch}")


def do(work: Any, perform: Perform = no_batch) -> Any:
    """The result of a coroutine, whose batches ``perform`` carries out; other values are returned
    unchanged.
    """
    return drive(work, perform) if isinstance(work, Coroutine) else work


def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function as a coroutine: a stand-in for an awaited method."""

    async def work(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)

    return work


def course_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function as a course without batches."""

    def course(*arguments: Any, **options: Any) -> Any:
        yield from ()
        return function(*arguments, **options)

    return course


def at_once(room: Any, perform: Perform = no_batch) -> Any:
    """A wrapper of a room: coroutines called through the wrapper are carried out at once.

    Assignments go to the room itself.
    """
    return _AtOnce(room, perform)


class _AtOnce:
    def __init__(self, room: Any, perform: Perform) -> None:
        self.__dict__.update(_room=room, _perform=perform)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._room, name)
        if type(found).__module__.startswith("apps.controller."):
            return _AtOnce(found, self._perform)
        if not callable(found):
            return found
        return lambda *arguments, **options: do(found(*arguments, **options), self._perform)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._room, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._room, name)


class Doer:
    """Carries out work, and before each batch possible changes beside the work."""

    def __init__(self, conductor: Conductor, perform: Perform) -> None:
        self._conductor = conductor
        self._perform = perform
        self.look: Callable[[Batch], object] = lambda _batch: None
        """Sees each batch before its execution; the work gets the observer's errors."""

    def do(self, work: Any) -> Any:
        return do(work, self.carry_out)

    def carry_out(self, batch: Batch) -> Sequence[Outcome]:
        self.look(batch)
        self.let_in()
        return self._perform(batch)

    def let_in(self) -> None:
        """Make the changes that may begin beside the changes under way."""
        while (work := self._conductor._scheduler.next_beside()) is not None:
            self.do(work)


def performed(runner: Runner, batch: Batch) -> list[Outcome]:
    """The outcomes of a finished batch."""
    return [future.result() for future in runner.submit(batch)]


def submitted(perform: Perform) -> Callable[[Batch], Sequence[Future[Outcome]]]:
    """Replaces a runner's method: outcomes of a batch are available at once."""

    def submit(batch: Batch) -> Sequence[Future[Outcome]]:
        futures = []
        for outcome in perform(batch):
            futures.append(Future[Outcome]())
            futures[-1].set_result(outcome)
        return futures

    return submit
