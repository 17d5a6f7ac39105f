"""The network as data: racks, planes, ports, circuits, paths, and the network state.

All objects are frozen. Racks, planes and optical ports are identified by position in
:class:`Fabric`, so that the topology engine works on plain integer arrays; names are for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, NewType, TypeAlias

from hydra.vlan_pool import EMPTY_POOL, VlanPool
from hydra.vlan_pool import VlanId as VlanId  # noqa: PLC0414 - all take the model's types here
from hydra.vlan_pool import VlanRange as VlanRange  # noqa: PLC0414

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    from numpy.typing import NDArray

RackId = NewType("RackId", int)
PlaneId = NewType("PlaneId", int)
PortId = NewType("PortId", int)
DatapathId = NewType("DatapathId", int)
MacAddress = NewType("MacAddress", str)
"""Lower case, colon separated."""
Pair = tuple[RackId, RackId]
"""Two racks, lower first."""


class SubstrateKind(StrEnum):
    """Attachment of servers, and distinction of circuits (:mod:`hydra.forwarding.substrate`)."""

    DUAL_HOMED_VLAN = "dual-homed-vlan"
    """Servers tag; an uplink to the ToR and an uplink to the electrical network."""
    SINGLE_HOMED_VLAN = "single-homed-vlan"
    """Servers tag; a single uplink to the ToR, which leads to the electrical network."""
    SINGLE_HOMED_OPENFLOW = "single-homed-openflow"
    """Plain servers with a single uplink; OpenFlow ToRs steer traffic, and label traffic on
    circuits.
    """


@dataclass(frozen=True, slots=True)
class VSwitch:
    """The software switch of a server, with its port names."""

    datapath_id: DatapathId
    bridge: str
    host_port: str
    optical_port: str
    """The port towards the ToR."""
    electrical_port: str
    """The port towards the electrical network; ``optical_port`` if the server has a single
    uplink.
    """

    @property
    def ports(self) -> tuple[str, ...]:
        """All ports without duplicates."""
        return tuple(dict.fromkeys((self.host_port, self.optical_port, self.electrical_port)))


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    rack: RackId
    mac: MacAddress
    addresses: tuple[IPv4Interface | IPv6Interface, ...]
    tor_port: str
    """The ToR port of the server's optical uplink."""
    vswitch: VSwitch | None
    """None if the ToR does the work of a vswitch."""
    guests: tuple[MacAddress, ...] = ()
    """MAC addresses of guests bridged to the server's port."""

    @property
    def macs(self) -> tuple[MacAddress, ...]:
        """All MAC addresses behind the server's port, its own first."""
        return self.mac, *self.guests


@dataclass(frozen=True, slots=True)
class Login:
    """A device login; the secret stays in its store until needed."""

    username: str
    password_env: str | None = None
    """Environment variable with the password."""
    password_file: str | None = None
    """File whose first line is the password."""
    key_file: str | None = None
    """File with a private SSH key."""


@dataclass(frozen=True, slots=True)
class Tor:
    """A top-of-rack switch: driver and address for retagging, OpenFlow id for counters."""

    driver: str
    address: str
    bridge: str
    datapath_id: DatapathId | None
    native_vlan: VlanId
    """Carries rack-local traffic, untagged at the servers; 0 if ports have no VLANs."""
    login: Login | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    """Options of the driver."""
    electrical_port: str | None = None
    """Port towards the electrical network, if servers have no electrical uplink."""
    most_vlans: int = 4094
    """Number of VLANs that the switch can hold."""
    protected_ports: bool = False
    """True if the electrical port and the ports on planes are protected ports of Open vSwitch."""


@dataclass(frozen=True, slots=True)
class Rack:
    id: RackId
    name: str
    prefixes: tuple[IPv4Network | IPv6Network, ...]
    tor: Tor
    servers: tuple[Server, ...]
    spine: bool = False
    """True for a spine switch: paths may run through, but no path ends there, since there are no
    servers.
    """

    def families(self, server: Server | None = None) -> frozenset[int]:
        """IP versions (4, 6 or both) of ``server``, or of any server of the rack.

        Guests of a server may have any address in the prefixes of the rack.
        """
        servers = self.servers if server is None else (server,)
        if any(server.guests for server in servers):
            return frozenset(prefix.version for prefix in self.prefixes)
        return frozenset(address.version for server in servers for address in server.addresses)


