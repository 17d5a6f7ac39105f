"""Courses that go on between jobs, for as long as their switches take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

from hydra.reconfiguration.commands import Batch, Outcome, Steps
from hydra.reconfiguration.scheduler import Job, Running, outcomes_of

Submit = Callable[[Batch], Sequence[Future[Outcome]]]
"""Begins the commands of a batch; a future for each."""


class BetweenJobs:
    """A course that lets other jobs in while batches are under way that may be ``beside`` them.

    The outcome of such a batch is taken up by a job of its own. All other batches are part of the
    job in which the course goes on. The course keeps the context in which it was begun.
    """

    def __init__(self, course: Steps, submit: Submit, put: Callable[[Job], None]) -> None:
        """``put`` queues a job."""
        self._running = Running(course, beside=False)
        self._submit = submit
        self._put = put
        self._in_flight: Sequence[Future[Outcome]] | None = None
        """None: nothing was begun."""

    @property
    def over(self) -> bool:
        return self._running.over

    def drop(self) -> None:
        """End the course here, once nothing of it is under way any more."""
        self._running.close()
        wait(self._in_flight or ())

    async def begin(self, alone_s: float) -> None:
        """Carry out the course for ``alone_s`` with no job in between; after that time, the rest of
        the course by jobs that are put.
        """
        until_s = time.monotonic() + alone_s
        await self._go_on()
        while alone_s and not self.over:
            if wait(self._in_flight or (), max(0.0, until_s - time.monotonic())).not_done:
                return
            await self._go_on()

    async def _go_on(self) -> None:
        """Carry out what follows, up to a batch that jobs may come in beside."""
        running, in_flight = self._running, self._in_flight
        if running.over or not all(future.done() for future in in_flight or ()):
            return
        running.go_on(None if in_flight is None else lambda: [one.result() for one in in_flight])
        while (batch := running.batch) is not None and not (batch.beside and batch.commands):
            running.go_on(await outcomes_of(batch))
        if running.error is not None:
            raise running.error
        if batch is not None:
            self._in_flight = running.context.run(self._submit, batch)
            for future in self._in_flight:
                future.add_done_callback(lambda _future: self._put(self._go_on))
