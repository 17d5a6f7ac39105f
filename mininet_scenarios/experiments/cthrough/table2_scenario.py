"""c-Through (SIGCOMM 2010, section 5.2.2, Table 2): the cost of demultiplexing at the server.

A server sends to a server in another rack at full speed, over the electrical network and over a
circuit. *Demultiplexed*, the sender's vswitch has the controller's rules, which count each frame,
determine class, destination rack and path, and tag the frame; the controller runs and reads the
counters. *Plain*, there is no controller, and the vswitches of both servers pass on all frames
between the host and a single uplink, by a rule each way: the paper's FIFO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from hydra.model import VlanId
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage import building
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand, Route
from mininet_scenarios.stage.stage import (
    CONGESTION,
    ScenarioError,
    Stage,
    tcp_transfer,
    udp_transfer,
)
from mininet_scenarios.testbed.links import QueueSize
from mininet_scenarios.workloads.iperf3 import ThroughputRun

T = TypeVar("T")

PAIR: Final = ("r1", "r2")
HOSTS: Final = ("h11", "h21")
ELECTRICAL: Final = "electrical"
OPTICAL: Final = "optical"
NETWORKS: Final = (OPTICAL, ELECTRICAL)
TCP: Final = "TCP"
UDP: Final = "UDP"
PROTOCOLS: Final = (TCP, UDP)
DATAGRAM_BYTES: Final = 1448
"""Payload of a datagram. The payload is sent at the link's own rate, without room for 3 % of
headers: so the link is full, and the received rate is the link's.
"""
_UNLIMITED_MBPS: Final = 4000.0
"""Rate of every link where forwarding is to be the bottleneck."""
_QUEUES: Final = QueueSize(least_frames=64)
"""Queues in front of links: enough for TCP to keep a link full, as in the paper, and few enough to
leave room in the socket buffer shared by all ports of the emulated switches.
"""
_PORT: Final = 5201
_WARM_UP_S: Final = 1.0
_EACH_S: Final = 0.5
"""Time of a transfer besides the sending."""
_SETUP_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Length:
    """Lengths of transfers, in s."""

    optical: float
    electrical: float
    unlimited: float
    rounds: int
    """Rounds of transfers over links of any rate, so that both ways see the same machine."""

    @property
    def rates_expected_s(self) -> float:
        """Wall time of :func:`rates`."""
        each_s = self.optical + self.electrical + 2 * _EACH_S
        return _SETUP_S + 2 * len(PROTOCOLS) * each_s

    @property
    def costs_expected_s(self) -> float:
        """Wall time of :func:`costs`."""
        return self.rounds * (_SETUP_S + 2 * len(NETWORKS) * (self.unlimited + _EACH_S))


FULL: Final = Length(optical=7.0, electrical=68.0, unlimited=10.0, rounds=3)
"""Lengths of the paper's 800 MB."""
SHORT: Final = Length(optical=3.0, electrical=3.0, unlimited=2.0, rounds=1)


@dataclass(frozen=True, slots=True)
class Rate:
    """Received rate over a link of the paper's rate, scaled."""

    network: str
    protocol: str
    demultiplexed: bool
    mbps: float
    """Rate of payload, without the first second."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Throughput of TCP over links of any rate, and the cost of forwarding."""

    network: str
    demultiplexed: bool
    mbps: float
    cpu_s_per_gbit: float | None
    """Processor time of all forwarding, including switches on the way, for each Gb of payload. None
    if the kernel forwards: the kernel's time can't be separated from other work.
    """


def rates(stage: Stage, length: Length, narrator: Narrator) -> tuple[Rate, ...]:
    """Rates of both protocols over both networks, in both ways.

    Raises ScenarioError and ControllerError for a run that can't be counted.
    """

    def measured(network: str, demultiplexed: bool) -> list[Rate]:
        received = {protocol: _sent(stage, network, protocol, length) for protocol in PROTOCOLS}
        return [
            Rate(network, protocol, demultiplexed, run.average_between(_WARM_UP_S, run.seconds))
            for protocol, run in received.items()
        ]

    title = "TCP and UDP at the paper's rates, demultiplexed and plain"
    with narrator.phase(title, length.rates_expected_s):
        found = tuple(rate for some in _both_ways(stage, measured) for rate in some)
    for rate in found:
        narrator.say(
            f"{rate.network}, {rate.protocol}, {_way(rate.demultiplexed)}: {rate.mbps:.2f} Mb/s"
        )
    return found


