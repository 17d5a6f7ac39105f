"""Courses that run between jobs for as long as switches take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any

from hydra.reconfiguration.commands import Batch, Outcome, Steps
from hydra.reconfiguration.scheduler import Job, Running, outcomes_of

Submit = Callable[[Batch], Sequence[Future[Outcome[Any]]]]
"""Begins the commands of a batch; returns a future for each command."""


class BetweenJobs:
    """A course that lets other jobs in during each batch marked ``beside``.

    A separate job takes up the outcome of such a batch. All other batches are part of the job in
    which the course continues. The course keeps the context of its start.
    """

    def __init__(self, course: Steps, submit: Submit, put: Callable[[Job], None]) -> None:
        """``put`` queues a job."""
        self._running = Running(course, beside=False)
        self._submit = submit
        self._put = put
        self._in_flight: Sequence[Future[Outcome[Any]]] | None = None
        """None: no batch has begun."""

    @property
    def over(self) -> bool:
        return self._running.over

    def drop(self) -> None:
        """End the course here, after the batch under way."""
        self._running.close()
        wait(self._in_flight or ())

    async def begin(self, alone_s: float) -> None:
        """Carry out the course for ``alone_s`` without other jobs in between; queue the rest of the
        course as jobs.
        """
        until_s = time.monotonic() + alone_s
        await self._next_batches()
        while alone_s and not self.over:
            if wait(self._in_flight or (), max(0.0, until_s - time.monotonic())).not_done:
                return
            await self._next_batches()

    async def _next_batches(self) -> None:
        """Carry out the next batches, up to a batch that lets other jobs in."""
        running, in_flight = self._running, self._in_flight
        if running.over or not all(future.done() for future in in_flight or ()):
            return
        running.go_on(
            None if in_flight is None else lambda: [future.result() for future in in_flight]
        )
        while (batch := running.batch) is not None and not (batch.beside and batch.commands):
            running.go_on(await outcomes_of(batch))
        if running.error is not None:
            raise running.error
        if batch is not None:
            self._in_flight = running.context.run(self._submit, batch)
            for future in self._in_flight:
                future.add_done_callback(lambda _future: self._put(self._next_batches))
