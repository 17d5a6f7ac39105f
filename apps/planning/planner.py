"""The controller's side of the planning process: starts, asks and replaces the process.

A thread waits for a plan without holding the GIL, so the OpenFlow hub and REST run on.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Collection, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeVar

from apps.planning.engine import PlannedChange
from hydra.errors import HydraError, PlanError
from hydra.model import DemandMatrix, Fabric, NetworkState, PortId, Topology
from hydra.policy import Policy, SlotPolicy
from hydra.reservations.reservation import Pin
from hydra.service import CircuitShares, PlanRequest
from hydra.sharing.given_schedule import GivenSchedule
from hydra.sharing.slots import Week

LOG = logging.getLogger("hydra.planner")
_START_S: Final = 60.0
"""Time to load libraries and to make a first plan."""
_LOOK_S: Final = 0.5
"""Seconds between two looks at an idle planner."""
_LONGEST_PAUSE_S: Final = 30.0
"""Longest pause between attempts to start a process that does not start, or soon ends."""
_STAYS_S: Final = 30.0
"""Lifetime in seconds of an idle process, after which the pauses begin short again."""
ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that end the controller; the process ends with the controller alone."""
_ROOT: Final = str(Path(__file__).parents[2])

_AnswerT = TypeVar("_AnswerT")


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to the process."""

    fabric: Fabric
    policy: Policy


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a method of :class:`apps.planning.engine.Planning`, with a time limit."""

    method: str
    arguments: tuple[Any, ...]
    budget_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    value: Any = None
    refusal: HydraError | None = None
    defect: str = ""
    """Traceback of an unexpected error."""


@dataclass(order=True, slots=True, kw_only=True)
class _Call:
    """An entry of the queue; urgent calls come first, equally urgent calls in order of arrival."""

    rank: int
    number: int
    request: Request | None = field(compare=False)
    """None: the end."""
    future: Future[Any] = field(compare=False, default_factory=Future)


class _Died(Exception):
    """The process has ended, by itself or killed."""


