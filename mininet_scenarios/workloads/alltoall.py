"""An all-to-all bulk transfer over TCP in rounds: the traffic of a parallel FFT's transposes.

Each rank runs as a process of its own in some host, all with the same list of peers::

    python -m mininet_scenarios.workloads.alltoall --rank 0 \
        --peers 10.0.1.1:5400,10.0.2.1:5400 --bytes 1000000 --rounds 10 --report rank0.json

In every round each rank sends ``bytes`` to each other rank, and goes on to the next round when it
has sent and received everything of this one; then it "computes" for a while. Arriving data is
compared with the expected data of its sender. One thread and one selector per rank.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.workloads.mesh import Endpoint, barrier, connect_all
from mininet_scenarios.workloads.reports import StopFlag, WorkloadError, report_as, write_report

CHUNK_BYTES: Final = 65_536
SAMPLE_S: Final = 0.1
_SELECT_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Exchange:
    """The common work of all ranks."""

    peers: tuple[Endpoint, ...]
    """Address of each rank; the position is the rank."""
    bytes_per_pair: int
    rounds: int
    compute_s: float = 0.0
    congestion: str | None = None
    """TCP congestion control; None: the system's default."""
    meet_timeout_s: float = PATIENCE_S

    def __post_init__(self) -> None:
        if len(self.peers) < 2 or self.bytes_per_pair < 1 or self.rounds < 1 or self.compute_s < 0:
            raise WorkloadError(
                "an all-to-all needs at least two ranks, one byte and one round, got "
                f"{len(self.peers)} ranks, {self.bytes_per_pair} B, {self.rounds} rounds, "
                f"{self.compute_s} s of computing"
            )


@dataclass(frozen=True, slots=True)
class ProgressSample:
    at_s: float
    received_bytes: int
    """Bytes received by the rank from all others, since the start."""


@dataclass(frozen=True, slots=True)
class RankReport:
    rank: int
    complete: bool
    """True if all rounds were done; otherwise ``reason`` says why not."""
    verified: bool
    """True if every round's bytes were right."""
    started_s: float
    """Time by ``CLOCK_MONOTONIC`` at which all ranks had met."""
    finished_s: float
    round_s: tuple[float, ...]
    received_bytes: int
    samples: tuple[ProgressSample, ...]
    reason: str = ""

    @property
    def seconds(self) -> float:
        return self.finished_s - self.started_s


def rank_report_from_json(data: Mapping[str, Any]) -> RankReport:
    """Raises WorkloadError if a field is missing."""
    known = report_as(RankReport, data)
    samples = tuple(ProgressSample(**sample) for sample in data["samples"])
    return replace(known, round_s=tuple(known.round_s), samples=samples)


# --- data to send -----------------------------------------------------------------------------


