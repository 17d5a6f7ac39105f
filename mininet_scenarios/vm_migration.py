"""c-Through (SIGCOMM 2010, section 6.1, Fig. 6): a rack's virtual machines migrate to the others.

Eight from each of four servers, evenly to the three other racks. Their memory is compressed on the
way, which takes the processors 52 s whatever the network: an application that makes its data at a
rate, and stands still while its socket's buffer is full. The controller joins the rack
to another one in each interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import yaml

import mininet_scenarios
from hydra.policy import Transition
from mininet_scenarios import demo
from mininet_scenarios.controller_client import ControllerClient
from mininet_scenarios.narrator import Narrator
from mininet_scenarios.stage import Stage
from mininet_scenarios.testbed.servers import run_in
from mininet_scenarios.transfers import Transferred, Wish, transfer_all

CONFIG: Final = Path(mininet_scenarios.__file__).parents[1] / "configs" / "cthrough.yaml"
RACK: Final = "r1"
VMS_PER_SERVER: Final = 8
PAPER_MADE_S: Final = 52.0
"""What the migration takes at full bisection: compression, not the network."""
PAPER_ELECTRICAL_S: Final = 280.0
PAPER_BYTES: Final = PAPER_ELECTRICAL_S * 100e6 / 8
"""Of all images together, compressed: what 100 Mb/s carry in that time."""
OVERSUBSCRIBED_MBPS: Final[Mapping[str, float]] = {"40:1": 100.0, "10:1": 400.0, "4:1": 1000.0}
"""Of a rack's electrical uplink."""
FULL_BISECTION_MBPS: Final = 4000.0
LEAST_BUFFER_BYTES: Final = 16_384
"""Less would not hold the segments that TCP has under way."""
_SETUP_S: Final = 7.0
_LONGEST: Final = 4.0


@dataclass(frozen=True, slots=True)
class Circuits:
    """How circuits are used."""

    transition: Transition
    interval_s: float
    """Between decisions of the controller."""


@dataclass(frozen=True, slots=True)
class Case:
    """One migration."""

    electrical_mbps: float
    """Of a rack, in the paper's network."""
    buffer_mb: float
    """Of each socket, there."""
    circuits: Circuits | None
    """None: the electrical network alone."""

    @property
    def way(self) -> str:
        return "packets alone" if self.circuits is None else self.circuits.transition.value


@dataclass(frozen=True, slots=True)
class Scale:
    rate: float
    """What rates, and what is buffered, are multiplied by; times stay."""
    part: float
    """Of the paper's data, as part of its duration."""

    def expected_s(self, case: Case) -> float:
        """Wall time of one migration, at most."""
        packets_s = PAPER_ELECTRICAL_S * 100 / case.electrical_mbps
        helped_s = packets_s if case.circuits is None else 0.4 * packets_s
        return _SETUP_S + 1.1 * self.part * max(PAPER_MADE_S, helped_s)


@dataclass(frozen=True, slots=True)
class Migration:
    """What became of one case."""

    electrical_mbps: float
    buffer_mb: float
    way: str
    interval_s: float | None
    seconds: float
    """To the end of the last machine, as for all of the paper's data."""
    done: tuple[Transferred, ...]
    changes: int
    dark_frames: int


@contextmanager
def stage_of(
    electrical_mbps: float, scale: Scale, work_dir: Path, narrator: Narrator
) -> Iterator[Stage]:
    """The testbed with electrical uplinks of this rate, in the paper's network."""
    document = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    document["electrical"]["rate_mbps"] = electrical_mbps
    work_dir.mkdir(parents=True)
    source = work_dir / "network.yaml"
    source.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    with demo.stage_of(source, scale.rate, work_dir / "stage", narrator) as stage:
        yield stage


def wishes(stage: Stage, scale: Scale) -> list[Wish]:
    """The machines, dealt out to the servers of the other racks."""
    fabric = stage.fabric
    home = fabric.rack_by_name[RACK]
    others = [rack for rack in fabric.racks if rack is not home]
    # Rack by rack in turn, so that each server has some for each rack.
    places = cycle(
        [one.name for some in zip(*(o.servers for o in others), strict=True) for one in some]
    )
    machines = VMS_PER_SERVER * len(home.servers)
    size_bytes = round(PAPER_BYTES * scale.rate * scale.part / machines)
    made_mbps = PAPER_BYTES * 8 / 1e6 / PAPER_MADE_S * scale.rate / machines
    return [
        Wish(server.name, next(places), size_bytes, f"vm {number}", made_mbps)
        for server in home.servers
        for number in range(VMS_PER_SERVER)
    ]


def run(stage: Stage, case: Case, scale: Scale, narrator: Narrator) -> Migration:
    """Play one case; raises ScenarioError when it can't be counted."""
    title = (
        f"{case.electrical_mbps:g} Mb/s electrical, buffers of {case.buffer_mb:g} MB, {case.way}"
    )
    if case.circuits is not None:
        title += f", every {case.circuits.interval_s:g} s"
    wanted = wishes(stage, scale)
    longest_s = _LONGEST * scale.part * (PAPER_ELECTRICAL_S + PAPER_MADE_S)
    with narrator.phase(title, scale.expected_s(case)), _network(stage, case, scale) as client:
        before = stage.losses()
        earlier = client.changes_done()
        done = transfer_all(stage, wanted, longest_s + 20)
        changes = len(client.changes_done() - earlier)
        dark_frames = stage.losses().since(before).dark_frames
    seconds = max(one.finished_s for one in done) / scale.part
    narrator.say(f"{title}: {seconds:.0f} s, {changes} changes")
    return Migration(
        electrical_mbps=case.electrical_mbps,
        buffer_mb=case.buffer_mb,
        way=case.way,
        interval_s=None if case.circuits is None else case.circuits.interval_s,
        seconds=seconds,
        done=done,
        changes=changes,
        dark_frames=dark_frames,
    )


@contextmanager
def _network(stage: Stage, case: Case, scale: Scale) -> Iterator[ControllerClient]:
    """A controller, and new sockets of the servers that send with buffers of this size."""
    octets = max(LEAST_BUFFER_BYTES, round(case.buffer_mb * 1e6 * scale.rate))
    for server in stage.fabric.rack_by_name[RACK].servers:
        setting = f"net.ipv4.tcp_wmem=4096 {octets} {octets}"
        run_in(stage.testbed.host(server.name), "sysctl", "-qw", setting)
    with stage.controller(_policy(case)) as client:
        client.reconfigure([])  # what the case before left
        yield client


def _policy(case: Case) -> dict[str, Any]:
    """The racks in turn, one per interval: where all want the same, the largest queue is that of
    the rack which has waited longest, which c-Through's matching takes.
    """
    if case.circuits is None:
        return {"mode": "on-request"}
    return {
        "mode": "periodic",
        "sharing": "undifferentiated",
        "transition": case.circuits.transition.value,
        "algorithm": "edmonds",
        "max_hops": 1,
        "epoch_s": case.circuits.interval_s,
        "poll_interval_s": min(0.25, case.circuits.interval_s / 4),
        "demand_window_s": 0.5,
        "audit_interval_s": 0,
    }
