"""c-Through's testbed (SIGCOMM 2010, sections 5 and 6), and the cases of its applications.

Four racks with oversubscribed electrical uplinks, or without oversubscription, with or without
circuits. In each interval the controller gives each rack a circuit to another rack, and in the next
interval to the next rack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import yaml

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage import building
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.testbed.servers import run_in
from mininet_scenarios.testbed.shipped import CONFIGS

T = TypeVar("T")
"""Report of an application."""

CONFIG: Final = CONFIGS / "cthrough.yaml"
RACKS: Final = 4
RACK_SERVERS: Final = 4
OVERSUBSCRIBED_MBPS: Final[Mapping[str, float]] = {"40:1": 100.0, "10:1": 400.0, "4:1": 1000.0}
"""Rate of a rack's electrical uplink, by oversubscription."""
FULL_BISECTION_MBPS: Final = 4000.0
"""Rate of the uplink without oversubscription, and of a circuit."""
LEAST_BUFFER_BYTES: Final = 16_384
"""Smallest buffer with room for TCP's segments under way."""
CONTROLLER_S: Final = 4.0
"""Rough start time of a controller."""
SETUP_S: Final = 3.0
"""Rough time of a case besides the application."""


@dataclass(frozen=True, slots=True)
class Circuits:
    """Use of circuits in a case."""

    cycle: CycleName
    interval_s: float
    """Time between decisions of the controller."""


@dataclass(frozen=True, slots=True)
class Case:
    """Network on which an application runs."""

    electrical_mbps: float
    """Rate of a rack's uplink, in the paper's network."""
    buffer_mb: float
    """Buffer of each socket, in the paper's network."""
    circuits: Circuits | None
    """Use of circuits; None: the electrical network alone."""

    @property
    def way(self) -> str:
        return "packets alone" if self.circuits is None else self.circuits.cycle.value

    @property
    def interval_s(self) -> float | None:
        return None if self.circuits is None else self.circuits.interval_s

    def __str__(self) -> str:
        buffers = f"buffers of {self.buffer_mb:g} MB"
        text = f"{self.electrical_mbps:g} Mb/s electrical, {buffers}, {self.way}"
        return text if self.circuits is None else f"{text}, every {self.circuits.interval_s:g} s"


@dataclass(frozen=True, slots=True)
class Scale:
    rate: float
    """Factor of rates and buffers; times stay."""
    part: float
    """Part of the paper's data."""


@dataclass(frozen=True, slots=True)
class Completion(Generic[T]):
    """Result of a case."""

    electrical_mbps: float
    buffer_mb: float
    way: str
    interval_s: float | None
    seconds: float
    """Time to the end of the application."""
    done: T
    changes: int
    dark_frames: int


@contextmanager
def stage_of(
    electrical_mbps: float,
    scale: Scale,
    work_dir: Path,
    narrator: Narrator,
    servers: int = RACK_SERVERS,
) -> Iterator[Stage]:
    """The testbed with electrical uplinks of ``electrical_mbps`` in the paper's network.

    With fewer ``servers`` in a rack than the paper's, their links are faster in proportion.
    """
    document = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    document["electrical"]["rate_mbps"] = electrical_mbps
    document["racks"][0]["servers"][0]["names"] = f"h{{rack}}[1-{servers}]"
    document["server_rate_mbps"] *= RACK_SERVERS / servers
    work_dir.mkdir(parents=True)
    source = work_dir / "network.yaml"
    source.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    with building.stage_of(source, scale.rate, work_dir / "stage", narrator) as stage:
        yield stage


def buffer_bytes(buffer_mb: float, scale: Scale) -> int:
    """Size of a socket's buffer; ``buffer_mb``: the size in the paper's network."""
    return max(LEAST_BUFFER_BYTES, round(buffer_mb * 1e6 * scale.rate))


def play(
    stage: Stage,
    case: Case,
    scale: Scale,
    senders: Iterable[str],
    application: Callable[[], tuple[float, T]],
) -> Completion[T]:
    """Run an application, which returns its time and its report, in one case.

    Sockets of ``senders`` get the case's buffers. Raises ScenarioError for an invalid run.
    """
    octets = buffer_bytes(case.buffer_mb, scale)
    for server in senders:
        setting = f"net.ipv4.tcp_wmem=4096 {octets} {octets}"
        run_in(stage.testbed.host(server), "sysctl", "-qw", setting)
    cycle = CycleName.HITLESS if case.circuits is None else case.circuits.cycle
    with stage.controller(_policy(case), cycle) as client:
        client.reconfigure([])  # remains of the previous case
        before = stage.losses()
        earlier = client.changes_done()
        seconds, done = application()
        changes = len(client.changes_done() - earlier)
        dark_frames = stage.losses().since(before).dark_frames
    return Completion(
        electrical_mbps=case.electrical_mbps,
        buffer_mb=case.buffer_mb,
        way=case.way,
        interval_s=case.interval_s,
        seconds=seconds,
        done=done,
        changes=changes,
        dark_frames=dark_frames,
    )


def _policy(case: Case) -> dict[str, Any]:
    """Policy that serves the racks in turn, one per interval.

    If all demands are equal, the largest queue belongs to the rack with the longest wait, and
    c-Through's matching takes the largest queue. Cases with intervals from 1 s on differ only in
    reloadable settings, so one controller is enough for all of them.
    """
    circuits, interval_s = case.circuits, case.interval_s or 1.0
    return {
        "mode": "on-request" if circuits is None else "periodic",
        "sharing": "undifferentiated",
        "algorithm": "edmonds",
        "max_hops": 1,
        "epoch_s": interval_s,
        "poll_interval_s": min(0.25, interval_s / 4),
        # Otherwise a rack without further data would keep its turn.
        "demand_window_s": min(0.5, interval_s / 2),
        "audit_interval_s": 0,
    }
