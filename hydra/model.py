"""The network as data: racks, planes, ports, circuits, paths, and the state they are in.

Everything is frozen. Racks, planes and optical ports are identified by their position in
:class:`Fabric`, so that the topology engine works on plain integer arrays; names are for people.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network
from typing import TYPE_CHECKING, Literal, NamedTuple, NewType, TypeAlias

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    from numpy.typing import NDArray

RackId = NewType("RackId", int)
PlaneId = NewType("PlaneId", int)
PortId = NewType("PortId", int)
VlanId = NewType("VlanId", int)
DatapathId = NewType("DatapathId", int)
MacAddress = NewType("MacAddress", str)
"""Lower case, colon separated."""


class SubstrateKind(StrEnum):
    """The way circuits are told apart and servers attached (:mod:`hydra.forwarding.substrate`)."""

    DUAL_HOMED_VLAN = "dual-homed-vlan"
    """Servers tag; one uplink to the ToR, another to the electrical network."""
    SINGLE_HOMED_VLAN = "single-homed-vlan"
    """Servers tag; one uplink to the ToR, which has the electrical network behind it."""
    SINGLE_HOMED_OPENFLOW = "single-homed-openflow"
    """Plain servers with one uplink; OpenFlow ToRs steer, and label what goes on circuits."""


@dataclass(frozen=True, slots=True)
class VSwitch:
    """The software switch of one server, and the names of its ports."""

    datapath_id: DatapathId
    bridge: str
    host_port: str
    optical_port: str
    """The port towards the ToR."""
    electrical_port: str
    """The port towards the electrical network: the same one if the server has a single uplink."""

    @property
    def ports(self) -> tuple[str, ...]:
        """Each of its ports once."""
        return tuple(dict.fromkeys((self.host_port, self.optical_port, self.electrical_port)))


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    rack: RackId
    mac: MacAddress
    addresses: tuple[IPv4Interface | IPv6Interface, ...]
    tor_port: str
    """The ToR port that this server's optical uplink is plugged into."""
    vswitch: VSwitch | None
    """None where its ToR does all that a vswitch would."""
    guests: tuple[MacAddress, ...] = ()
    """MAC addresses of guests that it bridges to its port."""

    @property
    def macs(self) -> tuple[MacAddress, ...]:
        """All MAC addresses behind its port, its own first."""
        return self.mac, *self.guests


@dataclass(frozen=True, slots=True)
class Login:
    """A user of a device; the secret itself stays where it is kept until it is needed."""

    username: str
    password_env: str | None = None
    """The environment variable that holds the password."""
    password_file: str | None = None
    """The file whose first line is the password."""
    key_file: str | None = None
    """A private SSH key."""


@dataclass(frozen=True, slots=True)
class Tor:
    """A top-of-rack switch: driver and address to retag it, OpenFlow id to read its counters."""

    driver: str
    address: str
    bridge: str
    datapath_id: DatapathId | None
    native_vlan: VlanId
    """Carries the rack's own traffic, untagged at the servers; 0 where ports have no VLANs."""
    login: Login | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    """Options that only its driver understands."""
    electrical_port: str | None = None
    """The port towards the electrical network, where servers have no uplink of their own there."""
    most_vlans: int = 4094
    """Number of VLANs that it can hold."""


@dataclass(frozen=True, slots=True)
class Rack:
    id: RackId
    name: str
    prefixes: tuple[IPv4Network | IPv6Network, ...]
    tor: Tor
    servers: tuple[Server, ...]
    spine: bool = False
    """True for a switch that paths may run through, and none ends at: it has no servers."""

    def families(self, server: Server | None = None) -> frozenset[int]:
        """IP versions that ``server`` can send with, or any server of the rack: 4, 6, both.

        Guests of a server may have any address in the rack's prefixes.
        """
        servers = self.servers if server is None else (server,)
        if any(one.guests for one in servers):
            return frozenset(prefix.version for prefix in self.prefixes)
        return frozenset(address.version for one in servers for address in one.addresses)


