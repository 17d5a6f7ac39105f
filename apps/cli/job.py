"""Run a command with reserved bandwidth: reserve, run, and release in any case."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Final, TypeVar

import click

from apps.cli.client import in_words
from apps.cli.output import CommandError, ExitCode, print_error, warn
from apps.cli.parameters import Duration, Option
from apps.jobs.mpi import HostPair, between_racks, check_known
from apps.rest.document import MOST_ENTRIES
from hydra_hybrid_network_client.documents import (
    CreatedGroup,
    Group,
    MatrixEntry,
    ReservationState,
    Shape,
)
from hydra_hybrid_network_client.errors import ClientError, NoAnswer, Refused
from hydra_hybrid_network_client.synchronous.client import HydraClient

_T = TypeVar("_T")
_Made = Group | CreatedGroup | Shape

PATIENCE_S: Final = 300.0
"""Longest tolerated absence of a controller: long enough for a restart with a reboot of the host.
"""
_POLL_S: Final = 0.1
_PAUSE_S: Final = 1.0
_FATAL: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGXCPU,
)
"""Signals from people and batch systems that end a process without a handler."""
_FROM_TERMINAL: Final = frozenset({signal.SIGINT, signal.SIGQUIT})
_SI_KERNEL: Final = 0x80
"""``si_code`` of a signal sent by the kernel, not by a process: sigaction(2)."""
_CHILD_CHECK_S: Final = 1.0
"""Longest wait for SIGCHLD, which never arrives if the parent started us with SIGCHLD ignored."""
_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127
_KILLED: Final = 128


def duration_option(even_if: str) -> Option:
    """``--duration`` of a reservation; ``even_if``: a cause that prevents the release, in words."""
    return click.option(
        "--duration",
        "duration_s",
        type=Duration(min=0, min_open=True),
        help=(
            "Release the bandwidth after this time (seconds, or 90m, 1h30m, 2d) in any case, "
            f"even if {even_if}."
        ),
    )


@contextmanager
def connected(url: str) -> Iterator[HydraClient]:
    """A client with the caller's token. Client errors end the command in words."""
    with in_words(url), HydraClient(url) as client:
        yield client


def racks_of(client: HydraClient, hosts: Iterable[str]) -> list[str]:
    """The racks of hosts, each once, in the order of the hosts. Raises HydraError for hosts in no
    rack.
    """
    rack_of, hosts = {server.name: server.rack for server in client.servers().servers}, tuple(hosts)
    check_known(hosts, rack_of)
    return list(dict.fromkeys(rack_of[host] for host in hosts))


def entries_of(client: HydraClient, traffic: Mapping[HostPair, float]) -> list[MatrixEntry]:
    """Reservation entries for Mb/s from host to host. Raises CommandError for too many entries."""
    rack_of = {server.name: server.rack for server in client.servers().servers}
    wanted = between_racks(traffic, rack_of)
    if len(wanted) > MOST_ENTRIES:
        raise CommandError(
            f"{len(wanted)} pairs of hosts are more than the {MOST_ENTRIES} pairs of a group: use "
            "fewer hosts, or a sparser pattern"
        )
    return [
        MatrixEntry(src=src, dst=dst, bandwidth_mbps=mbps) for (src, dst), mbps in wanted.items()
    ]


def run_with(
    client: HydraClient, reserve: Callable[[], _Made] | None, command: Sequence[str]
) -> int:
    """Run ``command`` while all that ``reserve`` makes is active; return the exit status as a shell
    would.

    Without ``reserve``, just run ``command``. Fatal signals are passed on to the command. Raises
    ClientError and CommandError if the bandwidth is not available.
    """
    signals = _Signals()
    with signals.caught():
        if reserve is None:
            return _run(command, signals)
        with _reserved(client, reserve, signals):
            return _run(command, signals)


class _Interrupted(Exception):
    """A signal ended a wait."""


