"""Abu-Tair et al. (Photonics 2019): virtual machines migrate over a leaf–spine network.

Each rack's second uplink can be joined to the other cluster directly.

``configs/leaf-spine.yaml`` is the network. Rack i of the first cluster sends all its traffic to
rack i of the second cluster. Without the direct link, the second uplinks end at the spine s1, and
each pair of racks has a path through s1. With the direct link, the second uplinks' ports at s1 are
set aside, and the controller's sharing gives the direct link to pairs: shared by time, there is one
link for the whole cluster, and on demand one for each pair, as in the paper (section 3.1).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from statistics import fmean
from typing import Any, Final

from hydra.policy import Mode, Sharing
from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage import building
from mininet_scenarios.stage.agents import AgentStage, agent_stage
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.stage import CALM_SHARE, ScenarioError, Stage, calm_down, sent_bytes
from mininet_scenarios.stage.transfers import Transferred, Wish, transfer_all
from mininet_scenarios.testbed.shipped import CONFIGS

CONFIG: Final = CONFIGS / "leaf-spine.yaml"
PAIRS: Final = (("r1", "r4"), ("r2", "r5"), ("r3", "r6"))
SPINE: Final = "s1"
DIRECT: Final = "d1"
ELEPHANT: Final = "elephant"
MOUSE: Final = "mouse"
ELEPHANT_BYTES: Final = 3 * 2**30
MOUSE_BYTES: Final = 250 * 2**20
"""Size of a mouse, read as binary: in the paper an elephant alone takes 27.0 s at 1 Gb/s."""
MICE_PER_ELEPHANT: Final = 7
PAPER_EPOCH_S: Final = 10.0
PAPER_MOVE_S: Final = 1.0
"""Time for which a moving link is away; not given in the paper. By the paper's Table 3, elephants
take 7, 11 and 20 s longer with UT than without a direct link, while a rack's link moves 3.3, 6.1
and 9.4 times: 2 s a move. TCP tries again after 0.2 s and then twice as late each time, so a link
away for 0.6 to 1.4 s stops TCP for 1.4 s, and a link away longer for 3 s.
"""
PAPER_MBPS: Final = 1000.0
_DIRECT_LINKS: Final = 3
_SETTLE_S: Final = 1.5
"""Time for agents to report, and for a first round of the controller."""
NETWORK_S: Final = 5.0
"""Rough time in which :func:`network` starts everything."""
_EACH_S: Final = 4.0
"""Time of a case besides the transfers."""
_LONGEST: Final = 6.0
"""Multiple of the time of one uplink for everything; after this time, a run is given up."""


class Regime(Enum):
    """Rule by which pairs get the direct link (section 3.1)."""

    NONE = "no direct link"
    UNDIFFERENTIATED = "UT"
    DIFFERENTIATED = "DT"
    ON_DEMAND = "on demand"

    @property
    def sharing(self) -> Sharing | None:
        return _SHARINGS.get(self)

    @property
    def direct_links(self) -> int:
        """Number of pairs with a direct link at the same time."""
        if self is Regime.NONE:
            return 0
        return _DIRECT_LINKS if self is Regime.ON_DEMAND else 1


_SHARINGS: Final = {
    Regime.UNDIFFERENTIATED: Sharing.UNDIFFERENTIATED,
    Regime.DIFFERENTIATED: Sharing.DIFFERENTIATED,
    Regime.ON_DEMAND: Sharing.ON_DEMAND,
}


@dataclass(frozen=True, slots=True)
class Case:
    """A run: regime, cycle, and number of transfers."""

    regime: Regime
    cycle: CycleName
    transfers: int
    """Number of transfers, a multiple of 24: eight for each pair, one of the eight an elephant."""
    epoch_s: float = PAPER_EPOCH_S
    """Epoch of sharing by time, at the paper's scale."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Factors of the paper's rates and times; sizes have both."""

    rate: float
    time: float

    def bytes_of(self, size_bytes: int) -> int:
        return round(size_bytes * self.rate * self.time)

    def one_uplink_s(self, transfers: int) -> float:
        """Time of a pair's transfers over a single uplink."""
        groups = transfers / len(PAIRS) / (1 + MICE_PER_ELEPHANT)
        size_bytes = groups * (ELEPHANT_BYTES + MICE_PER_ELEPHANT * MOUSE_BYTES)
        return size_bytes * 8 / (PAPER_MBPS * 1e6) * self.time

    def expected_s(self, case: Case) -> float:
        """Wall time of a run: of elephants alone if these have links of their own."""
        alone = case.regime is Regime.ON_DEMAND
        part = ELEPHANT_BYTES / (ELEPHANT_BYTES + MICE_PER_ELEPHANT * MOUSE_BYTES) if alone else 1
        return _EACH_S + 1.1 * part * self.one_uplink_s(case.transfers)