def costs(stage: Stage, length: Length, narrator: Narrator) -> tuple[Cost, ...]:
    """Costs of TCP over links of any rate, in both ways by turns; raises as :func:`rates` does."""

    def measured(network: str, demultiplexed: bool) -> Cost:
        before_s = stage.testbed.forwarding_cpu_s()
        with tcp_transfer(
            stage, *HOSTS, _PORT, length.unlimited, congestion=CONGESTION
        ) as transfer:
            received, _ = transfer.finish(length.unlimited + 20)
        after_s = stage.testbed.forwarding_cpu_s()
        cpu_s_per_gbit = None
        if before_s is not None and after_s is not None:
            gbit = received.average_mbps * received.seconds / 1e3
            cpu_s_per_gbit = (after_s - before_s) / gbit
        return Cost(network, demultiplexed, received.average_mbps, cpu_s_per_gbit)

    found: list[Cost] = []
    with narrator.phase("TCP over links of any rate", length.costs_expected_s):
        for _ in range(length.rounds):
            found += _both_ways(stage, measured)
    for cost in found:
        narrator.say(f"any rate, {cost.network}, {_way(cost.demultiplexed)}: {cost.mbps:.0f} Mb/s")
    return tuple(found)


@contextmanager
def stage_of(circuit_mbps: float, work_dir: Path, narrator: Narrator) -> Iterator[Stage]:
    """The demo's testbed for :func:`rates`, with links scaled to ``circuit_mbps``."""
    config = building.scaled_config(building.times_its_rates(circuit_mbps))
    with building.stage_with(config, work_dir, narrator, _QUEUES) as stage:
        yield stage


@contextmanager
def stage_of_any_rate(work_dir: Path, narrator: Narrator) -> Iterator[Stage]:
    """The demo's testbed for :func:`costs`: all links faster than any machine forwards."""
    config = building.scaled_config(building.times_its_rates(_UNLIMITED_MBPS))
    config["electrical"] |= {"rate_mbps": _UNLIMITED_MBPS}
    with building.stage_with(config, work_dir, narrator, _QUEUES) as stage:
        yield stage


def _way(demultiplexed: bool) -> str:
    return "demultiplexed" if demultiplexed else "plain"


def _both_ways(stage: Stage, measured: Callable[[str, bool], T]) -> Iterator[T]:
    """Results of ``measured(network, demultiplexed)``; the circuit stands as long as needed."""
    stage.introduce(HOSTS)
    with stage.controller({"mode": "on-request"}) as controller:
        _route(controller, [])
        yield measured(ELECTRICAL, True)
        circuit = _route(controller, [PairDemand(*PAIR, 0.8 * stage.fabric.server_rate_mbps)])
        yield measured(OPTICAL, True)
    vlan = None if circuit.vlan is None else VlanId(circuit.vlan)
    # Without a controller, the circuit and the circuit's VLAN on the ToRs stay.
    for network, tag in ((OPTICAL, vlan), (ELECTRICAL, None)):
        for host in HOSTS:
            stage.testbed.forward_plainly(host, network, tag)
        yield measured(network, False)


def _route(controller: ControllerClient, demand: list[PairDemand]) -> Route:
    """The pair's route after the controller was asked for ``demand``: a circuit if there is any."""
    controller.reconfigure(demand)
    route = controller.path_between(*PAIR)
    if len(route.planes) != len(demand):
        raise ScenarioError(f"{' - '.join(PAIR)} runs over {route}, which was not asked for")
    return route


def _sent(stage: Stage, network: str, protocol: str, length: Length) -> ThroughputRun:
    """The receiver's measurement of a transfer."""
    fabric, optical = stage.fabric, network == OPTICAL
    seconds = length.optical if optical else length.electrical
    if protocol == TCP:
        sending = tcp_transfer(stage, *HOSTS, _PORT, seconds, congestion=CONGESTION)
    else:
        link_mbps = fabric.server_rate_mbps if optical else fabric.electrical_rate_mbps
        sending = udp_transfer(
            stage,
            *HOSTS,
            _PORT,
            seconds,
            average_mbps=link_mbps,
            datagram_bytes=DATAGRAM_BYTES,
        )
    with sending as transfer:
        return transfer.finish(seconds + 20)[0]