class _Process:
    """A planning process, from its start to its end; used in one thread only."""

    def __init__(self) -> None:
        """Raises OSError if the process can't be started."""
        self._socket, child_end = Pipe()
        try:
            self._process = _spawn(child_end)
        except BaseException:
            self._socket.close()
            raise
        finally:
            child_end.close()

    def exchange(self, message: bytes, timeout_s: float) -> Answer:
        """Send, pickled, and receive. Raises _Died, after ``timeout_s`` at the latest."""
        # A kill ends a hanging send or receive in any state of the process.
        watch = threading.Timer(timeout_s, self._process.kill)
        watch.daemon = True
        watch.start()
        try:
            self._socket.send_bytes(message)
            answer: Answer = self._socket.recv()
        except (EOFError, OSError) as error:
            self.end()
            raise _Died(_how(self._process.returncode)) from error
        finally:
            watch.cancel()
        return answer

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process, from any thread: an exchange under way then ends."""
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.close()


def _spawn(child_end: Connection) -> subprocess.Popen[bytes]:
    """Start a new interpreter: a fork would inherit the hub's threads, locks and sockets
    half-way.
    """
    path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "apps.planning.planner_process", str(child_end.fileno())],
        pass_fds=(child_end.fileno(),),
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )


def _how(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        return f"was ended by {signal.Signals(-returncode).name}"
    return f"ended with status {returncode}"


class Planner:
    """Plans in a separate process; thread-safe.

    If the process is dead, a request goes to a new process. A request without an answer within
    ``policy.planning_budget_ms`` and ``policy.planning_grace_ms`` ends the process, and is refused.
    """

    def __init__(self, fabric: Fabric, policy: Policy) -> None:
        # Pickled now, and once: later, other threads may be filling the fabric's caches.
        self._setup = pickle.dumps(Setup(fabric, policy))
        self._budget_s = policy.planning_budget_ms / 1000
        self._patience_s = self._budget_s + policy.planning_grace_ms / 1000
        self._calls: queue.PriorityQueue[_Call] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._process: _Process | None = None
        self._started_s = 0.0
        self._pause_s, self._next_start_s = _LOOK_S, 0.0
        self._closing = threading.Event()
        self._ready = True
        """True if a process is kept waiting for requests."""
        self._thread = threading.Thread(target=self._serve, name="planner", daemon=True)

    @property
    def pid(self) -> int | None:
        """The process's identifier; None without a process."""
        process = self._process
        return None if process is None else process.pid

    def start(self, *, ready: bool = True) -> None:
        """Begin to serve requests. Start the process now, or if not ``ready``, with the first
        request.
        """
        self._ready = ready
        self._thread.start()

    def close(self) -> None:
        """End the process; unanswered requests are refused."""
        self._closing.set()
        process = self._process
        if process is not None:
            process.kill()
        self._calls.put(_Call(rank=-1, number=next(self._numbers), request=None))
        if self._thread.is_alive():
            self._thread.join()

    def propose(
        self,
        current: NetworkState,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
        *,
        urgent: bool,
    ) -> PlannedChange:
        """:meth:`apps.planning.engine.Planning.propose`. Raises PlanError, UnknownName.

        Urgent requests go first. A request that is not urgent is refused if its turn does not come.
        """
        arguments = (current, request, demand, tuple(pins), frozenset(blocked))
        return self._ask(PlannedChange, "propose", arguments, urgent=urgent)

    def shares(
        self, target: Topology, request: PlanRequest, demand: DemandMatrix, pins: Sequence[Pin]
    ) -> CircuitShares:
        """:meth:`apps.planning.engine.Planning.shares`, after urgent requests. Raises PlanError."""
        return self._ask(
            CircuitShares, "shares", (target, request, demand, tuple(pins)), urgent=False
        )

    def begin_week(
        self,
        current: NetworkState,
        request: PlanRequest,
        demand: DemandMatrix,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
        slots: SlotPolicy | GivenSchedule,
        night_s: float,
        horizon_s: float = math.inf,
    ) -> Future[Week]:
        """Begin :meth:`apps.planning.engine.Planning.week`. The future gets the week, or a
        PlanError.

        Use a separate planner for weeks, so that no request waits for a week.
        """
        fixed = tuple(pins), frozenset(blocked)
        arguments = (current, request, demand, *fixed, slots, night_s, horizon_s)
        return self._put("week", arguments, urgent=True)

    def for_pins(
        self,
        current: NetworkState,
        pins: Sequence[Pin],
        blocked: Collection[PortId],
        *,
        urgent: bool,
    ) -> NetworkState:
        """:meth:`apps.planning.engine.Planning.for_pins`; ``urgent`` as in :meth:`propose`.

        Raises PlanError.
        """
        arguments = (current, tuple(pins), frozenset(blocked))
        return self._ask(NetworkState, "for_pins", arguments, urgent=urgent)

    def _ask(
        self, kind: type[_AnswerT], method: str, arguments: tuple[Any, ...], *, urgent: bool
    ) -> _AnswerT:
        """The result of the named method, checked to be of the given ``kind``."""
        value = self._queue(method, arguments, urgent=urgent)
        if not isinstance(value, kind):
            raise PlanError(f"a defect in the planner ({method} gave {value!r})")
        return value

    def _queue(self, method: str, arguments: tuple[Any, ...], *, urgent: bool) -> object:
        future = self._put(method, arguments, urgent=urgent)
        try:
            return future.result(None if urgent else self._patience_s)
        except TimeoutError:
            if not future.cancel():
                return future.result()  # its turn has come, with a time limit of its own
            raise PlanError(
                f"the planner did not get to this within {self._patience_s:g} s, starting or busy "
                "with other requests: try again later"
            ) from None
        except CancelledError:
            raise PlanError("the controller is ending: nothing is planned any more") from None

    def _put(self, method: str, arguments: tuple[Any, ...], *, urgent: bool) -> Future[Any]:
        call = _Call(
            rank=0 if urgent else 1,
            number=next(self._numbers),
            request=Request(method, arguments, self._budget_s),
        )
        self._calls.put(call)
        if self._closing.is_set():
            call.future.cancel()
        return call.future

    # -- in the planner's thread ------------------------------------------------------------------

    def _serve(self) -> None:
        # A new process inherits the mask: no signal must end the process before it ignores the
        # signals itself.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        while not self._closing.is_set():
            if self._living() is None and self._ready and time.monotonic() >= self._next_start_s:
                try:
                    self._start_process()
                except _Died as death:
                    self._complain("the planner does not start: the process %s", death)
                    self._put_off()
            try:
                call = self._calls.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            self._ready = True
            if call.request is not None and call.future.set_running_or_notify_cancel():
                self._settle(call.future, call.request)
        self._wind_up()

    def _complain(self, message: str, *details: object) -> None:
        """Log the end of a process, unless :meth:`close` ended the process."""
        if not self._closing.is_set():
            LOG.error(message, *details)

    def _put_off(self) -> float:
        """Delay the next start, unless a request needs the process: each time longer.

        Returns the delay in seconds.
        """
        pause_s = self._pause_s
        self._next_start_s = time.monotonic() + pause_s
        self._pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s

    def _living(self) -> _Process | None:
        if self._process is not None and not self._process.alive:
            if time.monotonic() - self._started_s >= _STAYS_S:
                self._pause_s = _LOOK_S
            pause_s = self._put_off()
            self._complain(
                "the planner has ended by itself: another planner starts in %g s", pause_s
            )
            self._process.end()
            self._process = None
        return self._process

    def _start_process(self) -> _Process:
        """Start and set up a process. Raises _Died on any error: the thread has to go on."""
        try:
            process = self._process = _Process()
            if self._closing.is_set():
                process.kill()
            process.exchange(self._setup, _START_S)
        except Exception as error:
            if self._process is not None:
                self._process.end()
                self._process = None
            if isinstance(error, _Died):
                raise
            raise _Died(f"can't be run: {error}") from error
        self._started_s = time.monotonic()
        return process

    def _settle(self, future: Future[Any], request: Request) -> None:
        try:
            answer = self._answer(request)
        except PlanError as refusal:
            future.set_exception(refusal)
            return
        except Exception:
            answer = Answer(defect=traceback.format_exc())  # this thread has to go on
        if answer.defect:
            LOG.error("planning failed unexpectedly:\n%s", answer.defect)
            last_line = answer.defect.strip().splitlines()[-1]
            future.set_exception(PlanError(f"a defect in the planner ({last_line}): see the log"))
        elif answer.refusal is not None:
            future.set_exception(answer.refusal)
        else:
            future.set_result(answer.value)

    def _answer(self, request: Request) -> Answer:
        """The process's answer. Raises PlanError without an answer."""
        asked_s = time.monotonic()
        try:
            process = self._living() or self._start_process()
        except _Died as death:
            raise PlanError(f"the planner does not start (it {death}): see the log") from None
        try:
            return process.exchange(pickle.dumps(request), self._patience_s)
        except _Died as death:
            self._process = None
            took_s = time.monotonic() - asked_s
            self._complain("the planner %s after %.1f s of planning", death, took_s)
            if took_s < self._patience_s:
                raise PlanError(f"the planner {death} while planning: try again") from None
        raise PlanError(
            f"no plan came within {self._patience_s:g} s: the planner was stopped; nothing has "
            "changed. Ask again; if that does not help, ask for fewer racks or planes, or raise "
            "policy.planning_budget_ms"
        )

    def _wind_up(self) -> None:
        if self._process is not None:
            self._process.end()
        while not self._calls.empty():
            self._calls.get().future.cancel()
