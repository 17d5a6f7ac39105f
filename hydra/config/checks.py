"""Checks across several values: double wiring, overlaps, small ranges."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from hydra.config.attachment import check_known, check_parking
from hydra.config.devices import PlaneCheck, RackCheck, parse_endpoint
from hydra.config.expand import LAST_VLAN, Expansion, read_network
from hydra.config.problems import ProblemLog
from hydra.config.schema import ControllerSection, Document
from hydra.config.source import Path
from hydra.errors import Problem
from hydra.hours import Hours
from hydra.model import Fabric, Rack, RackId, SubstrateKind, Tor, VlanId, VlanRange
from hydra.policy import Mode, Policy, Sharing, SourceCheck
from hydra.sharing.slots import DUPLEX_ALONE, too_short

VLAN_GENERATIONS: Final = 3
"""Simultaneous VLAN-IDs of an optical port: in use, being set up, and resting."""

_NO_VLANS: Final = VlanRange(VlanId(0), VlanId(0))
_LINUX_NAME_LENGTH: Final = 15
_LINUX_NAME = re.compile(r"[^\s/:]+")
_LINUX_TOR_DRIVERS: Final = "ovs-"
_VLAN_RANGE = re.compile(r"\s*([0-9]{1,18})\s*-\s*([0-9]{1,18})\s*")


# --- single sections ------------------------------------------------------------------------


def check_not_empty(document: Document, broken: frozenset[str], log: ProblemLog) -> None:
    for name in ("subnets", "racks", "planes", "wiring"):
        if name not in broken and not getattr(document, name):
            log.add((name,), "needs at least one entry")


def check_rack_kinds(document: Document, log: ProblemLog) -> None:
    """Check that racks have prefixes and servers, and that spines have neither."""
    for index, rack in enumerate(document.racks):
        for key, entries in (("prefixes", rack.prefixes), ("servers", rack.servers)):
            path: Path = ("racks", index, key)
            if rack.kind == "rack" and not entries:
                log.add(
                    path, "needs at least one entry (only a rack of `kind: spine` has no servers)"
                )
            if rack.kind == "spine" and entries:
                log.add(path, "a spine has no servers: circuits only pass through")


def check_controller(
    document: Document, log: ProblemLog, warnings: ProblemLog
) -> tuple[tuple[str, int], ...]:
    """The listening endpoints (OpenFlow, REST); an unusable endpoint gets port 0."""
    openflow = _check_endpoint(document.controller.openflow, ("controller", "openflow"), log)
    rest = _check_endpoint(document.controller.rest, ("controller", "rest"), log)
    if openflow[1] and openflow[1] == rest[1] and openflow[0] == rest[0]:
        log.add(
            ("controller", "rest"),
            "{} is taken by OpenFlow: give REST a different port",
            document.controller.rest,
        )
    for index, text in enumerate(document.controller.webhook_networks):
        read_network(text, ("controller", "webhook_networks", index), log)
    _check_security(document.controller, rest[0], log, warnings)
    return openflow, rest


def _check_security(
    section: ControllerSection, host: str, log: ProblemLog, warnings: ProblemLog
) -> None:
    """Check that REST outside loopback needs tokens; warn if the connection is unencrypted."""
    if (section.tls_certificate is None) != (section.tls_key is None):
        log.add(("controller",), "tls_certificate and tls_key go together: give both, or neither")
    openflow = (section.openflow_certificate, section.openflow_key, section.openflow_authority)
    if None in openflow and any(openflow):
        log.add(
            ("controller",),
            "openflow_certificate, openflow_key and openflow_authority go together: give all "
            "three, or none",
        )
    if section.url is not None and not _is_url(section.url):
        log.add(("controller", "url"), "{!r} is not like https://10.0.0.1:8443", section.url)
    if not host or is_loopback(host):
        return
    if section.tokens is None:
        log.add(
            ("controller", "rest"),
            "{} can be reached from elsewhere, and without tokens everybody may do everything: "
            "set controller.tokens, or listen on 127.0.0.1",
            host,
        )
    elif section.tls_certificate is None:
        warnings.add(
            ("controller", "rest"),
            "tokens travel unencrypted to {}: set tls_certificate and tls_key",
            host,
        )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """True if only the local machine can reach ``host``; the only such name is localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_endpoint(text: str, path: Path, log: ProblemLog) -> tuple[str, int]:
    endpoint = parse_endpoint(text)
    if endpoint is None:
        log.add(path, "{!r} is not host:port, such as 127.0.0.1:6653 or [::1]:6653", text)
    return endpoint or ("", 0)


