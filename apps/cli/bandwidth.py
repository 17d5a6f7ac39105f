"""``hydra with-bandwidth``: reserve, run a command, release."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

import click
from pydantic import ValidationError

from apps.cli.client import bearer_token, trusted, url_option
from apps.cli.command import Command
from apps.cli.output import CommandError, ExitCode, warn
from apps.client import ClientError, HydraClient
from apps.rest.models import Group, MatrixEntry
from hydra.lifecycle import ReservationState

_POLL_S: Final = 0.1
_FATAL: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FROM_TERMINAL: Final = frozenset({signal.SIGINT, signal.SIGQUIT})
_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127
_KILLED: Final = 128


def _entry(text: str) -> MatrixEntry:
    pair, _, rate = text.partition("=")
    src, _, dst = pair.partition(":")
    try:
        return MatrixEntry(src=src, dst=dst, bandwidth_mbps=float(rate))
    except (ValueError, ValidationError):
        raise click.BadParameter(f"{text!r} is not SRC:DST=MBPS, such as r1:r2=50") from None


def _read_entry(_ctx: click.Context, _param: click.Parameter, value: str) -> MatrixEntry:
    return _entry(value)


def _read_entries(
    _ctx: click.Context, _param: click.Parameter, values: Sequence[str]
) -> list[MatrixEntry]:
    return [_entry(value) for value in values]


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
        # The terminal sends its own to both of us.
        if self.child is not None and not (number in _FROM_TERMINAL and sys.stdin.isatty()):
            self.child.send_signal(number)


@click.command(
    "with-bandwidth",
    cls=Command,
    examples=[
        "hydra with-bandwidth r1:r2=40 -- rsync -a data/ h21:data/",
        "hydra with-bandwidth r1:r2=40 --pair r1:r3=40 --duration 3600 -- ./shuffle.sh",
    ],
)
@click.argument("first", metavar="SRC:DST=MBPS", callback=_read_entry)
@click.argument("command", metavar="-- COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--pair",
    "more",
    metavar="SRC:DST=MBPS",
    multiple=True,
    callback=_read_entries,
    help="One more pair of racks or servers; repeatable. All or nothing.",
)
@click.option(
    "--duration",
    "duration_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Have it released after this long in any case, even if this is killed.",
)
@url_option
def with_bandwidth(
    first: MatrixEntry,
    command: Sequence[str],
    more: Sequence[MatrixEntry],
    duration_s: float | None,
    url: str,
) -> None:
    """Run COMMAND with bandwidth between SRC and DST.

    Reserves, waits until the circuits are up, runs COMMAND, and releases: also when COMMAND fails,
    and on Ctrl-C, SIGTERM, SIGHUP and SIGQUIT, which are passed on to it. Exits as COMMAND does
    (128 and more: by a signal), and with 1 where the bandwidth is not to be had.
    """
    signals = _Signals()
    try:
        with (
            signals.caught(),
            HydraClient(url, bearer_token(), trusted()) as client,
            _reserved(client, [first, *more], duration_s, signals),
        ):
            status = _run(command, signals)
    except ClientError as error:
        raise CommandError(str(error)) from error
    click.get_current_context().exit(status)


@contextmanager
def _reserved(
    client: HydraClient,
    entries: Sequence[MatrixEntry],
    duration_s: float | None,
    signals: _Signals,
) -> Iterator[None]:
    """Active inside; released whatever happens. A signal before that leaves it to no one."""
    group = client.reserve_matrix(entries, duration_s=duration_s)
    try:
        _await_active(client, group, signals)
        yield
    finally:
        try:
            client.release_group(group.id)
        except ClientError as error:
            warn(f"group {group.id} was not released ({error}): `hydra release` its reservations")


def _await_active(client: HydraClient, group: Group, signals: _Signals) -> None:
    """Raises CommandError if it does not come up."""
    states = [one.state for one in group.reservations]
    while ReservationState.ACTIVATING in states and signals.received is None:
        time.sleep(_POLL_S)
        group = client.group(group.id)
        states = [one.state for one in group.reservations]
    bad = [one for one in group.reservations if one.state is not ReservationState.ACTIVE]
    if bad and signals.received is None:
        reasons = (f"{one.src} to {one.dst} is {one.state.value}: {one.reason}" for one in bad)
        raise CommandError("; ".join(reasons))


def _run(command: Sequence[str], signals: _Signals) -> int:
    """The exit status that a shell would give."""
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