@dataclass(frozen=True, slots=True)
class Plane:
    """An optical circuit switch of the array."""

    id: PlaneId
    name: str
    driver: str
    address: str
    ports: int
    """Size of a side: ingress ports are 1..ports, egress ports ports+1..2*ports (Polatis)."""
    switching_ms: float
    rate_mbps: float
    login: Login | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    """Options of the driver."""


@dataclass(frozen=True, slots=True)
class OpticalPort:
    """A ToR port, and the pair of OCS ports at the far end of its fibres."""

    id: PortId
    rack: RackId
    plane: PlaneId
    tor_port: str
    ingress: int
    """OCS port that receives from the ToR port."""
    egress: int
    """OCS port that sends to the ToR port."""
    rate_mbps: float


@dataclass(frozen=True, slots=True, order=True)
class Circuit:
    """A bidirectional light path between two ToR ports on a plane; ``a < b``."""

    plane: PlaneId
    a: PortId
    b: PortId

    one_way: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.a >= self.b:
            raise ValueError(f"circuit ends must be ordered and distinct, got {self.a}, {self.b}")

    @property
    def ends(self) -> tuple[PortId, PortId]:
        return self.a, self.b

    @property
    def halves(self) -> tuple[tuple[PortId, bool], ...]:
        """The transmitters (True) and receivers (False) that the circuit occupies."""
        return (
            *((port, True) for port in self.senders),
            *((port, False) for port in self.receivers),
        )

    @property
    def senders(self) -> tuple[PortId, ...]:
        """Ports with an occupied transmitter."""
        return self.a, self.b

    @property
    def receivers(self) -> tuple[PortId, ...]:
        """Ports that receive light."""
        return self.a, self.b


@dataclass(frozen=True, slots=True, order=True)
class OneWayCircuit(Circuit):
    """A light path from the transmitter of ToR port ``a`` to the receiver of ``b``, on a plane.

    The transmitter of ``b`` may feed a third port. One-way circuits need ToRs that do not learn,
    and always form rings (:mod:`hydra.rings`).
    """

    one_way: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.a == self.b:
            raise ValueError(f"circuit ends must be distinct, got {self.a} twice")

    @property
    def senders(self) -> tuple[PortId, ...]:
        return (self.a,)

    @property
    def receivers(self) -> tuple[PortId, ...]:
        return (self.b,)


class CrossConnect(NamedTuple):
    """Light from an OCS ingress port to an egress port; a circuit has two cross-connects.

    A tuple for speed: drivers compare hundreds of cross-connects per change, and tuples are made,
    hashed and compared without running Python code.
    """

    ingress: int
    egress: int


@dataclass(frozen=True, slots=True, order=True)
class Path:
    """Circuits that join two racks, in hop order from ``src`` to ``dst``.

    Used in both directions, with ``src < dst``: a learning ToR replies to the port of arrival. A
    path of one-way circuits leads from ``src`` to ``dst`` only, in any order of the ids.
    """

    src: RackId
    dst: RackId
    circuits: tuple[Circuit, ...]

    def __hash__(self) -> int:
        """Hash the ends only: hardly any two paths of a network share both ends."""
        return hash((self.src, self.dst))

    @property
    def hops(self) -> int:
        return len(self.circuits)

    @property
    def one_way(self) -> bool:
        return bool(self.circuits) and self.circuits[0].one_way

    @property
    def directions(self) -> tuple[tuple[RackId, RackId], ...]:
        """(from, to) pairs of the traffic."""
        there = (self.src, self.dst)
        return (there,) if self.one_way else (there, (self.dst, self.src))