@dataclass(frozen=True, slots=True)
class Run:
    """Result of a case."""

    regime: str
    cycle: str
    transfers: int
    done: tuple[Transferred, ...]
    changes: int
    """Changes of the topology while something was sent."""
    dark_frames: int
    second_uplink_bytes: int
    """Bytes sent by the senders' racks into their second uplinks, headers included."""
    epoch_s: float = PAPER_EPOCH_S
    """Epoch of sharing by time, at the paper's scale."""

    @property
    def mean_mbps(self) -> float:
        """Mean throughput of all transfers."""
        return fmean(transfer.mbps for transfer in self.done)

    def mbps(self, kind: str) -> float:
        """Mean throughput of transfers of a kind."""
        return fmean(transfer.mbps for transfer in self.done if transfer.kind == kind)

    def seconds(self, kind: str) -> float:
        return fmean(transfer.seconds for transfer in self.done if transfer.kind == kind)


def paper_network(scale: Scale) -> dict[str, Any]:
    """:data:`CONFIG` at the given scale, with mirrors as slow as the paper's moving links."""
    network = building.scaled_config(scale.rate, CONFIG)
    moving = {"switching_ms": 1000 * PAPER_MOVE_S * scale.time}
    return {**network, "planes": [{**plane, **moving} for plane in network["planes"]]}


def wishes(transfers: int, scale: Scale) -> list[Wish]:
    """Transfers, elephants first; a pair's transfers take the pair's servers in turn."""
    per_pair, rest = divmod(transfers, len(PAIRS))
    elephants, odd = divmod(per_pair, 1 + MICE_PER_ELEPHANT)
    if rest or odd or not elephants:
        raise ScenarioError(f"{transfers} transfers do not make eight for each of three pairs")
    kinds = [ELEPHANT] * elephants + [MOUSE] * (per_pair - elephants)
    sizes = {ELEPHANT: scale.bytes_of(ELEPHANT_BYTES), MOUSE: scale.bytes_of(MOUSE_BYTES)}
    return [
        Wish(f"h{a[1:]}{1 + number % 2}", f"h{b[1:]}{1 + number % 2}", sizes[kind], kind)
        for a, b in PAIRS
        for number, kind in enumerate(kinds)
    ]


@contextmanager
def network(stage: Stage, scale: Scale) -> Iterator[AgentStage]:
    """A controller for all cases, and agents on all sending servers."""
    racks = {a for a, _ in PAIRS}
    fabric = stage.fabric
    senders = [server.name for server in fabric.servers if fabric.racks[server.rack].name in racks]
    buffer_mb = str(max(1, round(2 * scale.bytes_of(ELEPHANT_BYTES) / 1e6)))
    with agent_stage(stage, senders, _common_policy(scale)) as agents, ExitStack() as stack:
        for server in senders:
            stack.enter_context(agents.agent(server, "--socket-buffer-mb", buffer_mb))
        yield agents