def warn_of_disturbance(
    policy: Policy,
    algorithms: Collection[str],
    spares: Callable[[str], bool],
    warnings: ProblemLog,
) -> None:
    known = policy.algorithm in algorithms
    if policy.disturbance_mbps and known and not spares(policy.algorithm):
        warnings.add(
            ("policy", "disturbance_mbps"),
            "has no effect: {} gives up circuits without regard to the demand on them; choose {}",
            policy.algorithm,
            ", ".join(sorted(filter(spares, algorithms))),
        )


def check_policy(
    policy: Policy, algorithms: Collection[str], log: ProblemLog, warnings: ProblemLog
) -> None:
    check_known("algorithm", policy.algorithm, algorithms, ("policy", "algorithm"), log)
    check_keys_together(policy, log)
    if policy.mode is Mode.PERIODIC and not policy.poll_interval_s:
        warnings.add(
            ("policy", "poll_interval_s"),
            "polling is off, so the periodic mode never sees a demand",
        )


def check_keys_together(policy: Policy, log: ProblemLog) -> None:
    """Check combinations of keys, independent of the fabric."""
    shortest = policy.drain.reads * policy.drain.interval_ms
    if policy.drain.bound_ms < shortest:
        log.add(
            ("policy", "drain", "bound_ms"),
            "{:g} ms ends before {} reads {:g} ms apart have been made: at least {:g} is needed",
            policy.drain.bound_ms,
            policy.drain.reads,
            policy.drain.interval_ms,
            shortest,
        )
    if policy.slots.week_s < policy.slots.slot_s:
        log.add(
            ("policy", "slots", "week_s"),
            "a week of {:g} s holds no slot of {:g} s: make it longer",
            policy.slots.week_s,
            policy.slots.slot_s,
        )
    try:
        Hours.parse(policy.beyond_hours)
    except ValueError as error:
        log.add(("policy", "beyond_hours"), "{}: write two times of day, as 02:00-05:00", error)
    if policy.sharing is Sharing.SLOTTED and policy.mode is not Mode.PERIODIC:
        log.add(
            ("policy", "sharing"),
            "slotted has no schedule with the mode {}: set mode to periodic",
            policy.mode.value,
        )


Objection = Callable[[Fabric], str | None]
"""Reason why an algorithm cannot plan for a fabric, in words; None if suitable."""


def check_algorithm(
    name: str, algorithms: Mapping[str, Objection], fabric: Fabric, log: ProblemLog
) -> None:
    """Check that the algorithm can plan for the fabric, which must be valid."""
    reason = algorithms[name](fabric)
    if reason is not None:
        log.add(("policy", "algorithm"), "{} can't plan for this fabric: {}", name, reason)


def check_guests(
    document: Document, broken: frozenset[str], log: ProblemLog, warnings: ProblemLog
) -> None:
    """Check that servers that bridge guests list the guests. Without a source check, unlisted
    guests can send.
    """
    if "policy" in broken:
        return
    may_send = document.policy.source_check is SourceCheck.OFF
    consequence = (
        "no unicast reaches unlisted guests"
        if may_send
        else "policy.source_check refuses frames of unlisted guests"
    )
    for index, rack in enumerate(document.racks):
        for number, server in enumerate(rack.servers):
            if server.guests == []:
                (warnings if may_send else log).add(
                    ("racks", index, "servers", number, "guests"),
                    f"is empty, and {consequence}: list the guests' MAC addresses, or leave "
                    "`guests` out if the server has no guests",
                )


def warn_of_tags(document: Document, broken: frozenset[str], warnings: ProblemLog) -> None:
    """Warn if vswitches pass frames tagged by servers: behind the tag of a circuit, Open vSwitch
    reads no second tag by default. OpenFlow ToRs drop such frames.
    """
    open_flow = SubstrateKind.SINGLE_HOMED_OPENFLOW.value
    if "policy" in broken or document.substrate == open_flow:
        return
    if document.policy.source_check is SourceCheck.OFF:
        warnings.add(
            ("policy", "source_check"),
            "is off, so frames tagged by servers pass: `hydra reservations` counts no such frames "
            "on circuits unless `ovs-vsctl set Open_vSwitch . other_config:vlan-limit=2` is given "
            "on the servers",
        )