@dataclass(frozen=True, slots=True)
class Topology:
    """A logical topology: the circuits, and the paths of each rack pair."""

    circuits: AbstractSet[Circuit] = frozenset()
    paths: Sequence[Path] = ()
    """Sorted; several paths of a rack pair share its traffic (``policy.paths_per_pair``)."""

    def to_networkx(self, fabric: Fabric) -> nx.MultiGraph:
        """The racks and circuits as a MultiGraph, or as a MultiDiGraph of one-way circuits.

        Nodes are rack names, with ``spine``. Edges have ``plane``, ``a_rack``, ``a_port``,
        ``b_rack``, ``b_port`` (a one-way circuit leads from a to b) and ``rate_mbps``. The graph
        has ``fabric`` and ``electrical_rate_mbps``, the rate of an uplink to the electrical
        network. The electrical network joins all racks and is no edge.
        """
        from hydra.circuit_graph import circuit_graph  # noqa: PLC0415 - loads networkx

        def end(port: OpticalPort) -> Mapping[str, str]:
            return {"rack": fabric.racks[port.rack].name, "port": port.tor_port}

        return circuit_graph(
            ((rack.name, {"spine": rack.spine}) for rack in fabric.racks),
            (
                {
                    "plane": fabric.planes[circuit.plane].name,
                    "a": end(fabric.ports[circuit.a]),
                    "b": end(fabric.ports[circuit.b]),
                    "rate_mbps": fabric.rate_of(circuit),
                }
                for circuit in sorted(self.circuits)
            ),
            one_way=fabric.one_way,
            fabric=fabric.name,
            electrical_rate_mbps=fabric.electrical_rate_mbps,
        )


EMPTY_TOPOLOGY = Topology()


@dataclass(frozen=True, slots=True)
class NetworkState:
    """A topology in the network: with VLANs and an epoch number."""

    epoch: int = 0
    topology: Topology = EMPTY_TOPOLOGY
    vlans: Mapping[Path, VlanId] = field(default_factory=dict)
    pool: VlanPool = EMPTY_POOL
    """State of the VLAN-IDs that no path uses."""

    def joined(self, circuits: AbstractSet[Circuit], vlans: Mapping[Path, VlanId]) -> NetworkState:
        """The state with other ``circuits`` and paths, whose VLAN-IDs no longer rest."""
        paths = dict(sorted(vlans.items()))
        pool = self.pool.used(paths.values())
        return NetworkState(self.epoch, Topology(circuits, tuple(paths)), paths, pool)