@dataclass(frozen=True, slots=True)
class Plane:
    """An optical circuit switch of the array."""

    id: PlaneId
    name: str
    driver: str
    address: str
    ports: int
    """Size of one side: ingress ports are 1..ports, egress ports ports+1..2*ports (Polatis)."""
    switching_ms: float
    rate_mbps: float
    login: Login | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    """Options that only its driver understands."""


@dataclass(frozen=True, slots=True)
class OpticalPort:
    """A ToR port and the pair of OCS ports it is wired to."""

    id: PortId
    rack: RackId
    plane: PlaneId
    tor_port: str
    ingress: int
    """OCS port that hears this ToR port's transmitter."""
    egress: int
    """OCS port that feeds this ToR port's receiver."""
    rate_mbps: float


@dataclass(frozen=True, slots=True, order=True)
class Circuit:
    """A bidirectional light path between two ToR ports on one plane; ``a < b``."""

    plane: PlaneId
    a: PortId
    b: PortId

    def __post_init__(self) -> None:
        if self.a >= self.b:
            raise ValueError(f"circuit ends must be ordered and distinct, got {self.a}, {self.b}")

    @property
    def one_way(self) -> bool:
        return False

    @property
    def ends(self) -> tuple[PortId, PortId]:
        return self.a, self.b

    @property
    def halves(self) -> tuple[tuple[PortId, bool], ...]:
        """The transmitters (True) and receivers (False) that no other circuit may have."""
        return (
            *((port, True) for port in self.senders),
            *((port, False) for port in self.receivers),
        )

    @property
    def senders(self) -> tuple[PortId, ...]:
        """Ports whose transmitters it takes."""
        return self.a, self.b

    @property
    def receivers(self) -> tuple[PortId, ...]:
        """Ports that it lights."""
        return self.a, self.b


@dataclass(frozen=True, slots=True, order=True)
class OneWayCircuit(Circuit):
    """A light path from the transmitter of ToR port ``a`` to the receiver of ``b``, on one plane.

    The transmitter of ``b`` may feed a third port. Such circuits are only where ToRs don't learn,
    and always in rings (:mod:`hydra.rings`).
    """

    def __post_init__(self) -> None:
        if self.a == self.b:
            raise ValueError(f"circuit ends must be distinct, got {self.a} twice")

    @property
    def one_way(self) -> bool:
        return True

    @property
    def senders(self) -> tuple[PortId, ...]:
        return (self.a,)

    @property
    def receivers(self) -> tuple[PortId, ...]:
        return (self.b,)


class CrossConnect(NamedTuple):
    """Light from an OCS ingress port to an egress port; a circuit is two of these.

    A tuple, since drivers compare hundreds of them in every change: made, hashed and compared
    without running any Python.
    """

    ingress: int
    egress: int


@dataclass(frozen=True, slots=True, order=True)
class Path:
    """Circuits that join two racks, in hop order from ``src`` to ``dst``.

    Used in both directions, with ``src < dst``: a learning ToR sends back where it heard from. A
    path of one-way circuits leads from ``src`` to ``dst`` alone, whichever number is lower.
    """

    src: RackId
    dst: RackId
    circuits: tuple[Circuit, ...]

    def __hash__(self) -> int:
        """Hardly any two paths of a network share both ends: hashing the circuits gains nothing."""
        return hash((self.src, self.dst))

    @property
    def hops(self) -> int:
        return len(self.circuits)

    @property
    def one_way(self) -> bool:
        return bool(self.circuits) and self.circuits[0].one_way

    @property
    def directions(self) -> tuple[tuple[RackId, RackId], ...]:
        """(from, to) of its traffic."""
        there = (self.src, self.dst)
        return (there,) if self.one_way else (there, (self.dst, self.src))