def run(agents: AgentStage, case: Case, scale: Scale, narrator: Narrator) -> Run:
    """Play one case; raises ScenarioError for a run that can't be counted."""
    stage, wanted = agents.stage, wishes(case.transfers, scale)
    title = f"{case.transfers} transfers, {case.regime.value}, {case.cycle.value}"
    if case.epoch_s != PAPER_EPOCH_S:
        title += f", epochs of {case.epoch_s:g} s"
    agents.play(case.cycle)
    with narrator.phase(title, scale.expected_s(case)), agents.client() as client:
        _lead_uplinks(stage, client, case.regime)
        agents.follow(_policy(case, scale))
        time.sleep(_SETTLE_S)
        before = stage.losses()
        bytes_before = _second_uplink_bytes(stage)
        earlier = client.changes_done()
        done = transfer_all(stage, wanted, _LONGEST * scale.one_uplink_s(case.transfers) + 10)
        changes = len(client.changes_done() - earlier)
        sent_bytes = _second_uplink_bytes(stage) - bytes_before
        lost = stage.losses().since(before)
        client.amend({"mode": Mode.ON_REQUEST.value})
    result = Run(
        case.regime.value,
        case.cycle.value,
        case.transfers,
        done,
        changes,
        lost.dark_frames,
        sent_bytes,
        case.epoch_s,
    )
    narrator.say(
        f"{title}: elephants {result.mbps(ELEPHANT):.2f} Mb/s, mice {result.mbps(MOUSE):.2f}; "
        f"{result.changes} changes, {result.dark_frames} frames in the dark"
    )
    return result


def _lead_uplinks(stage: Stage, client: ControllerClient, regime: Regime) -> None:
    """Take down the circuits of the previous case, and set up the spine's paths.

    Ports that must not be joined to second uplinks are set aside.
    """
    for rack, port in client.set_aside_ports():
        client.clear(rack, port)
    client.reconfigure([])
    calm_down(client, CALM_SHARE * _uplink_mbps(stage))
    closed = [SPINE] if regime is not Regime.NONE else [DIRECT]
    for name in closed:
        for port in _ports(stage, name, 0):
            client.set_aside(name, port, "the other end of the second uplinks is in use")
    if regime is not Regime.NONE:
        for port in _ports(stage, DIRECT, regime.direct_links):
            client.set_aside(DIRECT, port, "the cluster shares one direct link")
        return
    client.reconfigure([PairDemand(a, b, 0.9 * _uplink_mbps(stage)) for a, b in PAIRS])
    for a, b in PAIRS:
        route = client.path_between(a, b)
        if route.relays != (SPINE,):
            raise ScenarioError(f"{a} - {b} should go through {SPINE}, not over {route}")


def _ports(stage: Stage, spine: str, kept: int) -> Sequence[str]:
    """A spine's ports towards the first cluster, except the first ``kept`` ports, needed for
    paths.
    """
    ports = stage.fabric.ports_of(stage.fabric.rack_by_name[spine].id)
    side = [port.tor_port for port in ports if port.plane == ports[0].plane]
    return side[kept:]


def _second_uplink_bytes(stage: Stage) -> int:
    fabric = stage.fabric
    ports = [port for a, _ in PAIRS for port in fabric.ports_of(fabric.rack_by_name[a].id)]
    return sent_bytes(port.tor_port for port in ports)


def _uplink_mbps(stage: Stage) -> float:
    return stage.fabric.electrical_rate_mbps


def _common_policy(scale: Scale) -> dict[str, Any]:
    """Policy of all cases."""
    return {
        "mode": "on-request",
        "max_hops": 2,
        "audit_interval_s": 0,
        "poll_interval_s": 0.25,
        "demand_window_s": 0.5,
        "elephant_mbps": 0.05 * PAPER_MBPS * scale.rate,
        "minimum_circuit_life_s": 0.0,
        "minimum_gain_mbps": 0.05 * PAPER_MBPS * scale.rate,
        "agents": {
            "sample_s": 0.1,
            "report_gap_s": 0.2,
            "report_above_mb": 0.1,
            "report_change_mb": 0.1,
            # Between the two sizes, so that no mouse is taken for an elephant.
            "elephant_mb": 2 * scale.bytes_of(MOUSE_BYTES) / 1e6,
            "elephant_idle_s": 0.5,
        },
    }


def _policy(case: Case, scale: Scale) -> dict[str, Any]:
    """The case's policy: epochs scaled as time is; on demand, rounds as often as possible."""
    sharing = case.regime.sharing
    on_demand = sharing is Sharing.ON_DEMAND
    return {
        "mode": "on-request" if sharing is None else "periodic",
        "sharing": (sharing or Sharing.BY_DEMAND).value,
        "epoch_s": 0.5 if on_demand else case.epoch_s * scale.time,
    }