@dataclass(frozen=True)
class Fabric:
    """All wiring: the racks, the planes, and their connections."""

    name: str
    racks: tuple[Rack, ...]
    planes: tuple[Plane, ...]
    ports: tuple[OpticalPort, ...]
    circuit_vlans: VlanRange
    parking_vlan: VlanId
    """The only VLAN of an optical port without a circuit (an empty trunk would carry all VLANs); 0
    if ports have no VLANs.
    """
    electrical_rate_mbps: float
    """Rate of an uplink to the electrical network, of a server or of a rack with a shared
    uplink.
    """
    server_rate_mbps: float
    substrate: SubstrateKind = SubstrateKind.DUAL_HOMED_VLAN
    one_way: bool = False
    """True if circuits are :class:`OneWayCircuit`; otherwise circuits are duplex."""

    @cached_property
    def servers(self) -> tuple[Server, ...]:
        return tuple(server for rack in self.racks for server in rack.servers)

    @cached_property
    def spines(self) -> tuple[RackId, ...]:
        return tuple(rack.id for rack in self.racks if rack.spine)

    @cached_property
    def server_by_name(self) -> Mapping[str, Server]:
        return {server.name: server for server in self.servers}

    @cached_property
    def server_by_datapath(self) -> Mapping[DatapathId, Server]:
        """Servers with a vswitch under HydRA's control, by datapath id."""
        return {s.vswitch.datapath_id: s for s in self.servers if s.vswitch is not None}

    @cached_property
    def families_of(self) -> tuple[frozenset[int], ...]:
        """IP versions of any server of each rack."""
        return tuple(rack.families() for rack in self.racks)

    @cached_property
    def rack_by_name(self) -> Mapping[str, Rack]:
        return {rack.name: rack for rack in self.racks}

    @cached_property
    def rack_by_tor_datapath(self) -> Mapping[DatapathId, Rack]:
        return {r.tor.datapath_id: r for r in self.racks if r.tor.datapath_id is not None}

    @cached_property
    def tor_names(self) -> Mapping[DatapathId, str]:
        """Names of racks with an OpenFlow ToR, by datapath id."""
        return {datapath: rack.name for datapath, rack in self.rack_by_tor_datapath.items()}

    @cached_property
    def vswitch_names(self) -> Mapping[DatapathId, str]:
        """Names of the vswitches: the bridge names if unique, otherwise the server names."""
        servers = self.server_by_datapath
        bridges = {
            dp: server.vswitch.bridge
            for dp, server in servers.items()
            if server.vswitch is not None
        }
        if len(set(bridges.values())) == len(bridges):
            return bridges
        return {datapath: server.name for datapath, server in servers.items()}

    @cached_property
    def plane_by_name(self) -> Mapping[str, Plane]:
        return {plane.name: plane for plane in self.planes}

    @cached_property
    def port_by_name(self) -> Mapping[tuple[str, str], OpticalPort]:
        """Optical ports by the names of rack and ToR port."""
        return {(self.racks[port.rack].name, port.tor_port): port for port in self.ports}

    @cached_property
    def fibres(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ingress and the egress OCS port of each optical port, by port id."""
        return tuple(port.ingress for port in self.ports), tuple(port.egress for port in self.ports)

    @cached_property
    def port_rates_mbps(self) -> frozenset[float]:
        """Rates of optical ports."""
        return frozenset(port.rate_mbps for port in self.ports)

    @cached_property
    def fastest_port_mbps(self) -> tuple[float, ...]:
        """Rate of the fastest optical port of each rack; 0 for a rack without ports."""
        ports = self._ports_by_rack
        return tuple(max((port.rate_mbps for port in some), default=0.0) for some in ports)

    def ports_of(self, rack: RackId) -> tuple[OpticalPort, ...]:
        return self._ports_by_rack[rack]

    @cached_property
    def place_of_port(self) -> Mapping[PortId, int]:
        """Index of each optical port in :meth:`ports_of` its rack."""
        return {port.id: place for ports in self._ports_by_rack for place, port in enumerate(ports)}

    @cached_property
    def _ports_by_rack(self) -> tuple[tuple[OpticalPort, ...], ...]:
        by_rack: list[list[OpticalPort]] = [[] for _ in self.racks]
        for port in self.ports:
            by_rack[port.rack].append(port)
        return tuple(tuple(ports) for ports in by_rack)

    def circuit_name(self, circuit: Circuit) -> str:
        """``r1 =p2= r4``, or ``r1 =p2> r4`` for a one-way circuit."""
        rack_a, rack_b = (self.racks[rack].name for rack in self.racks_of(circuit))
        return (
            f"{rack_a} ={self.planes[circuit.plane].name}{'>' if circuit.one_way else '='} {rack_b}"
        )

    def racks_of(self, circuit: Circuit) -> tuple[RackId, RackId]:
        return self.ports[circuit.a].rack, self.ports[circuit.b].rack

    def rate_of(self, circuit: Circuit) -> float:
        """Mbps in each direction: the slower of the two ends."""
        return min(self.ports[circuit.a].rate_mbps, self.ports[circuit.b].rate_mbps)

    def circuit(self, sender: PortId, receiver: PortId) -> Circuit:
        """The circuit between two ports of a plane; duplex ports may be in either order."""
        plane = self.ports[sender].plane
        if self.one_way:
            return OneWayCircuit(plane, sender, receiver)
        return Circuit(plane, min(sender, receiver), max(sender, receiver))

    def paths_per_pair(self, allowed: int | Literal["auto"]) -> int | None:
        """Number of paths that a rack pair may have under the policy value ``allowed``.

        None: no limit except the use that the algorithm finds. A one-way circuit serves a single
        pair, so the limit is the number of circuits. OpenFlow ToRs spread flows by an extension
        that some switches lack, so several paths need an explicit number.
        """
        if self.one_way:
            return max(1, len(self.ports))
        if allowed == "auto":
            return 1 if self.substrate is SubstrateKind.SINGLE_HOMED_OPENFLOW else None
        return allowed

    def cross_connects(self, circuit: Circuit) -> tuple[CrossConnect, ...]:
        """The cross-connects of a circuit: two, or a single cross-connect of a one-way circuit."""
        a, b = self.ports[circuit.a], self.ports[circuit.b]
        there = CrossConnect(a.ingress, b.egress)
        return (there,) if circuit.one_way else (there, CrossConnect(b.ingress, a.egress))


DemandMatrix: TypeAlias = "NDArray[np.float64]"
"""Shape (N, N), Mbps from row rack to column rack; the diagonal is zero."""
