"""Cables: veth pairs, and the rate and queue of each transmitter."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mininet_scenarios.testbed.shell import ip_batch, run, tc_batch

MAX_NAME_CHARS: Final = 15
"""Linux's limit (IFNAMSIZ less the closing zero byte)."""

_FRAME_BYTES: Final = 1518
_BURST_MS: Final = 1.0
# Open vSwitch mistakes a root qdisc with handle 1 for its own, and deletes the qdisc.
_ROOT: Final = "5:"
_LEAF: Final = "10:"


@dataclass(frozen=True, slots=True)
class QueueSize:
    """Size of each transmitter's queue.

    A port's buffer has the same number of bytes at any rate. So an electrical port at a tenth of
    the rate can hold the data in flight of a full-speed TCP flow diverted there, instead of losing
    the whole window.
    """

    fastest_ms: float = 10.0
    """Longest wait at the fastest transmitters."""
    least_frames: int = 2
    """Least size: at slow links, 10 ms are less than a TCP window."""

    def frames(self, fastest_mbps: float) -> int:
        held = int(_bytes_per_ms(fastest_mbps) * self.fastest_ms / _FRAME_BYTES)
        return max(self.least_frames, held)


USUAL_QUEUES: Final = QueueSize()


@dataclass(frozen=True, slots=True)
class Cable:
    """A veth pair; an end with a rate sends no faster than the rate (Mbps)."""

    a: str
    b: str
    a_rate_mbps: float | None = None
    b_rate_mbps: float | None = None
    b_namespace_pid: int | None = None
    """Process into whose network namespace end ``b`` is put."""


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """Counters of a transmitter's queue since the build."""

    sent_frames: int
    sent_bytes: int
    dropped_frames: int
    backlog_bytes: int


def lay(cables: Iterable[Cable]) -> None:
    """Create the pairs, silent (without IPv6 addresses) and up."""
    laid = tuple(cables)
    ip_batch(_add_line(cable) for cable in laid)
    names = [name for cable in laid for name in _ends_here(cable)]
    for name in names:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    ip_batch(f"link set dev {name} up" for name in names)


def limit_rates(cables: Iterable[Cable], queues: QueueSize = USUAL_QUEUES) -> None:
    """Set the rates. Call after the ends are bridge ports: OVS deletes a new port's qdisc."""
    rates: dict[int | None, list[tuple[str, float]]] = {}
    """Cables by network namespace."""
    for cable in cables:
        if cable.a_rate_mbps is not None:
            rates.setdefault(None, []).append((cable.a, cable.a_rate_mbps))
        if cable.b_rate_mbps is not None:
            rates.setdefault(cable.b_namespace_pid, []).append((cable.b, cable.b_rate_mbps))
    fastest_mbps = max((mbps for ends in rates.values() for _, mbps in ends), default=0.0)
    frames = queues.frames(fastest_mbps)
    for namespace_pid, ends in rates.items():
        lines = [line for name, mbps in ends for line in _rate_lines(name, mbps, frames)]
        tc_batch(lines, namespace_pid)


def limit_rates_again(cables: Sequence[Cable], queues: QueueSize = USUAL_QUEUES) -> None:
    """Set the rates of cables that may have lost all or some rates."""
    for cable in cables:
        for name in _ends_here(cable):
            command = ["tc", "qdisc", "del", "dev", name, "root"]
            subprocess.run(command, capture_output=True, check=False)  # if present
    limit_rates(cables, queues)


def set_up(name: str, *, up: bool) -> None:
    run(["ip", "link", "set", "dev", name, "up" if up else "down"])


def queue_counters(namespace_pid: int | None = None) -> Mapping[str, QueueCounters]:
    """Counters of every rate-limited transmitter here, or in the namespace of a process."""
    enter = [] if namespace_pid is None else ["mnexec", "-a", str(namespace_pid)]
    return {
        queue["dev"]: QueueCounters(
            queue["packets"], queue["bytes"], queue["drops"], queue["backlog"]
        )
        for queue in json.loads(run([*enter, "tc", "-s", "-j", "qdisc", "show"]))
        if queue["kind"] == "pfifo_head_drop" and queue["handle"] == _LEAF
    }


def _add_line(cable: Cable) -> str:
    line = f"link add {cable.a} type veth peer name {cable.b}"
    return line if cable.b_namespace_pid is None else f"{line} netns {cable.b_namespace_pid}"


def _ends_here(cable: Cable) -> tuple[str, ...]:
    return (cable.a, cable.b) if cable.b_namespace_pid is None else (cable.a,)


def _bytes_per_ms(rate_mbps: float) -> float:
    return rate_mbps * 1000 / 8


def _rate_lines(name: str, rate_mbps: float, queue_frames: int) -> Iterable[str]:
    # With less than two frames of burst, HTB's timer, not the rate, sets the speed.
    burst = int(max(2 * _FRAME_BYTES, _bytes_per_ms(rate_mbps) * _BURST_MS))
    rate = f"{rate_mbps * 1000:.0f}kbit"
    yield f"qdisc add dev {name} root handle {_ROOT} htb default 1"
    yield (
        f"class add dev {name} parent {_ROOT} classid {_ROOT}1 htb rate {rate} ceil {rate} "
        f"burst {burst} cburst {burst} quantum {4 * _FRAME_BYTES}"
    )
    # A head drop signals congestion to the sender, not a failure: after a failure, OVS gives up the
    # rest of the batch (up to 31 frames) unsent and uncounted.
    leaf = f"pfifo_head_drop limit {queue_frames}"
    yield f"qdisc add dev {name} parent {_ROOT}1 handle {_LEAF} {leaf}"