@dataclass(frozen=True, slots=True)
class Topology:
    """A logical topology: which circuits exist and which paths each rack pair takes."""

    circuits: frozenset[Circuit] = frozenset()
    paths: tuple[Path, ...] = ()
    """Sorted; several of a rack pair share its traffic (``policy.paths_per_pair``)."""

    def to_networkx(self, fabric: Fabric) -> nx.MultiGraph:
        """The racks and circuits as a graph: a MultiGraph, or a MultiDiGraph of one-way circuits.

        Nodes are names of racks, with ``spine``. Edges have ``plane``, ``a_rack``, ``a_port``,
        ``b_rack``, ``b_port`` (of a one-way circuit, a sends and b hears) and ``rate_mbps``. The
        graph has ``fabric`` and ``electrical_rate_mbps``, the rate of an uplink to the electrical
        network, which joins all racks and is no edge.
        """
        from hydra.circuit_graph import circuit_graph  # noqa: PLC0415 - loads networkx

        def end(port: OpticalPort) -> Mapping[str, str]:
            return {"rack": fabric.racks[port.rack].name, "port": port.tor_port}

        return circuit_graph(
            ((rack.name, {"spine": rack.spine}) for rack in fabric.racks),
            (
                {
                    "plane": fabric.planes[one.plane].name,
                    "a": end(fabric.ports[one.a]),
                    "b": end(fabric.ports[one.b]),
                    "rate_mbps": fabric.rate_of(one),
                }
                for one in sorted(self.circuits)
            ),
            one_way=fabric.one_way,
            fabric=fabric.name,
            electrical_rate_mbps=fabric.electrical_rate_mbps,
        )


EMPTY_TOPOLOGY = Topology()


@dataclass(frozen=True, slots=True)
class NetworkState:
    """A topology as it stands in the network: with VLANs, in a numbered epoch."""

    epoch: int = 0
    topology: Topology = EMPTY_TOPOLOGY
    vlans: Mapping[Path, VlanId] = field(default_factory=dict)
    resting: frozenset[VlanId] = frozenset()
    """VLAN-IDs freed by the last change: handed out before the next only if need be."""
    freed: tuple[VlanId, ...] = ()
    """VLAN-IDs that a path has lost, the longest ago first: others are handed out before them."""
    closed: frozenset[VlanId] = frozenset()
    """Those at rest that no new path may take, however few there are: changes under way have them.
    For planning alone: no change leads to any."""

    def longest_free(self, vlans: VlanRange) -> list[VlanId]:
        """The IDs of a range in the order to hand them out; some are in use or resting."""
        last = len(self.freed) + 1
        order = dict.fromkeys(self.resting, last)  # just now, if a change broke off that tried them
        order |= {vlan: place for place, vlan in enumerate(self.freed, start=1)}
        ids = [VlanId(vlan) for vlan in range(vlans.first, vlans.last + 1)]
        waited = sorted((vlan for vlan in ids if vlan in order), key=order.__getitem__)
        return [vlan for vlan in ids if vlan not in order] + waited

    @property
    def spare(self) -> frozenset[VlanId]:
        """VLAN-IDs at rest that new paths may take once all others are taken."""
        return self.resting.difference(self.closed, self.vlans.values())

    def then_freed(self, lost: Collection[VlanId], taken: Collection[VlanId]) -> tuple[VlanId, ...]:
        """:attr:`freed` after a change by which paths lose and take these IDs."""
        now = {*lost, *self.resting.difference(self.freed)}.difference(taken)
        before = (vlan for vlan in self.freed if vlan not in now and vlan not in taken)
        return (*before, *sorted(now))


@dataclass(frozen=True, slots=True)
class VlanRange:
    first: VlanId
    last: VlanId

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, vlan: object) -> bool:
        return isinstance(vlan, int) and self.first <= vlan <= self.last


