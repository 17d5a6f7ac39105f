"""A command that runs with reserved bandwidth: reserve, run, and release in any case."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

import click

from apps.cli.client import bearer_token, trusted
from apps.cli.output import CommandError, ExitCode, warn
from apps.cli.parameters import FiniteRange, Option
from apps.client import ClientError, HydraClient
from apps.jobs.mpi import HostPair, between_racks
from apps.rest.models import MOST_ENTRIES, Group, MatrixEntry
from hydra.lifecycle import ReservationState

_POLL_S: Final = 0.1
_FATAL: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FROM_TERMINAL: Final = frozenset({signal.SIGINT, signal.SIGQUIT})
_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127
_KILLED: Final = 128


def duration_option(even_if: str) -> Option:
    """``--duration`` of what is reserved; ``even_if`` something keeps it from being released."""
    return click.option(
        "--duration",
        "duration_s",
        type=FiniteRange(min=0, min_open=True),
        metavar="SECONDS",
        help=f"Have it released after this long in any case, even if {even_if}.",
    )


def connected(url: str) -> HydraClient:
    """A client that has the caller's token; use as a context manager."""
    return HydraClient(url, bearer_token(), trusted())


def entries_of(client: HydraClient, traffic: Mapping[HostPair, float]) -> list[MatrixEntry]:
    """Entries for Mb/s from host to host. Raises CommandError if they are too many."""
    rack_of = {server.name: server.rack for server in client.servers().servers}
    wanted = between_racks(traffic, rack_of)
    if len(wanted) > MOST_ENTRIES:
        raise CommandError(
            f"{len(wanted)} pairs of hosts are more than the {MOST_ENTRIES} that can be reserved "
            "as one: use fewer hosts, or a sparser pattern"
        )
    return [
        MatrixEntry(src=src, dst=dst, bandwidth_mbps=mbps) for (src, dst), mbps in wanted.items()
    ]


def run_with(
    client: HydraClient,
    entries: Sequence[MatrixEntry],
    command: Sequence[str],
    duration_s: float | None,
) -> int:
    """Run ``command`` while all of ``entries`` are active; return its exit status as of a shell.

    Without entries it just runs. Signals that would end us are passed on to it. Raises ClientError
    and CommandError if the bandwidth is not available.
    """
    signals = _Signals()
    with signals.caught():
        if not entries:
            return _run(command, signals)
        with _reserved(client, entries, duration_s, signals):
            return _run(command, signals)


class _Signals:
    """Signals that would end this command: remembered, and passed on to the command it runs."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.child: subprocess.Popen[bytes] | None = None

    @contextmanager
    def caught(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._catch) for number in _FATAL}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _catch(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        # The terminal sends its own signals to both of us.
        if self.child is not None and not (number in _FROM_TERMINAL and sys.stdin.isatty()):
            self.child.send_signal(number)


@contextmanager
def _reserved(
    client: HydraClient,
    entries: Sequence[MatrixEntry],
    duration_s: float | None,
    signals: _Signals,
) -> Iterator[None]:
    """Reservations that are active inside the block, and released in any case.

    A signal before that leaves nothing reserved.
    """
    group = client.reserve_matrix(entries, duration_s=duration_s)
    try:
        await_active(client, group, lambda: signals.received is not None)
        yield
    finally:
        try:
            client.release_group(group.id)
        except ClientError as error:
            warn(f"group {group.id} was not released ({error}): `hydra release` its reservations")


def await_active(
    client: HydraClient, group: Group, given_up: Callable[[], bool] = lambda: False
) -> None:
    """Wait until the group is active, or ``given_up``. Raises CommandError if it fails."""
    states = [one.state for one in group.reservations]
    while ReservationState.ACTIVATING in states and not given_up():
        time.sleep(_POLL_S)
        group = client.group(group.id)
        states = [one.state for one in group.reservations]
    if not given_up():
        _check_active(group)


def _check_active(group: Group) -> None:
    """Raise CommandError unless all of a group is active."""
    bad = [one for one in group.reservations if one.state is not ReservationState.ACTIVE]
    if bad:
        reasons = (f"{one.src} to {one.dst} is {one.state.value}: {one.reason}" for one in bad)
        raise CommandError("; ".join(reasons))


def _run(command: Sequence[str], signals: _Signals) -> int:
    """The exit status that a shell would give the command."""
    if signals.received is not None:
        return _KILLED + signals.received
    try:
        signals.child = subprocess.Popen(command)
    except FileNotFoundError:
        warn(f"{command[0]}: no such command")
        return _NOT_FOUND
    except OSError as error:
        warn(f"{command[0]}: {error.strerror}")
        return _NOT_EXECUTABLE
    if signals.received is not None:  # between the two
        signals.child.send_signal(signals.received)
    code = signals.child.wait()
    return code if code >= ExitCode.OK else _KILLED - code