def chunk_of(source: int, destination: int, round_number: int) -> bytes:
    """The chunk repeated by ``source`` towards ``destination`` in a round: different for each pair
    and round.
    """
    seed = struct.pack("!HHI", source, destination, round_number)
    return seed * (CHUNK_BYTES // len(seed))


def checksum_of(chunk: bytes, length: int) -> int:
    """CRC-32 of ``length`` bytes of ``chunk`` repeated."""
    whole, rest = divmod(length, len(chunk))
    crc = 0
    for _ in range(whole):
        crc = zlib.crc32(chunk, crc)
    return zlib.crc32(memoryview(chunk)[:rest], crc)


@dataclass(slots=True)
class Peer:
    """The connection to another rank, and the progress in the present round."""

    rank: int
    sock: socket.socket
    chunk: bytes = b""
    length: int = 0
    sent: int = 0
    received: int = 0
    crc: int = 0

    def begin(self, chunk: bytes, length: int) -> None:
        """Start a round that sends ``length`` bytes of ``chunk`` repeated."""
        self.chunk, self.length, self.sent, self.received, self.crc = chunk, length, 0, 0, 0

    @property
    def interest(self) -> int:
        """Selector events still of use; reading stops where the next round's bytes begin."""
        reading = selectors.EVENT_READ if self.received < self.length else 0
        writing = selectors.EVENT_WRITE if self.sent < self.length else 0
        return reading | writing

    def push(self) -> None:
        """Send as much as the socket takes now."""
        start = self.sent % len(self.chunk)
        end = min(len(self.chunk), start + self.length - self.sent)
        self.sent += self.sock.send(memoryview(self.chunk)[start:end])

    def pull(self, buffer: memoryview) -> int:
        """Read the arrived bytes of the present round; returns the number of bytes."""
        wanted = min(len(buffer), self.length - self.received)
        count = self.sock.recv_into(buffer, wanted)
        if count == 0:
            raise WorkloadError(f"rank {self.rank} hung up in the middle of a round")
        self.crc = zlib.crc32(buffer[:count], self.crc)
        self.received += count
        return count


# --- the rank ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Rank:
    """A rank at work: rounds one after the other, and a record of progress."""

    number: int
    work: Exchange
    peers: Sequence[Peer]
    stop: StopFlag
    received_bytes: int = 0
    verified: bool = True
    round_s: list[float] = field(default_factory=list)
    samples: list[ProgressSample] = field(default_factory=list)
    _buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(4 * CHUNK_BYTES)))

    def run(self) -> RankReport:
        """Do all rounds; ends early, and reports the reason, if stopped or left by another rank."""
        started_s = time.monotonic()
        self._sample(started_s)
        for peer in self.peers:
            peer.sock.setblocking(False)
        reason = self._rounds(started_s)
        finished_s = time.monotonic()
        self.samples.append(ProgressSample(finished_s, self.received_bytes))
        return RankReport(
            rank=self.number,
            complete=len(self.round_s) == self.work.rounds,
            verified=self.verified,
            started_s=started_s,
            finished_s=finished_s,
            round_s=tuple(self.round_s),
            received_bytes=self.received_bytes,
            samples=tuple(self.samples),
            reason=reason,
        )

    def _rounds(self, started_s: float) -> str:
        """Do the rounds; returns the reason for an early end, or an empty text."""
        for number in range(self.work.rounds):
            try:
                if not self._round(number):
                    return "stopped by a signal"
            except (OSError, WorkloadError) as error:
                return str(error)
            if self.number == 0:
                elapsed_s = time.monotonic() - started_s
                print(json.dumps({"round": number + 1, "elapsed_s": elapsed_s}), flush=True)
        return ""

    def _round(self, number: int) -> bool:
        """Exchange, verify, compute; returns False if stopped before the end."""
        began_s = time.monotonic()
        for peer in self.peers:
            peer.begin(chunk_of(self.number, peer.rank, number), self.work.bytes_per_pair)
        if not self._exchange():
            return False
        for peer in self.peers:
            expected = checksum_of(chunk_of(peer.rank, self.number, number), peer.length)
            self.verified = self.verified and peer.crc == expected
        self._compute()
        self.round_s.append(time.monotonic() - began_s)
        return True

    def _exchange(self) -> bool:
        with selectors.DefaultSelector() as selector:
            for peer in self.peers:
                selector.register(peer.sock, peer.interest, peer)
            while selector.get_map():
                if self.stop.is_set:
                    return False
                for key, events in selector.select(_SELECT_S):
                    self._serve(selector, key.data, events)
                self._sample(time.monotonic())
        return True

    def _serve(self, selector: selectors.BaseSelector, peer: Peer, events: int) -> None:
        before = peer.interest
        if events & selectors.EVENT_READ:
            self.received_bytes += peer.pull(self._buffer)
        if events & selectors.EVENT_WRITE:
            peer.push()
        if peer.interest == 0:
            selector.unregister(peer.sock)
        elif peer.interest != before:
            selector.modify(peer.sock, peer.interest, peer)

    def _compute(self) -> None:
        """Stand in for the arithmetic between two transposes, and keep up the record meanwhile."""
        until_s = time.monotonic() + self.work.compute_s
        while (remaining_s := until_s - time.monotonic()) > 0 and not self.stop.is_set:
            time.sleep(min(remaining_s, SAMPLE_S))
            self._sample(time.monotonic())

    def _sample(self, now_s: float) -> None:
        if not self.samples or now_s - self.samples[-1].at_s >= SAMPLE_S:
            self.samples.append(ProgressSample(now_s, self.received_bytes))


def run_rank(number: int, work: Exchange, stop: StopFlag) -> RankReport:
    """Meet the other ranks, exchange, and part; blocks until done.

    Raises WorkloadError if a rank does not turn up or goes away.
    """
    with ExitStack() as closing:
        connections = connect_all(number, work.peers, work.meet_timeout_s, stop, work.congestion)
        for sock in connections.values():
            closing.enter_context(sock)
        barrier(connections, work.meet_timeout_s)
        peers = [Peer(other, sock) for other, sock in sorted(connections.items())]
        return Rank(number, work, peers, stop).run()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="alltoall", description="All-to-all transfer in rounds.")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--peers", required=True, help="address:port of every rank, in order")
    parser.add_argument("--bytes", type=int, required=True, help="to each other rank, per round")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--compute-ms", type=float, default=0.0, help="pause after each round")
    parser.add_argument("--congestion", help="TCP congestion control, e.g. cubic")
    parser.add_argument("--report", type=Path, required=True, help="JSON report to write")
    args = parser.parse_args(arguments)
    peers = tuple(Endpoint.parse(text) for text in args.peers.split(","))
    if not 0 <= args.rank < len(peers):
        parser.error(f"rank {args.rank} is not one of the {len(peers)} peers (0..{len(peers) - 1})")
    stop = StopFlag()
    stop.install()
    work = Exchange(peers, args.bytes, args.rounds, args.compute_ms / 1e3, args.congestion)
    write_report(args.report, asdict(run_rank(args.rank, work, stop)))


if __name__ == "__main__":
    main()
