"""The thread that decides and acts: jobs in the order in which they come, and duties when due.

What keeps traffic from its destination comes before what somebody has asked for. Part of it does
not even wait for the job under way, but is done while that waits for devices.

Reconfigurations, reservations, start-up and switch synchronisation are jobs of one queue. None
begins before another has ended, but for changes that come in beside a change under way, between two
of its steps or while that waits: :meth:`Conductor.beside` has their order. Of slow switches,
synchronisation is a job for each of their answers.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from apps.process.metrics import Metrics
from hydra.errors import DeviceUnavailable, HydraError

LOG = logging.getLogger("hydra.controller")
_LONGEST_NAP_S: Final = 0.25
_PATIENCE_S: Final = 60.0
_AnswerT = TypeVar("_AnswerT")
Job = Callable[[], None]


def _look_first() -> None:
    """Queued to wake the conductor, which then looks for jobs that come first."""


@dataclass(slots=True)
class Duty:
    """Something that is done again and again."""

    stage: str
    action: Job
    every_s: Callable[[], float | None]
    last_s: float
    in_part_s: float = float("-inf")
    """When a part of it was done while a job waited."""


class Conductor:
    """:meth:`put`, :meth:`put_once`, :meth:`ask` and :attr:`alive` are for any thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._first: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._waiting_once: set[Job] = set()
        self._meanwhile: dict[Job, None] = {}
        self._beside: list[Callable[[], bool]] = []
        self._look_beside: Job = _look_first
        self._woken = threading.Event()
        """Set once there is something to do meanwhile, or nothing more to wait for."""
        self._lock = threading.Lock()
        self._duties: list[Duty] = []
        self._thread = threading.Thread(target=self._conduct, name="conductor", daemon=True)
        self._nap_s: Callable[[float], float] = lambda most_s: most_s
        self._ends = False
        """True once no duty is begun any more."""

    def duty(
        self, stage: str, action: Job, every_s: Callable[[], float | None], *, at_once: bool = False
    ) -> Duty:
        """Do ``action`` every ``every_s()`` seconds, and not while that is None.

        Duties that are due at the same time run in the order in which they were given. A turn that
        falls due while the last one still runs is left out, and the interval begins anew.
        """
        first_s = float("-inf") if at_once else time.monotonic()
        self._duties.append(Duty(stage, action, every_s, first_s))
        return self._duties[-1]

    def beside(self, come_in: Callable[[], bool]) -> None:
        """Have ``come_in`` called where a change may be made beside those under way: it makes one,
        and returns whether it has. Who is given first is asked first.
        """
        self._beside.append(come_in)

    def come_in(self) -> bool:
        """Have a change made beside those under way, if there is one to be made: the most urgent.
        True if one was made. For the conductor's thread.
        """
        return any(come_in() for come_in in self._beside)

    def start(
        self,
        nap_s: Callable[[float], float] | None = None,
        look_beside: Job | None = None,
    ) -> None:
        """``nap_s``: seconds until something needs an exact moment, at most its argument.

        ``look_beside`` is called while a job waits, after each :meth:`put` and :meth:`wake`: it may
        have changes :meth:`come_in`.
        """
        if nap_s is not None:
            self._nap_s = nap_s
        if look_beside is not None:
            self._look_beside = look_beside
        self._thread.start()

    def end_soon(self) -> None:
        """Begin no duty from now on; jobs are done until :meth:`stop`."""
        self._ends = True

    def stop(self) -> None:
        """End after the jobs that have been put."""
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()

    @property
    def alive(self) -> bool:
        """True if the conductor's thread runs."""
        return self._thread.is_alive()

    def put(self, job: Job, *, first: bool = False, meanwhile: Job | None = None) -> None:
        """Queue a job; with ``first``, before all that others ask for.

        ``meanwhile``, with ``first``: the part of the job that can't wait for the job under way. It
        is done while that waits; not at all if no job does. While it waits by :meth:`wait_for`
        itself, others are done.
        """
        if first:
            self._first.put(job)
            self._jobs.put(_look_first)  # it may be asleep
        else:
            self._jobs.put(job)
        if meanwhile is not None:
            with self._lock:
                self._meanwhile[meanwhile] = None
        self.wake()

    def put_once(self, job: Job, *, first: bool = False, meanwhile: Job | None = None) -> None:
        """:meth:`put` a job that sees to everything there is when it begins, unless it waits
        already.
        """

        def begin() -> None:
            with self._lock:
                self._waiting_once.remove(job)
            job()

        with self._lock:
            waits = job in self._waiting_once
            self._waiting_once.add(job)
            if waits and meanwhile is not None:
                self._meanwhile[meanwhile] = None
        if waits:
            self.wake()
        else:
            self.put(begin, first=first, meanwhile=meanwhile)

    def wake(self) -> None:
        """Have a job that waits look around: changes may come in beside it."""
        self._woken.set()

    def wait_for(self, futures: Collection[Future[Any]]) -> None:
        """Return once these are done, in the conductor's thread; do meanwhile what can't wait."""
        left = len(futures)

        def one_done(_future: Future[Any]) -> None:
            nonlocal left
            with self._lock:
                left -= 1
            if not left:
                self._woken.set()

        for future in futures:
            future.add_done_callback(one_done)
        while left:
            self._woken.wait()
            self._woken.clear()
            while (job := self._next_meanwhile()) is not None:
                self._safely(job, "job")
            if left:
                self._safely(self._look_beside, "job")

    def in_part(self, duty: Duty, action: Job) -> None:
        """Do ``action``, a part of a duty that is due, while the job under way waits.

        That is done once in the duty's interval. The duty itself is due as before. For the
        conductor's thread.
        """
        every_s = duty.every_s()
        if every_s is None or self._ends:
            return
        if time.monotonic() >= max(duty.last_s, duty.in_part_s) + every_s:
            self._safely(action, duty.stage)
            duty.in_part_s = time.monotonic()

    def _next_meanwhile(self) -> Job | None:
        """One at a time: while it waits for devices, the next is done."""
        with self._lock:
            job = next(iter(self._meanwhile), None)
            if job is not None:
                del self._meanwhile[job]
            if self._meanwhile:
                self._woken.set()
        return job

    def ask(self, question: Callable[[], _AnswerT]) -> _AnswerT:
        """Have the conductor answer between two jobs, for another thread that waits.

        Raises DeviceUnavailable if changes under way take too long: it is not done then, unless it
        has begun.
        """
        answer: Future[_AnswerT] = Future()

        def job() -> None:
            if not answer.set_running_or_notify_cancel():
                return  # who asked was told to ask again
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._jobs.put(job)
        try:
            return answer.result(_PATIENCE_S)
        except TimeoutError:
            why = f"busy with other changes for {_PATIENCE_S:g} s: ask again"
            if not answer.cancel():
                why = "has begun it, and is not through: look later what came of it"
            raise DeviceUnavailable("controller", why) from None

    # -- the conductor's thread -------------------------------------------------------------------

    def _conduct(self) -> None:
        while True:
            for duty in self._duties:
                if not self._ends:
                    self._do_if_due(duty)
                self._do_first()
            try:
                job = self._jobs.get(timeout=self._nap_s(_LONGEST_NAP_S))
            except queue.Empty:
                continue
            self._do_first()
            if job is None:
                return
            if job is not _look_first:
                self._safely(job, "job")

    def _do_first(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._safely(self._first.get_nowait(), "job")
        # Of what could have been done meanwhile, all has been seen to by now.
        if self._first.empty():
            with self._lock:
                self._meanwhile.clear()

    def _do_if_due(self, duty: Duty) -> None:
        every_s, now_s = duty.every_s(), time.monotonic()
        if every_s is None:
            duty.last_s = now_s
            return
        due_s = duty.last_s + every_s
        if now_s < due_s:
            return
        self._safely(duty.action, duty.stage)
        ended_s = time.monotonic()
        duty.last_s = due_s if ended_s - due_s < every_s else ended_s

    def _safely(self, job: Job, stage: str) -> None:
        """Do a job; its errors are logged, so that none ends the conductor."""
        try:
            with self._metrics.stage(stage):
                job()
        except HydraError as error:
            self._metrics.job_failed()
            LOG.error("%s", error)
        except Exception:
            self._metrics.job_failed()
            LOG.exception("a job failed unexpectedly; the controller goes on")
