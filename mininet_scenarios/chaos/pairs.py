"""Probes between every pair of servers over IPv4 and IPv6, and silences of each pair."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Self

import mininet_scenarios
from mininet_scenarios.stage.stage import ScenarioError, Stage
from mininet_scenarios.workloads.pair_probes import Received, Report

PERIOD_MS: Final = 100.0
_REPOSITORY: Final = Path(mininet_scenarios.__file__).parents[1]
_ALL_FLOWS_S: Final = 20.0
_UNDER_WAY_S: Final = 0.5
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Outage:
    """Datagrams lost in a row from one server to another. Times: ``CLOCK_MONOTONIC``."""

    source: str
    destination: str
    version: int
    lost: int
    from_s: float
    to_s: float
    lasts: bool = False
    """True if nothing has come since; then ``to_s`` is the time of the look."""

    @property
    def silent_s(self) -> float:
        """Time in which sent datagrams were lost, without pauses of a sender stopped by the
        machine.
        """
        return min(self.to_s - self.from_s, (self.lost + 1) * PERIOD_MS / 1000)

    def __str__(self) -> str:
        return (
            f"{self.source} to {self.destination} over IPv{self.version}: {self.lost} lost in "
            f"{self.silent_s:.1f} s from {clock(self.from_s)} on"
        )


def clock(at_s: float) -> str:
    """A moment of ``CLOCK_MONOTONIC`` in the form of logs."""
    unix_s = time.time() - time.monotonic() + at_s
    return f"{datetime.fromtimestamp(unix_s):%H:%M:%S.%f}"[:-3]


class _Prober:
    """The prober in a server's namespace; ended with the block."""

    def __init__(self, stage: Stage, server: str, command: Sequence[str]) -> None:
        self._server = server
        ours, theirs = socket.socketpair()
        self._talk = ours.makefile("rw", encoding="utf-8")
        ours.close()
        with theirs:
            self._process = stage.testbed.host(server).popen(
                [*command, "--server", server],
                stdin=theirs,
                stdout=theirs,
                stderr=None,
                cwd=_REPOSITORY,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.wait()
        self._talk.close()

    def ask(self) -> None:
        self._talk.write("report\n")
        self._talk.flush()

    def report(self) -> Report:
        if not (line := self._talk.readline()):
            raise ScenarioError(f"the prober on {self._server} ended")
        return Report.from_json(json.loads(line))


class Pairs:
    """Probers in all servers."""

    def __init__(self, probers: Mapping[str, _Prober]) -> None:
        self._probers = probers

    def wait_for_all_flows(self) -> None:
        """Wait until each server has received datagrams of all others. Raises ScenarioError after
        a while.
        """
        deadline_s = time.monotonic() + _ALL_FLOWS_S
        while silent := [
            f"{flow} at {name}"
            for name, report in self._reports().items()
            for flow, received in report.received.items()
            if received.next is None
        ]:
            if time.monotonic() > deadline_s:
                raise ScenarioError(f"nothing was received on: {', '.join(silent[:8])}")
            time.sleep(_POLL_S)

    def outages(self) -> list[Outage]:
        """All losses since the start, including present silences."""
        sent = self._reports()
        time.sleep(_UNDER_WAY_S)
        return [
            outage
            for destination, report in self._reports().items()
            for flow, received in report.received.items()
            for outage in _outages(flow, destination, received, sent)
        ]

    def silent(self) -> list[Outage]:
        """Pairs without a recent datagram."""
        return [outage for outage in self.outages() if outage.lasts]

    def sent(self) -> int:
        """Datagrams sent by all servers so far."""
        return sum(report.sent * len(report.received) for report in self._reports().values())

    def _reports(self) -> dict[str, Report]:
        for prober in self._probers.values():
            prober.ask()
        return {name: prober.report() for name, prober in self._probers.items()}


def _outages(
    flow: str, destination: str, received: Received, sent: dict[str, Report]
) -> Iterator[Outage]:
    source, _, version = flow.partition("/")
    for run in received.missing:
        yield Outage(source, destination, int(version), run.count, run.from_s, run.to_s)
    lost = sent[source].sent - (received.next or 0)
    if received.next is not None and lost > 0:
        now_s = sent[source].now_s
        yield Outage(
            source, destination, int(version), lost, received.last_sent_s, now_s, lasts=True
        )


@contextmanager
def every_pair(stage: Stage) -> Iterator[Pairs]:
    """Probes between all servers for the length of a block."""
    peers = {
        server.name: [
            str(next(address.ip for address in server.addresses if address.version == version))
            for version in sorted({address.version for address in server.addresses})
        ]
        for server in stage.fabric.servers
    }
    command = [sys.executable, "-m", "mininet_scenarios.workloads.pair_probes"]
    command += ["--peers", json.dumps(peers), "--period-ms", f"{PERIOD_MS:g}"]
    with ExitStack() as stack:
        yield Pairs({name: stack.enter_context(_Prober(stage, name, command)) for name in peers})