class _Signals:
    """Fatal signals of this process: recorded, and passed on to the child command."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._unsent: list[int] = []
        """Caught signals not yet passed on to the child."""
        self._caught: frozenset[int] = frozenset()
        self._interrupts = False

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Signals raise _Interrupted inside the block."""
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch fatal signals inside the block. Signals ignored before (nohup) stay ignored."""
        before = {
            number: signal.signal(number, self._catch)
            for number in _FATAL
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        self._caught = frozenset(before)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _catch(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        self._unsent.append(number)
        if self._interrupts:
            raise _Interrupted(f"ended by {signal.Signals(number).name}")

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the child and return its return code; pass on signals, including signals
        received earlier.

        Signals from the terminal reach the child directly. A handler does not learn the sender of a
        signal, so signals are blocked and awaited instead. The system may still deliver a signal to
        another thread (libraries start threads); Python then runs the handler in the main thread.
        """
        awaited = {*self._caught, signal.SIGCHLD}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
        try:
            if self.received is not None:
                self._unsent = [self.received]
            while (code := child.poll()) is None:
                while self._unsent:
                    child.send_signal(self._unsent.pop(0))
                came = signal.sigtimedwait(awaited, _CHILD_CHECK_S)
                if came is None or came.si_signo == signal.SIGCHLD:
                    continue
                self.received = came.si_signo
                if came.si_signo not in _FROM_TERMINAL or came.si_code != _SI_KERNEL:
                    child.send_signal(came.si_signo)
            return code
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _reserved(
    client: HydraClient, reserve: Callable[[], _Made], signals: _Signals
) -> Iterator[None]:
    """Reserve, wait until the reservations are active or a signal arrives, and run the block.

    The reservations are released after the block, or after a failure, in any case.
    """
    group = reserve()
    try:
        with suppress(_Interrupted):
            await_active(client, group, signals=signals)
        yield
    finally:
        try:
            patiently(lambda: client.release_group(group.id), "release", signals=signals)
        except (ClientError, _Interrupted) as error:
            warn(f"group {group.id} was not released ({error}): `hydra release` its reservations")


def patiently(
    ask: Callable[[], _T],
    what: str,
    patience_s: float = PATIENCE_S,
    signals: _Signals | None = None,
) -> _T:
    """The result of ``ask``; retry while no controller answers or leads.

    Raises ClientError after ``patience_s`` without success, and _Interrupted if a signal arrives
    after the first failure.
    """
    until_s = time.monotonic() + patience_s
    with ExitStack() as stack:
        warned = False
        while True:
            try:
                return ask()
            except ClientError as error:
                passes = isinstance(error, NoAnswer) or (
                    isinstance(error, Refused) and error.passes
                )
                if not passes or time.monotonic() >= until_s:
                    raise
                if not warned:
                    warned = True
                    if signals is not None:
                        stack.enter_context(signals.interrupting())
                    warn(f"{what}: {error}; retrying for {patience_s:g} s")
            time.sleep(_PAUSE_S)


def await_active(
    client: HydraClient,
    group: _Made,
    patience_s: float = PATIENCE_S,
    signals: _Signals | None = None,
) -> None:
    """Wait until the group is active, or for a signal. Raises CommandError if the group fails."""

    def look() -> Group:
        return client.group(group.id)

    now: _Made = group
    while signals is None or signals.received is None:
        if all(
            reservation.state is not ReservationState.ACTIVATING for reservation in now.reservations
        ):
            _check_active(now)
            return
        time.sleep(_POLL_S)
        now = patiently(look, "wait for circuits", patience_s, signals)


def _check_active(group: _Made) -> None:
    """Raise CommandError unless all of a group is active."""
    bad = [
        reservation
        for reservation in group.reservations
        if reservation.state is not ReservationState.ACTIVE
    ]
    if bad:
        reasons = (
            f"{reservation.src} to {reservation.dst} is {reservation.state.value}: "
            f"{reservation.reason}"
            for reservation in bad
        )
        raise CommandError("; ".join(reasons))


def _run(command: Sequence[str], signals: _Signals) -> int:
    """Run the command; return the exit status as a shell would."""
    if signals.received is not None:
        return _KILLED + signals.received
    try:
        child = subprocess.Popen(command)
    except FileNotFoundError:
        print_error(f"{command[0]}: no such command")
        return _NOT_FOUND
    except OSError as error:
        print_error(f"{command[0]}: {error.strerror}")
        return _NOT_EXECUTABLE
    code = signals.wait(child)
    return code if code >= ExitCode.OK else _KILLED - code