def check_slots(policy: Policy, fabric: Fabric, log: ProblemLog) -> None:
    """Check that slots are longer than a night, if the policy uses slots."""
    if policy.sharing is not Sharing.SLOTTED:
        return
    if fabric.one_way:
        log.add(("policy", "sharing"), DUPLEX_ALONE)
        return
    problem = too_short(fabric, policy)
    if problem is not None:
        log.add(("policy", "slots", "slot_s"), "{}", problem)


def objection_to(policy: Policy, fabric: Fabric) -> str | None:
    """The first objection of the file checks to the policy, or None."""
    log = ProblemLog()
    check_keys_together(policy, log)
    check_slots(policy, fabric, log)
    return log.first()


def check_drivers(
    document: Document,
    optical_drivers: Collection[str],
    tor_drivers: Collection[str],
    log: ProblemLog,
) -> None:
    for index, rack in enumerate(document.racks):
        path: Path = ("racks", index, "tor", "driver")
        check_known("ToR driver", rack.tor.driver, tor_drivers, path, log)
    for index, plane in enumerate(document.planes):
        path = ("planes", index, "driver")
        check_known("optical driver", plane.driver, optical_drivers, path, log)


# --- uniqueness -----------------------------------------------------------------------------


def check_unique(expansion: Expansion, log: ProblemLog) -> None:
    """Check that names, MAC, IP and device addresses, and datapath ids are unique."""
    # Racks and servers share a namespace: a reservation joins any two racks or servers.
    _unique("name {0!r}", _names(expansion), log)
    _unique("plane name {0!r}", ((v.name, (*p, "names"), at) for v, p, at in expansion.planes), log)
    _unique("MAC address {0}", _macs(expansion), log)
    _unique("address {0}", ((a.ip, p, at) for (_, a), p, at in expansion.addresses), log)
    _unique("datapath id {0:#x}", _datapath_ids(expansion), log)
    _unique(
        "device address {0}",
        ((v.address, (*p, "address"), at) for v, p, at in expansion.planes),
        log,
    )
    _unique(
        "ToR address {0[0]} {0[1]}",
        (
            ((r.tor.address, r.tor.bridge) if r.tor.address else "", (*p, "tor", "address"), at)
            for r, p, at in expansion.racks
        ),
        log,
    )


def _names(expansion: Expansion) -> Iterator[tuple[str, Path, str]]:
    for rack, path, at in expansion.racks:
        yield rack.name, (*path, "names"), at
    for server, path, at in expansion.servers:
        yield server.name, (*path, "names"), at


def _macs(expansion: Expansion) -> Iterator[tuple[str, Path, str]]:
    for server, path, at in expansion.servers:
        yield server.mac, (*path, "mac"), at
        for index, guest in enumerate(server.guests):
            yield guest, (*path, "guests", index), at


def _datapath_ids(expansion: Expansion) -> Iterator[tuple[int, Path, str]]:
    for rack, path, at in expansion.racks:
        yield rack.tor.datapath_id or 0, (*path, "tor", "datapath_id"), at
    for server, path, at in expansion.servers:
        if server.vswitch is not None:
            yield server.vswitch.datapath_id, (*path, "vswitch", "datapath_id"), at


def _unique(
    consequence: str, values: Iterable[tuple[Hashable, Path, str]], log: ProblemLog
) -> None:
    """Report each repeated value; empty values stand for unreadable text.

    ``consequence`` describes the value, with the placeholder ``{0}``.
    """
    first: dict[Hashable, tuple[str, Path]] = {}
    for value, path, at in values:
        if not value:
            continue
        if value in first:
            holder, where = first[value]
            text = consequence + " is already taken by {1}"
            log.add(path, text, value, holder, at=at, first=where)
        else:
            first[value] = at, path


# --- devices and wiring ---------------------------------------------------------------------


def check_devices(
    expansion: Expansion,
    optical_drivers: Mapping[str, PlaneCheck],
    tor_drivers: Mapping[str, RackCheck],
    log: ProblemLog,
) -> None:
    """Check the requirements of drivers, and that Linux ToRs have a bridge name."""
    for plane, path, at in expansion.planes:
        if (plane_check := optical_drivers.get(plane.driver)) is not None:
            _add_all(plane_check(plane), path, at, log)
    for rack, path, at in expansion.racks:
        tor = rack.tor
        if (rack_check := tor_drivers.get(tor.driver)) is not None:
            _add_all(rack_check(rack), (*path, "tor"), at, log)
        if _is_linux(tor) and not tor.bridge:
            log.add(
                (*path, "tor", "bridge"),
                "is missing: {} needs the name of the bridge that is this rack's ToR",
                tor.driver,
                at=at,
            )


