"""The thread that decides and acts, in the order of :mod:`hydra.reconfiguration.job_queue`.

Reconfigurations, reservations, start-up and switch synchronisation are jobs of a single queue;
urgent jobs are about traffic that does not reach its destination.
While the job under way waits for devices, changes begin beside the job's change;
:meth:`Conductor.beside` has the order. The next job begins once all changes have ended. All courses
run in the conductor's thread alone (:mod:`hydra.reconfiguration.scheduler`), and need no locks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from apps.process.metrics import Metrics
from hydra.errors import DeviceUnavailable, HydraError
from hydra.reconfiguration.commands import Batch, Outcome
from hydra.reconfiguration.job_queue import Duty, JobQueue, Part
from hydra.reconfiguration.scheduler import Job, Running, Scheduler, Source, Work

LOG = logging.getLogger("hydra.controller")
_LONGEST_NAP_S: Final = 0.25
_PATIENCE_S: Final = 60.0
_AnswerT = TypeVar("_AnswerT")


class Conductor:
    """:meth:`put`, :meth:`put_once`, :meth:`ask` and :attr:`alive` are for any thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._queue = JobQueue()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        """Set once there may be something to do."""
        self._scheduler = Scheduler()
        self._submit: Callable[[Batch], Sequence[Future[Outcome[Any]]]] = lambda _batch: ()
        self._landed: deque[tuple[Running, Sequence[Future[Outcome[Any]]]]] = deque()
        """Courses with a finished batch, and the batch's futures."""
        self._thread = threading.Thread(target=self._conduct, name="conductor", daemon=True)
        self._nap_s: Callable[[float], float] = lambda most_s: most_s

    def duty(
        self, stage: str, action: Job, every_s: Callable[[], float | None], *, at_once: bool = False
    ) -> Duty:
        """Do ``action`` every ``every_s()`` seconds; not at all while ``every_s()`` is None.

        Duties due at the same time run in the order of registration. A turn that falls due while
        the duty still runs is skipped, and the interval begins anew.
        """
        first_s = float("-inf") if at_once else time.monotonic()
        duty = Duty(stage=stage, action=action, every_s=every_s, last_s=first_s)
        self._queue.add_duty(duty)
        return duty

    def carry_out_by(self, submit: Callable[[Batch], Sequence[Future[Outcome[Any]]]]) -> None:
        """Use ``submit`` to begin the commands of batches; ``submit`` returns a future for each."""
        self._submit = submit

    def beside(self, may_begin: Callable[[], bool], sources: Sequence[Source]) -> None:
        """Let changes begin beside the job under way while the job waits, whenever ``may_begin()``.

        Sources are asked in the given order.
        """
        self._scheduler.let_begin_beside(may_begin, sources)

    def start(self, nap_s: Callable[[float], float] | None = None) -> None:
        """``nap_s``: seconds until something needs an exact moment, at most its argument."""
        if nap_s is not None:
            self._nap_s = nap_s
        self._thread.start()

    def end_soon(self) -> None:
        """Begin no duty from now on; jobs are done until :meth:`stop`."""
        self._queue.end_duties()

    def stop(self) -> None:
        """End after all queued jobs."""
        if self._thread.is_alive():
            self._queue.close()
            self._woken.set()
            self._thread.join()

    @property
    def alive(self) -> bool:
        """True if the conductor's thread runs."""
        return self._thread.is_alive()

    def put(self, job: Job, *, first: bool = False, meanwhile: Part | None = None) -> None:
        """Queue a job; with ``first``, before all other jobs.

        ``meanwhile``, with ``first``: the part of the job that can't wait for the job under way.
        The part is done while the job under way waits, and left out if no job is under way.
        """
        self._queue.put(job, first=first, meanwhile=meanwhile)
        self._woken.set()

    def put_once(self, job: Job, *, first: bool = False, meanwhile: Part | None = None) -> None:
        """:meth:`put` a job unless the same job is queued already. Such a job handles everything
        pending at its start.
        """
        self._queue.put_once(job, first=first, meanwhile=meanwhile)
        self._woken.set()

    def ask(self, question: Callable[[], Work[_AnswerT]]) -> _AnswerT:
        """Have the conductor answer between two jobs, for another thread that waits.

        Raises DeviceUnavailable if changes under way take too long. The question is withdrawn then,
        unless the answer has begun.
        """
        answer: Future[_AnswerT] = Future()

        async def job() -> None:
            if not answer.set_running_or_notify_cancel():
                return  # the client was asked to repeat the request
            try:
                answer.set_result(await question())
            except Exception as error:
                answer.set_exception(error)

        self.put(job)
        try:
            return answer.result(_PATIENCE_S)
        except TimeoutError:
            why = f"busy with other changes for {_PATIENCE_S:g} s: ask again"
            if not answer.cancel():
                why = "has begun the job, and has not finished: look later at the outcome"
            raise DeviceUnavailable("controller", why) from None

    # -- for the conductor's thread ----------------------------------------------------------------

    async def in_part(self, duty: Duty, action: Callable[[], Work[None]]) -> None:
        """Do ``action``, a part of a due duty, while the job under way waits.

        The part runs at most once per interval of the duty. The duty itself stays due as before.
        """
        if self._queue.part_is_due(duty, time.monotonic()):
            with self._survived(duty.stage):
                await action()
            duty.in_part_s = time.monotonic()

    # -- the conductor's thread -------------------------------------------------------------------

    def _conduct(self) -> None:
        while not self._queue.closed:
            self._woken.clear()
            turn = self._queue.next(time.monotonic())
            if turn is not None:
                self._do(turn.job, turn.stage)
                self._queue.over(turn, time.monotonic())
            elif not self._queue.closed:
                self._woken.wait(self._nap_s(_LONGEST_NAP_S))

    def _do(self, job: Job, stage: str) -> None:
        """Do a job to the end, and to the end of all changes that begin beside the job."""
        with self._survived(stage):
            work = job()
            if isinstance(work, Coroutine):
                self._see_through(self._begin(work))

    def _see_through(self, running: Running) -> None:
        while not running.over or self._scheduler.others:
            if not self._run_due():
                self._woken.wait()
            self._woken.clear()
        if running.error is not None:
            raise running.error

    def _begin(self, work: Work[None], *, beside: bool = False) -> Running:
        running = self._scheduler.begin(work, beside=beside)
        self._carry_out()
        return running

    def _run_due(self) -> bool:
        """Do everything due while courses wait for devices; True if a course continued.

        Parts put before the end of a batch are done before the course continues: the job under way
        has to know changes of a switch before the switch's answer.
        """
        landed = [self._landed.popleft() for _ in range(len(self._landed))]
        while (part := self._queue.next_part()) is not None:
            with self._survived("job"):
                part()
        for running, futures in landed:
            self._report_outcomes(running, futures)
            self._carry_out()
        with self._survived("job"):
            self._begin_beside()
        return bool(landed)

    def _carry_out(self) -> None:
        """Begin the next batches of courses. Nothing comes between a batch that is ``alone`` and
        the next step of its course.
        """
        while moved := self._scheduler.moved():
            for running in moved:
                if running.over and running.beside and running.error is not None:
                    self._note_failure(running.error)
                if running.batch is None:
                    continue
                futures = running.context.run(self._begun, running.batch)
                if running.batch.alone or not futures:
                    wait(futures)
                    self._report_outcomes(running, futures)
                else:
                    self._await(running, futures)

    def _begun(self, batch: Batch) -> Sequence[Future[Outcome[Any]]]:
        """Begin a batch. An error at the start becomes the outcome for the course."""
        try:
            return self._submit(batch)
        except Exception as error:
            failed = Future[Outcome[Any]]()
            failed.set_exception(error)
            return [failed]

    def _report_outcomes(self, running: Running, futures: Sequence[Future[Outcome[Any]]]) -> None:
        self._scheduler.outcome(running, lambda: [future.result() for future in futures])

    def _await(self, running: Running, futures: Sequence[Future[Outcome[Any]]]) -> None:
        """Let a course continue once all ``futures`` are done."""
        remaining = len(futures)

        def one_done(_future: Future[Outcome[Any]]) -> None:
            nonlocal remaining
            with self._lock:
                remaining -= 1
                over = not remaining
            if over:
                self._landed.append((running, futures))
                self._woken.set()

        for future in futures:
            future.add_done_callback(one_done)

    def _begin_beside(self) -> None:
        """Begin changes beside the changes under way, as long as there are any."""
        while (work := self._scheduler.next_beside()) is not None:
            self._begin(work, beside=True)

    @contextmanager
    def _survived(self, stage: str) -> Iterator[None]:
        """Measure the duration of a stage; log errors, so that no error ends the conductor."""
        try:
            with self._metrics.stage(stage):
                yield
        except Exception as error:
            self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        """Count and log a failed job, or a failed change beside a job; the conductor goes on."""
        self._metrics.job_failed()
        if isinstance(error, HydraError):
            LOG.error("%s", error)
        else:
            LOG.error("a job failed unexpectedly; the controller goes on", exc_info=error)