@dataclass(frozen=True)
class Fabric:
    """Everything that is wired: the racks, the planes, and what joins them."""

    name: str
    racks: tuple[Rack, ...]
    planes: tuple[Plane, ...]
    ports: tuple[OpticalPort, ...]
    circuit_vlans: VlanRange
    parking_vlan: VlanId
    """The only VLAN of an optical port without a circuit (an empty trunk would carry all); 0 where
    ports have no VLANs."""
    electrical_rate_mbps: float
    """Rate of an uplink to the electrical network: a server's, or a rack's if its servers share."""
    server_rate_mbps: float
    substrate: SubstrateKind = SubstrateKind.DUAL_HOMED_VLAN
    one_way: bool = False
    """True if its circuits are :class:`OneWayCircuit`; if not, they are duplex."""

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
        """Servers with a vswitch of ours, by its datapath id."""
        return {s.vswitch.datapath_id: s for s in self.servers if s.vswitch is not None}

    @cached_property
    def rack_by_name(self) -> Mapping[str, Rack]:
        return {rack.name: rack for rack in self.racks}

    @cached_property
    def rack_by_tor_datapath(self) -> Mapping[DatapathId, Rack]:
        return {r.tor.datapath_id: r for r in self.racks if r.tor.datapath_id is not None}

    @cached_property
    def tor_names(self) -> Mapping[DatapathId, str]:
        """Names of the racks whose ToR speaks OpenFlow, by its datapath id."""
        return {datapath: rack.name for datapath, rack in self.rack_by_tor_datapath.items()}

    @cached_property
    def vswitch_names(self) -> Mapping[DatapathId, str]:
        """Names of the vswitches: their bridges', or where bridges share one, their servers'."""
        servers = self.server_by_datapath
        bridges = {dp: one.vswitch.bridge for dp, one in servers.items() if one.vswitch is not None}
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
    def port_ids(self) -> tuple[PortId, ...]:
        return tuple(port.id for port in self.ports)

    def ports_of(self, rack: RackId) -> tuple[OpticalPort, ...]:
        return self._ports_by_rack[rack]

    @cached_property
    def place_of_port(self) -> Mapping[PortId, int]:
        """Each optical port's place in :meth:`ports_of` its rack."""
        return {port.id: place for ports in self._ports_by_rack for place, port in enumerate(ports)}

    @cached_property
    def _ports_by_rack(self) -> tuple[tuple[OpticalPort, ...], ...]:
        by_rack: list[list[OpticalPort]] = [[] for _ in self.racks]
        for port in self.ports:
            by_rack[port.rack].append(port)
        return tuple(tuple(ports) for ports in by_rack)

    def circuit_name(self, circuit: Circuit) -> str:
        """``r1 =p2= r4``, or ``r1 =p2> r4`` if it is one-way."""
        one, other = (self.racks[rack].name for rack in self.racks_of(circuit))
        return f"{one} ={self.planes[circuit.plane].name}{'>' if circuit.one_way else '='} {other}"

    def racks_of(self, circuit: Circuit) -> tuple[RackId, RackId]:
        return self.ports[circuit.a].rack, self.ports[circuit.b].rack

    def rate_of(self, circuit: Circuit) -> float:
        """Mbps in each direction: the slower of the two ends."""
        return min(self.ports[circuit.a].rate_mbps, self.ports[circuit.b].rate_mbps)

    def circuit(self, sender: PortId, receiver: PortId) -> Circuit:
        """The circuit between two ports of one plane; where they are duplex, in either order."""
        plane = self.ports[sender].plane
        if self.one_way:
            return OneWayCircuit(plane, sender, receiver)
        return Circuit(plane, min(sender, receiver), max(sender, receiver))

    def paths_per_pair(self, allowed: int | Literal["auto"]) -> int | None:
        """The number of paths that a pair of racks may have where ``allowed`` is the policy's.

        None: as many as the algorithm finds a use for. A one-way circuit serves one pair: there may
        be as many paths as there are circuits. OpenFlow ToRs spread flows only by an extension that
        not all of them have, so they are given several paths by a number alone.
        """
        if self.one_way:
            return max(1, len(self.ports))
        if allowed == "auto":
            return 1 if self.substrate is SubstrateKind.SINGLE_HOMED_OPENFLOW else None
        return allowed

    def cross_connects(self, circuit: Circuit) -> tuple[CrossConnect, ...]:
        """The one-way cross-connects that make up a circuit: two, or one where it is one-way."""
        a, b = self.ports[circuit.a], self.ports[circuit.b]
        there = CrossConnect(a.ingress, b.egress)
        return (there,) if circuit.one_way else (there, CrossConnect(b.ingress, a.egress))


DemandMatrix: TypeAlias = "NDArray[np.float64]"
"""Shape (N, N), Mbps from row rack to column rack; the diagonal is zero."""