def _add_all(problems: Iterable[Problem], path: Path, at: str, log: ProblemLog) -> None:
    for problem in problems:
        # Messages that differ only in a value are a single mistake in a pattern: counted, not
        # repeated.
        log.add((*path, *problem.path.split(".")), problem.message, at=at)


def check_interface_names(document: Document, expansion: Expansion, log: ProblemLog) -> None:
    """Check that names of Linux interfaces have at most 15 characters, and differ within a
    server.
    """
    for server, path, at in expansion.servers:
        names: dict[str, str] = {}
        vswitch = server.vswitch
        if vswitch is None:
            continue
        _, outer, _, inner = path
        entry = document.racks[int(outer)].servers[int(inner)].vswitch
        uplinks = (
            [("optical_port", vswitch.optical_port), ("electrical_port", vswitch.electrical_port)]
            if entry is None or entry.uplink_port is None
            else [("uplink_port", vswitch.optical_port)]
        )
        for key, name in (
            ("bridge", vswitch.bridge),
            ("host_port", vswitch.host_port),
            *uplinks,
        ):
            where: Path = (*path, "vswitch", key)
            _check_linux_name(name, where, at, log)
            other = names.setdefault(name, key)
            if name and other != key:
                log.add(where, "{!r} is already the name of {}", name, other, at=at)
    linux_racks = set[RackId]()
    for rack, path, at in expansion.racks:
        if _is_linux(rack.tor):
            linux_racks.add(rack.id)
            _check_linux_name(rack.tor.bridge, (*path, "tor", "bridge"), at, log)
    for rack_id, port, path, at in _tor_ports(expansion):
        if rack_id in linux_racks:
            _check_linux_name(port, path, at, log)


def _is_linux(tor: Tor) -> bool:
    return tor.driver.startswith(_LINUX_TOR_DRIVERS)


def _check_linux_name(name: str, path: Path, at: str, log: ProblemLog) -> None:
    if len(name) > _LINUX_NAME_LENGTH:
        log.add(
            path,
            "interface name {!r} has {} characters, Linux takes at most {}",
            name,
            len(name),
            _LINUX_NAME_LENGTH,
            at=at,
        )
    elif name and not _LINUX_NAME.fullmatch(name):
        log.add(path, "interface name {!r} holds a blank, a slash or a colon", name, at=at)


def check_wiring(expansion: Expansion, log: ProblemLog) -> None:
    """Check that no ToR port and no OCS port is wired twice."""
    racks = [rack for rack, _, _ in expansion.racks]

    def device(rack: RackId) -> tuple[str, str]:
        # Bridges of a host share a namespace of ports; every other ToR has a separate namespace.
        tor = racks[rack].tor
        return (tor.address, "") if _is_linux(tor) else (tor.address, racks[rack].name)

    tor_ports = (
        ((*device(rack), port) if port else "", path, at)
        for rack, port, path, at in _tor_ports(expansion)
    )
    _unique("wired twice: ToR port {0[2]!r}", tor_ports, log)
    for side in ("ingress", "egress"):
        ocs_ports = (
            ((port.plane, number) if (number := getattr(port, side)) else "", (*path, side), at)
            for port, path, at in expansion.ports
        )
        _unique(f"wired twice: {side} port {{0[1]}}", ocs_ports, log)


def _tor_ports(expansion: Expansion) -> Iterator[tuple[RackId, str, Path, str]]:
    for server, path, at in expansion.servers:
        yield server.rack, server.tor_port, (*path, "tor_port"), at
    for rack, path, at in expansion.racks:
        if rack.tor.electrical_port:
            yield rack.id, rack.tor.electrical_port, (*path, "tor", "electrical_port"), at
    for port, path, at in expansion.ports:
        yield port.rack, port.tor_port, (*path, "tor_port"), at


def warn_unwired(expansion: Expansion, warnings: ProblemLog) -> None:
    """Warn of racks and planes without wiring: permitted, but usually a mistake."""
    racks = {port.rack for port, _, _ in expansion.ports}
    planes = {port.plane for port, _, _ in expansion.ports}
    for rack, path, at in expansion.racks:
        if rack.id not in racks:
            warnings.add(path, "not wired to any plane: the rack's traffic stays electrical", at=at)
    for plane, path, at in expansion.planes:
        if plane.id not in planes:
            warnings.add(path, "not wired to any rack: the plane carries no traffic", at=at)


