"""Windows of a trace, played as TCP transfers between the racks of a fabric.

Flows that start together in the trace are a coflow, which is over once the last flow has arrived
(Chowdhury et al., SIGCOMM 2014). Racks of a larger trace are folded onto the network's racks, flows
of a coflow between the same racks become one flow, and flows within a rack are left out. Times are
the trace's. Sizes are multiplied so that the busiest rack of the window needs a set share of its
circuits, and by the scale of the rates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from apps.process.configuration import load_configuration
from apps.traces.reading import read_trace, summarise
from apps.traces.windows import flows_of_window, rack_numbers, windows
from hydra.model import Fabric
from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage import building
from mininet_scenarios.stage.stage import ScenarioError, Stage, sent_bytes
from mininet_scenarios.stage.transfers import Transferred, Wish, transfer_all

BUSIEST_SHARE: Final = 0.3
"""Mean rate of the window's busiest rack, as a share of the rate of a rack's circuits."""
CIRCUIT_MBPS: Final = 10_000.0
"""Rate of a circuit before scaling, and of a server's link to the ToR."""
DEMO_RACKS: Final = 4
DEMO_RACK_MBPS: Final = 2 * CIRCUIT_MBPS
DEMO_ELECTRICAL_SHARE: Final = 0.1
"""Of the default fabric (``configs/demo.yaml``), for expectations and old results."""
EPOCH_S: Final = 0.5
_LEAST_SHARE: Final = 0.05
"""Share of a circuit below which pairs stay electrical, and gains justify no change."""
_SETUP_S: Final = 4.0
"""Rough time of a case besides the transfers."""
_LONGEST: Final = 4.0


class Way(Enum):
    """Network for the transfers."""

    ELECTRICAL = "electrical network alone"
    AS_PUBLISHED = "circuits, as published"
    HITLESS = "circuits, hydra"
    FULL_BISECTION = "full bisection"

    @property
    def cycle(self) -> CycleName | None:
        """Cycle of circuits' moves; None: no circuits."""
        return _CYCLES.get(self)


_CYCLES: Final = {
    Way.AS_PUBLISHED: CycleName.AS_PUBLISHED,
    Way.HITLESS: CycleName.HITLESS,
}


STAGES: Final = ((Way.ELECTRICAL, Way.AS_PUBLISHED, Way.HITLESS), (Way.FULL_BISECTION,))
"""Ways on a common testbed."""


@dataclass(frozen=True, slots=True)
class Network:
    """The fabric on which a trace is played, with rates before scaling."""

    source: Path
    name: str
    racks: tuple[str, ...]
    rack_mbps: float
    """Least rate of all circuits of a rack."""
    electrical_share: float
    """Least rate of a rack's electrical links, as a share of ``rack_mbps``."""
    bisection: float
    """Factor of the rate of electrical links by which each rack has ``rack_mbps`` at least."""
    circuit_mbps: float
    """Rate of a circuit in the file, of the first plane."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A window of a trace on a number of racks."""

    number: int
    """Number of the window, from 0 at the trace's beginning."""
    start_s: float
    length_s: float
    flows: tuple[tuple[float, int, int, float], ...]
    """(start after the window's in s, rack from, rack to, bytes); flows of a coflow between the
    same racks are one flow.
    """
    busiest_rack_mbps: float
    """Mean rate sent or received by the busiest rack over the window."""

    @property
    def coflows(self) -> int:
        return len({start_s for start_s, *_ in self.flows})


@dataclass(frozen=True, slots=True)
class Run:
    """Result of a window in one way."""

    way: str
    done: tuple[Transferred, ...]
    """Transfers; ``kind`` is the coflow's start in the window."""
    on_circuits_bytes: int
    """Bytes sent by racks on circuits, headers and relayed bytes included."""
    changes: int
    dark_frames: int

    def coflows_s(self) -> list[float]:
        """Time of each coflow."""
        coflows: dict[str, list[Transferred]] = defaultdict(list)
        for transfer in self.done:
            coflows[transfer.kind].append(transfer)
        return [
            max(transfer.finished_s for transfer in some)
            - min(transfer.started_s for transfer in some)
            for some in coflows.values()
        ]

    @property
    def last_s(self) -> float:
        """Time until everything has arrived."""
        return max(transfer.finished_s for transfer in self.done)

    @property
    def on_circuits_share(self) -> float:
        """Bytes on circuits over bytes received; relaying and headers can raise the share above
        1.
        """
        return self.on_circuits_bytes / sum(transfer.size_bytes for transfer in self.done)


def network_of(source: Path) -> Network:
    """The fabric in a file. Raises HydraError if no trace can be played on the fabric."""
    fabric = load_configuration(source).fabric
    if fabric.one_way:
        raise ScenarioError(f"{source}: a trace is played on bidirectional circuits alone")
    ports = Counter(port.rack for port in fabric.ports)
    for rack in fabric.racks:
        if not rack.servers or not ports[rack.id]:
            raise ScenarioError(
                f"{source}: rack {rack.name} has no servers or no optical ports; a trace is played "
                "between racks with both: name another --fabric"
            )
    circuit_mbps = fabric.planes[0].rate_mbps
    rack_mbps = min(ports.values()) * circuit_mbps
    links = min(1 if rack.tor.electrical_port else len(rack.servers) for rack in fabric.racks)
    electrical_mbps = links * fabric.electrical_rate_mbps
    return Network(
        source,
        fabric.name,
        tuple(rack.name for rack in fabric.racks),
        CIRCUIT_MBPS / circuit_mbps * rack_mbps,
        electrical_mbps / rack_mbps,
        rack_mbps / electrical_mbps,
        circuit_mbps,
    )


