"""Price of a static Helios beside an electrical network (Helios, SIGCOMM 2010, section 3.2).

As in the paper's simulator, traffic that a pod always sends to another pod gets circuits, as far as
the traffic fills whole superlinks; every other host keeps its link to the packet switch. The paper
leaves open how hosts choose their pods. Here each host spreads its traffic evenly over pods drawn
at random. Hosts with the same number in every pod draw the same distances, so that each host
receives as much as it sends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apps.prices.files import Part, PodPrices, PublishedPods, Transceiver


@dataclass(frozen=True, slots=True)
class Network:
    """A core between pods."""

    usd: float
    watt: float
    ports: float
    """Number of ports of core switches."""


@dataclass(frozen=True, slots=True)
class HeliosNetwork:
    """A core of packet and circuit switches, for one kind of traffic."""

    superlink: int
    """Number of wavelengths in a fibre."""
    destinations: int
    network: Network


@dataclass(frozen=True, slots=True)
class PodStudy:
    """All networks of a price file."""

    electrical: Network
    helios: tuple[HeliosNetwork, ...]

    def cheapest(self, destinations: int) -> HeliosNetwork:
        """The network with the cheapest superlink size at ``destinations``."""
        fitting = [row for row in self.helios if row.destinations == destinations]
        return min(fitting, key=lambda helios_network: helios_network.network.usd)


@dataclass(frozen=True, slots=True)
class Figure:
    """A published figure, beside the result of the price file."""

    name: str
    published: float
    ours: float

    @staticmethod
    def text(value: float) -> str:
        """``value`` in words: whole from a thousand, three digits below."""
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def held_against(
    study: PodStudy, helios: HeliosNetwork, published: PublishedPods
) -> tuple[Figure, ...]:
    """The electrical network over ``helios``, and the difference, beside the paper's figures."""
    electrical, ours = study.electrical, helios.network
    return (
        Figure("cost, electrical / Helios", published.cost_factor, electrical.usd / ours.usd),
        Figure("power, electrical / Helios", published.power_factor, electrical.watt / ours.watt),
        Figure("ports, electrical / Helios", published.port_factor, electrical.ports / ours.ports),
        Figure("USD saved", published.saved_usd, electrical.usd - ours.usd),
        Figure("W saved", published.saved_watt, electrical.watt - ours.watt),
        Figure("ports saved", published.saved_ports, electrical.ports - ours.ports),
    )


def study(prices: PodPrices) -> PodStudy:
    """All networks of Fig. 2: each superlink size at each number of destinations."""
    flows = least_flows(prices)
    return PodStudy(
        electrical_network(prices),
        tuple(
            helios_network(prices, kind, count, flows[position])
            for kind in prices.transceivers
            for position, count in enumerate(prices.destinations)
        ),
    )


def electrical_network(prices: PodPrices) -> Network:
    """A packet switch with a link for every host, with a transceiver at both ends of the link."""
    links = prices.pods * prices.hosts_per_pod
    return _cost(links, _packet_link(prices), links)


def helios_network(
    prices: PodPrices, kind: Transceiver, destinations: int, flows: NDArray[np.float64]
) -> HeliosNetwork:
    """A network with circuits for constant flows, as far as the flows fill superlinks of one size.

    ``flows``, shape (pods - 1,), is the least that a pod ever sends to each other pod, in hosts'
    link rates. A superlink takes a fibre and a circuit port, and at the pod a transceiver for each
    wavelength.
    """
    superlinks = prices.pods * float(np.floor(flows / kind.superlink).sum())
    links = prices.pods * prices.hosts_per_pod
    circuits = superlinks * kind.superlink
    packets = links - circuits
    packet = _cost(packets, _packet_link(prices), packets)
    light = _cost(superlinks, (prices.circuit_port, prices.fibre), superlinks)
    ends = _cost(circuits, (kind,), 0)
    total = Network(
        usd=packet.usd + light.usd + ends.usd,
        watt=packet.watt + light.watt + ends.watt,
        ports=packet.ports + light.ports,
    )
    return HeliosNetwork(kind.superlink, destinations, total)


def packet_share(prices: PodPrices, superlink: int, power_factor: float) -> float:
    """Part of the hosts with a packet link, if the electrical network's power is ``power_factor``
    times Helios'.

    All other hosts' traffic fills superlinks of ``superlink`` wavelengths.
    """
    kind = next(
        transceiver for transceiver in prices.transceivers if transceiver.superlink == superlink
    )
    packet = sum(part.watt for part in _packet_link(prices))
    light = kind.watt + (prices.circuit_port.watt + prices.fibre.watt) / superlink
    return (packet / power_factor - light) / (packet - light)


def least_flows(prices: PodPrices) -> NDArray[np.float64]:
    """The least that a pod sends to each other pod over all changes, in hosts' link rates.

    Shape (len(destinations), pods - 1): all pods are alike; entry j is for the pod j + 1 beyond.
    """
    chance = np.random.default_rng(prices.seed)
    others = prices.pods - 1
    least = np.full((len(prices.destinations), others), np.inf)
    for _ in range(prices.changes):
        order = np.argsort(chance.random((prices.hosts_per_pod, others)), axis=1)
        for position, count in enumerate(prices.destinations):
            chosen = np.bincount(order[:, :count].ravel(), minlength=others)
            least[position] = np.minimum(least[position], chosen / count)
    return least


def _packet_link(prices: PodPrices) -> tuple[Part, ...]:
    """Parts of a host's link to the packet switch, with a separate fibre."""
    plain = min(prices.transceivers, key=lambda transceiver: transceiver.superlink)
    return (prices.packet_port, plain, plain, prices.fibre)


def _cost(number: float, parts: tuple[Part, ...], ports: float) -> Network:
    return Network(
        usd=number * sum(part.usd for part in parts),
        watt=number * sum(part.watt for part in parts),
        ports=ports,
    )