# --- VLANs ----------------------------------------------------------------------------------


def check_vlans(
    document: Document, expansion: Expansion, broken: frozenset[str], log: ProblemLog
) -> tuple[VlanRange, VlanId]:
    """The VLAN range for circuits and the parking VLAN."""
    if "vlans" in broken:
        return _NO_VLANS, VlanId(0)
    parking = check_parking(document, log)
    circuits = _read_vlan_range(document.vlans.circuits, log)
    if circuits is None:
        return _NO_VLANS, parking
    if parking in circuits:
        log.add(
            ("vlans", "parking"),
            "VLAN {} is in the range for circuits ({}-{}): an unused port would carry a circuit",
            parking,
            circuits.first,
            circuits.last,
        )
    for rack, path, at in expansion.racks:
        native, where = rack.tor.native_vlan, (*path, "tor", "native_vlan")
        if native in circuits:
            log.add(
                where,
                "VLAN {} is in the range for circuits ({}-{})",
                native,
                circuits.first,
                circuits.last,
                at=at,
            )
        elif native and native == parking:
            log.add(where, "VLAN {} is the parking VLAN", native, at=at)
        needed = len(circuits) + 2  # native and parking
        if needed > rack.tor.most_vlans:
            log.add(
                (*path, "tor", "most_vlans"),
                "is {}: with {} for circuits, {} VLANs are needed; narrow vlans.circuits",
                rack.tor.most_vlans,
                len(circuits),
                needed,
                at=at,
            )
    if document.substrate == SubstrateKind.SINGLE_HOMED_VLAN.value:
        _check_one_native_vlan(expansion, log)
    labels = document.substrate == SubstrateKind.SINGLE_HOMED_OPENFLOW.value
    if "wiring" not in broken and not labels:
        _check_vlan_count(circuits, expansion, log)
    return circuits, parking


def _check_one_native_vlan(expansion: Expansion, log: ProblemLog) -> None:
    """Check that racks whose native VLAN reaches the electrical network have the same native
    VLAN.
    """
    first: Rack | None = None
    for rack, path, at in expansion.racks:
        if rack.spine or not rack.tor.native_vlan:
            continue
        first = first or rack
        if rack.tor.native_vlan != first.tor.native_vlan:
            log.add(
                (*path, "tor", "native_vlan"),
                "VLAN {} is not the {} of {}: behind single-homed racks the native VLAN is the "
                "electrical network, so give all racks the same VLAN",
                rack.tor.native_vlan,
                first.tor.native_vlan,
                first.name,
                at=at,
            )


def _read_vlan_range(text: str, log: ProblemLog) -> VlanRange | None:
    path: Path = ("vlans", "circuits")
    match = _VLAN_RANGE.fullmatch(text)
    if match is None:
        log.add(path, "{!r} is not a range of VLAN-IDs, such as 100-199", text)
        return None
    first, last = int(match[1]), int(match[2])
    if not 1 <= first <= last <= LAST_VLAN:
        log.add(path, "range {}-{} must rise and lie within 1-{}", first, last, LAST_VLAN)
        return None
    return VlanRange(VlanId(first), VlanId(last))


def _check_vlan_count(circuits: VlanRange, expansion: Expansion, log: ProblemLog) -> None:
    """Check that there are three VLAN-IDs for each optical port of the rack with the most ports.

    If every port serves a direct path, a VLAN-ID per port is enough: directly joined rack pairs
    form a graph of that degree, and a graph of degree d splits into at most d forests, so every
    VLAN is loop-free. A change of all paths needs as many new VLAN-IDs, since parallel retagging
    passes through mixtures of old and new states; and the VLAN-IDs freed by the previous change
    still rest. Relayed paths share VLAN-IDs if loop-free, and may need more.
    """
    per_rack = Counter(port.rack for port, _, _ in expansion.ports)
    if not per_rack:
        return
    rack_id, ports = max(per_rack.items(), key=lambda item: item[1])
    needed = VLAN_GENERATIONS * ports
    if len(circuits) < needed:
        log.add(
            ("vlans", "circuits"),
            "{} VLAN-IDs are too few: rack {} has {} optical ports, and each needs {} (in use, "
            "being set up, resting), so at least {}",
            len(circuits),
            expansion.racks[rack_id].value.name,
            ports,
            VLAN_GENERATIONS,
            needed,
        )