def excerpt(trace: Path, racks: Sequence[str], window_s: float, rank: int) -> Excerpt:
    """The window with the ``rank``-th busiest rack, from 1, folded onto ``racks``.

    Raises ScenarioError if the trace has fewer windows, and TraceError for an unreadable trace.
    """
    numbers = rack_numbers(summarise(trace).racks, len(racks), fold=True, fabric=racks)
    found = [
        window
        for window in windows(read_trace(trace), numbers, len(racks), window_s)
        if window.total_mbps > 0
    ]
    if rank > len(found):
        raise ScenarioError(
            f"{trace} has {len(found)} windows of {window_s:g} s with flows between "
            f"{len(racks)} racks, and no busiest number {rank}: repeat {len(found)} times at most"
        )
    found.sort(key=lambda window: (-window.busiest_rack_mbps, window.number))
    chosen = found[rank - 1]
    flows: dict[tuple[float, int, int], float] = defaultdict(float)
    for flow in flows_of_window(read_trace(trace), chosen.number, window_s):
        src, dst = numbers[flow.src], numbers[flow.dst]
        if src != dst and flow.size_bytes > 0:
            flows[flow.start_s - chosen.start_s, src, dst] += flow.size_bytes
    return Excerpt(
        number=chosen.number,
        start_s=chosen.start_s,
        length_s=window_s,
        flows=tuple((*key, size_bytes) for key, size_bytes in flows.items()),
        busiest_rack_mbps=chosen.busiest_rack_mbps,
    )


def network(way: Way, played_on: Network, rate: float) -> dict[str, Any]:
    """The fabric with circuits of ``CIRCUIT_MBPS`` times ``rate``, as a parsed file."""
    factor = CIRCUIT_MBPS * rate / played_on.circuit_mbps
    config = building.scaled_config(factor, played_on.source)
    if way is not Way.FULL_BISECTION:
        return config
    electrical = config["electrical"]
    each_mbps = electrical["rate_mbps"] * played_on.bisection
    return {
        **config,
        "electrical": {**electrical, "rate_mbps": each_mbps},
        "server_rate_mbps": max(config["server_rate_mbps"], each_mbps),
    }


def size_factor(played: Excerpt, rack_mbps: float) -> float:
    """Factor of the trace's bytes, before the scale of the rates."""
    return BUSIEST_SHARE * rack_mbps / played.busiest_rack_mbps


def wishes(played: Excerpt, fabric: Fabric, bytes_factor: float) -> list[Wish]:
    """The window's transfers, sizes times ``bytes_factor``; a rack's servers take turns."""
    senders = [cycle([server.name for server in rack.servers]) for rack in fabric.racks]
    receivers = [cycle([server.name for server in rack.servers]) for rack in fabric.racks]
    return [
        Wish(
            next(senders[src]),
            next(receivers[dst]),
            max(1, round(size_bytes * bytes_factor)),
            str(start_s),
            begins_s=start_s,
        )
        for start_s, src, dst, size_bytes in played.flows
    ]


def alone_s(window_s: float, electrical_share: float = DEMO_ELECTRICAL_SHARE) -> float:
    """Time of the electrical network for a window, by rate."""
    return max(window_s, window_s * BUSIEST_SHARE / electrical_share)


def expected_s(way: Way, window_s: float) -> float:
    """Rough wall time of a window."""
    if way is Way.FULL_BISECTION:
        return _SETUP_S + 1.1 * window_s
    return _SETUP_S + alone_s(window_s) * (1.1 if way is Way.ELECTRICAL else 0.4)


def run(
    stage: Stage, played: Excerpt, played_on: Network, way: Way, rate: float, narrator: Narrator
) -> Run:
    """Play a window in one way; raises ScenarioError for a run that can't be counted."""
    wanted = wishes(played, stage.fabric, size_factor(played, played_on.rack_mbps) * rate)
    longest_s = _LONGEST * alone_s(played.length_s, played_on.electrical_share) + PATIENCE_S
    title = f"window {played.number}, {way.value}"
    with (
        narrator.phase(title, expected_s(way, played.length_s)),
        stage.controller(_policy(way, rate), way.cycle or CycleName.HITLESS) as client,
    ):
        stage.introduce([server.name for server in stage.fabric.servers])
        client.reconfigure([])  # circuits of the previous case
        before, earlier = stage.losses(), client.changes_done()
        bytes_before = _on_circuits_bytes(stage)
        done = transfer_all(stage, wanted, longest_s)
        result = Run(
            way.value,
            done,
            _on_circuits_bytes(stage) - bytes_before,
            len(client.changes_done() - earlier),
            stage.losses().since(before).dark_frames,
        )
    narrator.say(f"{title}: over after {result.last_s:.1f} s, {result.changes} changes")
    return result


def _on_circuits_bytes(stage: Stage) -> int:
    return sent_bytes(port.tor_port for port in stage.fabric.ports)


def _policy(way: Way, rate: float) -> Mapping[str, Any]:
    """The way's policy; the controller learns the demand from its counters alone."""
    return {
        "mode": "on-request" if way.cycle is None else "periodic",
        "algorithm": "hydra-bfs+",
        "elephant_mbps": _LEAST_SHARE * CIRCUIT_MBPS * rate,
        "minimum_gain_mbps": _LEAST_SHARE * CIRCUIT_MBPS * rate,
        "epoch_s": EPOCH_S,
        "poll_interval_s": EPOCH_S / 4,
        "demand_window_s": EPOCH_S,
        "minimum_circuit_life_s": EPOCH_S,
        "audit_interval_s": 0,
    }
