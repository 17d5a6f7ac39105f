"""Expansion of patterns to racks, servers, planes and optical ports, an object each.

An unreadable value is recorded as a problem and replaced by a neutral value (``0`` or ``""``) that
checks ignore, so that a mistake does not hide further mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_network,
)
from typing import Final, TypeVar

from hydra.config.patterns import (
    PatternError,
    Scope,
    count_names,
    expand_names,
    parse_template,
    suggest,
)
from hydra.config.problems import Located, ProblemLog
from hydra.config.schema import (
    Document,
    LoginSection,
    PlaneEntry,
    RackEntry,
    ServerEntry,
    TorEntry,
    VSwitchEntry,
    WiringEntry,
)
from hydra.config.source import Path
from hydra.model import (
    DatapathId,
    Login,
    MacAddress,
    OpticalPort,
    Plane,
    PlaneId,
    PortId,
    Rack,
    RackId,
    Server,
    Tor,
    VlanId,
    VSwitch,
)

Network = IPv4Network | IPv6Network
Interface = IPv4Interface | IPv6Interface

LAST_VLAN: Final = 4094
MOST: Final = {
    "racks": 4096,
    "planes": 4096,
    "servers": 65_536,
    "guests": 65_536,
    "optical ports": 65_536,
}
_RACK_SCOPE: Final = ("rack",)
_SERVER_SCOPE: Final = ("rack", "server")
_PLANE_SCOPE: Final = ("plane",)
_WIRING_SCOPE: Final = ("rack", "plane", "ports")

_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PRINTED_DATAPATH_ID: Final = re.compile(r"[0-9a-fA-F]{16}|(?:[0-9a-fA-F]{2}:){7}[0-9a-fA-F]{2}")
_GROUP_BIT: Final = 1


def _check_not_printed(text: str) -> None:
    """Raise PatternError for a datapath id in the output format of switches, which would be read as
    decimal.
    """
    if _PRINTED_DATAPATH_ID.fullmatch(text):
        raise PatternError(
            f"{text!r} is a datapath id in the hexadecimal form of switches: write "
            f"0x{text.replace(':', '')}"
        )


@dataclass(frozen=True, slots=True)
class Expansion:
    """All objects of a document, with their places in the file."""

    racks: list[Located[Rack]] = field(default_factory=list)
    servers: list[Located[Server]] = field(default_factory=list)
    planes: list[Located[Plane]] = field(default_factory=list)
    ports: list[Located[OpticalPort]] = field(default_factory=list)
    prefixes: list[Located[tuple[RackId, Network]]] = field(default_factory=list)
    addresses: list[Located[tuple[RackId, Interface]]] = field(default_factory=list)


def too_large(document: Document, log: ProblemLog) -> bool:
    """True if ``document`` describes more than :data:`MOST`, counted before the expansion."""
    return (
        _exceeds("racks", ("racks",), (_count(rack.names) for rack in document.racks), log)
        or _exceeds("planes", ("planes",), (_count(plane.names) for plane in document.planes), log)
        or _exceeds("servers", ("racks",), (number for number, _ in _count_servers(document)), log)
        or _exceeds(
            "guests",
            ("racks",),
            (number * len(entry.guests or ()) for number, entry in _count_servers(document)),
            log,
        )
        or _exceeds(
            "optical ports",
            ("wiring",),
            (
                sum(map(_count, entry.racks)) * sum(map(_count, entry.planes))
                for entry in document.wiring
            ),
            log,
        )
    )


def _exceeds(kind: str, path: Path, numbers: Iterable[int], log: ProblemLog) -> bool:
    total = 0
    for number in numbers:
        total += number
        if total > MOST[kind]:
            log.add(path, "more than {} {}: a fabric has at most so many", MOST[kind], kind)
            return True
    return False


def _count(pattern: str) -> int:
    """Number of names, at least 1: the expansion reports mistakes in the pattern."""
    try:
        return count_names(pattern)
    except PatternError:
        return 1


def _count_servers(document: Document) -> Iterator[tuple[int, ServerEntry]]:
    """Number of servers of each entry in each rack."""
    racks = (entry for entry in document.racks for _ in range(_count(entry.names)))
    for number, rack in enumerate(racks, 1):
        for servers in rack.servers:
            try:
                pattern = parse_template(servers.names, _RACK_SCOPE).render({"rack": number})
            except PatternError:
                pattern = ""
            yield _count(pattern), servers


def expand(document: Document, broken: frozenset[str], log: ProblemLog) -> Expansion:
    """Expand all sections that are not ``broken``; wiring also needs racks and planes."""
    expansion = Expansion()
    named = _RackExpander(log, expansion).expand(document.racks)
    named &= _expand_planes(document.planes, log, expansion)
    if named and not broken & {"racks", "planes", "wiring"}:
        _WiringExpander(log, expansion).expand(document.wiring)
    return expansion


@dataclass(frozen=True, slots=True)
class _Reader:
    """Fills the templates of an object, and parses the text."""

    log: ProblemLog
    names: tuple[str, ...]
    scope: Scope
    at: str

    def text(self, template: str, path: Path) -> str:
        try:
            return parse_template(template, self.names).render(self.scope)
        except PatternError as error:
            self.log.add(path, str(error), at=self.at)
            return ""

    def number(
        self, template: int | str, path: Path, check: Callable[[str], None] = lambda _text: None
    ) -> int | None:
        if isinstance(template, int):
            return template
        try:
            return parse_template(template, self.names).number(self.scope, check)
        except PatternError as error:
            self.log.add(path, str(error), at=self.at)
            return None

    def vlan(self, template: int | str, path: Path) -> VlanId:
        number = self.number(template, path)
        if number is None:
            return VlanId(0)
        return check_vlan(number, path, self.log, self.at)

    def datapath_id(self, template: int | str, path: Path) -> DatapathId:
        number = self.number(template, path, _check_not_printed)
        if number is not None and not 0 < number < 1 << 64:
            self.log.add(
                path, "datapath id must be between 1 and 2^64 - 1, got {}", number, at=self.at
            )
            number = None
        return DatapathId(number or 0)

    def ocs_port(self, template: int | str, side: str, first: int, plane: Plane, path: Path) -> int:
        number = self.number(template, (*path, side))
        last = first + plane.ports - 1
        if number is None or first <= number <= last:
            return number or 0
        self.log.add(
            (*path, side),
            "{} port {} does not exist: plane {} has {} ports a side, so {} ports are {} to {}; "
            "correct the wiring or the plane's `ports`",
            side,
            number,
            plane.name,
            plane.ports,
            side,
            first,
            last,
            at=self.at,
        )
        return 0

    def mac(self, template: str, path: Path) -> MacAddress:
        text = self.text(template, path).lower()
        if not text:
            return MacAddress("")
        if not _MAC.fullmatch(text):
            self.log.add(
                path,
                "{!r} is not a MAC address: write six hexadecimal pairs, 02:00:00:00:01:0a",
                text,
                at=self.at,
            )
            return MacAddress("")
        if int(text[:2], 16) & _GROUP_BIT or text == "00:00:00:00:00:00":
            self.log.add(
                path,
                "{} is a group (multicast) or empty address: a server or guest needs one of its "
                "own, with an even first byte",
                text,
                at=self.at,
            )
        return MacAddress(text)

    def network(self, template: str, path: Path) -> Network | None:
        text = self.text(template, path)
        return read_network(text, path, self.log, self.at) if text else None

    def interface(self, template: str, path: Path) -> Interface | None:
        text = self.text(template, path)
        if not text:
            return None
        if "/" not in text:
            self.log.add(
                path,
                "{} has no prefix length: write {}/16, or the server's subnet",
                text,
                text,
                at=self.at,
            )
            return None
        try:
            return _not_mapped(read_interface(text))
        except ValueError as error:
            self.log.add(path, "{!r} is not an interface address: {}", text, error, at=self.at)
            return None

    def name_list(self, template: str, path: Path) -> tuple[str, ...]:
        text = self.text(template, path)
        return read_names(text, path, self.log, self.at) if text else ()


_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_Found = TypeVar("_Found", Network, Interface)


def _not_mapped(found: _Found) -> _Found:
    """Raise ValueError for an IPv4 address or prefix in IPv6 form."""
    network = found if isinstance(found, IPv4Network | IPv6Network) else found.network
    if network.version == 6 and network.prefixlen >= 96 and network.subnet_of(_MAPPED):
        raise ValueError("an IPv4 address in the form of IPv6: write the address as IPv4")
    return found


def read_interface(text: str) -> Interface:
    """Like ``ipaddress``, which would parse the text twice. Raises ValueError."""
    address, _, bits = text.partition("/")
    six = ":" in text
    if "%" in text or not (bits.isascii() and bits.isdigit()):
        return IPv6Interface(text) if six else IPv4Interface(text)
    if six:
        return IPv6Interface((int(IPv6Address(address)), int(bits)))
    return IPv4Interface((int(IPv4Address(address)), int(bits)))


def read_names(pattern: str, path: Path, log: ProblemLog, at: str = "") -> tuple[str, ...]:
    """The names of a pattern; reports names with characters unfit for URLs or logs."""
    try:
        names = expand_names(pattern)
    except PatternError as error:
        log.add(path, str(error), at=at)
        return ()
    for name in names:
        if not _NAME.fullmatch(name):
            log.add(path, "name {!r} may only hold letters, digits and . _ -", name, at=at)
    return names


def read_network(text: str, path: Path, log: ProblemLog, at: str = "") -> Network | None:
    """Parse an IP prefix without host bits; reports a problem and returns None if invalid."""
    try:
        return _not_mapped(ip_network(text))
    except ValueError as error:
        log.add(path, "{!r} is not an IP prefix: {}", text, _with_remedy(text, error), at=at)
        return None


def _with_remedy(text: str, error: ValueError) -> str:
    """The error, with the prefix itself in place of a prefix with host bits."""
    try:
        return f"{error}: write {_not_mapped(ip_network(text, strict=False))}"
    except ValueError:
        return str(error)


def check_vlan(number: int, path: Path, log: ProblemLog, at: str = "") -> VlanId:
    """``number`` as a VLAN-ID; reports a problem and returns 0 if invalid."""
    if 1 <= number <= LAST_VLAN:
        return VlanId(number)
    log.add(path, "VLAN-ID must be between 1 and {}, got {}", LAST_VLAN, number, at=at)
    return VlanId(0)


class _RackExpander:
    def __init__(self, log: ProblemLog, expansion: Expansion) -> None:
        self._log = log
        self._expansion = expansion

    def expand(self, entries: Sequence[RackEntry]) -> bool:
        """Add all racks; False if some names are unreadable."""
        named = True
        for index, entry in enumerate(entries):
            path: Path = ("racks", index)
            names = read_names(entry.names, (*path, "names"), self._log)
            named &= bool(names)
            for name in names:
                self._add_rack(entry, name, path)
        return named

    def _add_rack(self, entry: RackEntry, name: str, path: Path) -> None:
        rack = RackId(len(self._expansion.racks))
        at = f"rack {name}"
        reader = _Reader(self._log, _RACK_SCOPE, {"rack": rack + 1}, at)
        prefixes: list[Network] = []
        for index, template in enumerate(entry.prefixes):
            where = (*path, "prefixes", index)
            prefix = reader.network(template, where)
            if prefix is not None:
                prefixes.append(prefix)
                self._expansion.prefixes.append(Located((rack, prefix), where, at))
        tor = _read_tor(entry.tor, (*path, "tor"), reader)
        servers = self._add_servers(entry.servers, rack, path, reader)
        spine = entry.kind == "spine"
        self._expansion.racks.append(
            Located(Rack(rack, name, tuple(prefixes), tor, servers, spine), path, at)
        )

    def _add_servers(
        self, entries: Sequence[ServerEntry], rack: RackId, path: Path, reader: _Reader
    ) -> tuple[Server, ...]:
        servers: list[Server] = []
        for index, entry in enumerate(entries):
            where = (*path, "servers", index)
            for name in reader.name_list(entry.names, (*where, "names")):
                at = f"{reader.at}, server {name}"
                scope = {"rack": rack + 1, "server": len(servers) + 1}
                server_reader = _Reader(self._log, _SERVER_SCOPE, scope, at)
                server = self._read_server(entry, name, rack, where, server_reader)
                servers.append(server)
                self._expansion.servers.append(Located(server, where, at))
        return tuple(servers)

    def _read_server(
        self, entry: ServerEntry, name: str, rack: RackId, path: Path, reader: _Reader
    ) -> Server:
        addresses: list[Interface] = []
        for index, template in enumerate(entry.addresses):
            where = (*path, "addresses", index)
            address = reader.interface(template, where)
            if address is not None:
                addresses.append(address)
                self._expansion.addresses.append(Located((rack, address), where, reader.at))
        return Server(
            name=name,
            rack=rack,
            mac=reader.mac(entry.mac, (*path, "mac")),
            addresses=tuple(addresses),
            tor_port=reader.text(entry.tor_port, (*path, "tor_port")),
            vswitch=(
                None
                if entry.vswitch is None
                else _read_vswitch(entry.vswitch, (*path, "vswitch"), reader)
            ),
            guests=tuple(
                reader.mac(template, (*path, "guests", index))
                for index, template in enumerate(entry.guests or ())
            ),
        )


def _read_tor(entry: TorEntry, path: Path, reader: _Reader) -> Tor:
    datapath_id = None
    if entry.datapath_id is not None:
        datapath_id = reader.datapath_id(entry.datapath_id, (*path, "datapath_id"))
    return Tor(
        driver=entry.driver,
        address=reader.text(entry.address, (*path, "address")),
        bridge=reader.text(entry.bridge, (*path, "bridge")),
        datapath_id=datapath_id,
        native_vlan=(
            VlanId(0)
            if entry.native_vlan is None
            else reader.vlan(entry.native_vlan, (*path, "native_vlan"))
        ),
        electrical_port=(
            None
            if entry.electrical_port is None
            else reader.text(entry.electrical_port, (*path, "electrical_port"))
        ),
        login=_read_login(entry.login, (*path, "login"), reader),
        options=entry.options,
        most_vlans=entry.most_vlans,
        protected_ports=entry.protected_ports,
    )


def _read_login(entry: LoginSection | None, path: Path, reader: _Reader) -> Login | None:
    if entry is None:
        return None

    def read(key: str, template: str | None) -> str | None:
        return None if template is None else reader.text(template, (*path, key))

    return Login(
        username=reader.text(entry.username, (*path, "username")),
        password_env=read("password_env", entry.password_env),
        password_file=read("password_file", entry.password_file),
        key_file=read("key_file", entry.key_file),
    )


def _read_vswitch(entry: VSwitchEntry, path: Path, reader: _Reader) -> VSwitch:
    """Read a vswitch; a single uplink stands for both uplinks. The checks find misplaced keys."""
    uplink = None
    if entry.uplink_port is not None:
        uplink = reader.text(entry.uplink_port, (*path, "uplink_port"))

    def read(key: str, template: str | None) -> str:
        if template is None:
            return uplink or ""
        return reader.text(template, (*path, key))

    return VSwitch(
        datapath_id=reader.datapath_id(entry.datapath_id, (*path, "datapath_id")),
        bridge=reader.text(entry.bridge, (*path, "bridge")),
        host_port=reader.text(entry.host_port, (*path, "host_port")),
        optical_port=read("optical_port", entry.optical_port),
        electrical_port=read("electrical_port", entry.electrical_port),
    )


def _expand_planes(entries: Sequence[PlaneEntry], log: ProblemLog, expansion: Expansion) -> bool:
    """Add all planes; False if some names are unreadable."""
    named = True
    for index, entry in enumerate(entries):
        path: Path = ("planes", index)
        names = read_names(entry.names, (*path, "names"), log)
        named &= bool(names)
        for name in names:
            plane_id = PlaneId(len(expansion.planes))
            at = f"plane {name}"
            reader = _Reader(log, _PLANE_SCOPE, {"plane": plane_id + 1}, at)
            plane = Plane(
                id=plane_id,
                name=name,
                driver=entry.driver,
                address=reader.text(entry.address, (*path, "address")),
                ports=entry.ports,
                switching_ms=entry.switching_ms,
                rate_mbps=entry.rate_mbps,
                login=_read_login(entry.login, (*path, "login"), reader),
                options=entry.options,
            )
            expansion.planes.append(Located(plane, path, at))
    return named


class _WiringExpander:
    def __init__(self, log: ProblemLog, expansion: Expansion) -> None:
        self._log = log
        self._expansion = expansion
        self._racks = {rack.name: rack for rack, _, _ in expansion.racks}
        self._planes = {plane.name: plane for plane, _, _ in expansion.planes}

    def expand(self, entries: Sequence[WiringEntry]) -> None:
        for index, entry in enumerate(entries):
            path: Path = ("wiring", index)
            racks = self._find("rack", self._racks, entry.racks, (*path, "racks"))
            planes = self._find("plane", self._planes, entry.planes, (*path, "planes"))
            for rack in racks:
                for plane in planes:
                    self._add_port(entry, self._racks[rack], self._planes[plane], path)
        self._number_ports()

    def _find(
        self, kind: str, known: Mapping[str, object], patterns: Sequence[str], path: Path
    ) -> list[str]:
        found: list[str] = []
        for index, pattern in enumerate(patterns):
            where = (*path, index) if len(patterns) > 1 else path
            names = read_names(pattern, where, self._log)
            unknown = [name for name in names if name not in known]
            # A hint for the first unknown name; the rest is counted.
            hint = suggest(unknown[0], list(known)) if unknown else ""
            for name in unknown:
                self._log.add(where, "there is no {} {!r}; {}", kind, name, hint)
            found.extend(name for name in names if name in known)
        return found

    def _add_port(self, entry: WiringEntry, rack: Rack, plane: Plane, path: Path) -> None:
        at = f"rack {rack.name}, plane {plane.name}"
        scope = {"rack": rack.id + 1, "plane": plane.id + 1, "ports": plane.ports}
        reader = _Reader(self._log, _WIRING_SCOPE, scope, at)
        port = OpticalPort(
            id=PortId(len(self._expansion.ports)),
            rack=rack.id,
            plane=plane.id,
            tor_port=reader.text(entry.tor_port, (*path, "tor_port")),
            ingress=reader.ocs_port(entry.ingress, "ingress", 1, plane, path),
            egress=reader.ocs_port(entry.egress, "egress", plane.ports + 1, plane, path),
            rate_mbps=plane.rate_mbps if entry.rate_mbps is None else entry.rate_mbps,
        )
        self._expansion.ports.append(Located(port, path, at))

    def _number_ports(self) -> None:
        """Number ports by rack, then plane, then order in the file."""
        ports = self._expansion.ports
        ports.sort(key=lambda located: (located.value.rack, located.value.plane))
        ports[:] = [
            Located(replace(port, id=PortId(number)), path, at)
            for number, (port, path, at) in enumerate(ports)
        ]
