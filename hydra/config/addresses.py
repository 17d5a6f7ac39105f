"""Checks of prefixes and addresses."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hydra.config.expand import Expansion, Interface, Network, read_network
from hydra.config.problems import Located, ProblemLog
from hydra.config.schema import Document
from hydra.config.source import Path
from hydra.model import Rack, RackId


def read_subnets(document: Document, log: ProblemLog) -> list[Network]:
    """The subnets; empty if any subnet is unreadable, so that no check compares with a partial
    list.
    """
    networks = (
        read_network(text, ("subnets", index), log) for index, text in enumerate(document.subnets)
    )
    readable = [network for network in networks if network is not None]
    return readable if len(readable) == len(document.subnets) else []


def check_prefixes(expansion: Expansion, subnets: Collection[Network], log: ProblemLog) -> None:
    """Check that rack prefixes lie in the subnets and do not overlap.

    Two prefixes overlap only if one contains the other, so a single pass in sorted order finds all
    overlaps.
    """
    for (_, prefix), path, at in expansion.prefixes:
        if subnets and not any(_covers(subnet, prefix) for subnet in subnets):
            log.add(path, "prefix {} is outside all `subnets`", prefix, at=at)
    widest: Located[tuple[RackId, Network]] | None = None
    for located in sorted(expansion.prefixes, key=_prefix_order):
        prefix = located.value[1]
        if widest is not None and _covers(widest.value[1], prefix):
            log.add(
                located.path,
                "prefix {} overlaps {} of {}: each address belongs to a single rack",
                prefix,
                widest.value[1],
                widest.at,
                at=located.at,
            )
        else:
            widest = located


def _prefix_order(located: Located[tuple[RackId, Network]]) -> tuple[int, int, int]:
    prefix = located.value[1]
    return prefix.version, int(prefix.network_address), prefix.prefixlen


def _covers(outer: Network, inner: Network) -> bool:
    return (
        outer.version == inner.version
        and outer.prefixlen <= inner.prefixlen
        and _contains(outer, int(inner.network_address))
    )


def _contains(network: Network, address: int) -> bool:
    free = network.max_prefixlen - network.prefixlen
    return address >> free == int(network.network_address) >> free


def check_server_addresses(
    expansion: Expansion,
    subnets: Collection[Network],
    log: ProblemLog,
    warnings: ProblemLog,
) -> None:
    by_rack: dict[RackId, list[Network]] = {rack.id: [] for rack, _, _ in expansion.racks}
    for (rack_id, prefix), _, _ in expansion.prefixes:
        by_rack[rack_id].append(prefix)
    spans = {rack: list(map(_span_of, prefixes)) for rack, prefixes in by_rack.items()}
    allowed = list(map(_span_of, subnets))
    for (rack_id, address), path, at in expansion.addresses:
        version, number = address.version, int(address)
        if not _within(spans[rack_id], version, number):
            prefixes = ", ".join(map(str, by_rack[rack_id])) or "none"
            log.add(path, "{} is outside the rack's prefixes ({})", address.ip, prefixes, at=at)
        elif subnets and not _within(allowed, version, number):
            log.add(path, "{} is outside all `subnets`", address.ip, at=at)
        _check_host_address(address, path, at, log)
    _warn_missing_family(expansion, by_rack, warnings)


_Span = tuple[int, int, int]
"""IP version, lowest and highest address."""


def _span_of(network: Network) -> _Span:
    first = int(network.network_address)
    return network.version, first, first + network.num_addresses - 1


def _within(spans: Iterable[_Span], version: int, address: int) -> bool:
    return any(family == version and first <= address <= last for family, first, last in spans)


def _check_host_address(address: Interface, path: Path, at: str, log: ProblemLog) -> None:
    network = address.network
    if network.prefixlen >= network.max_prefixlen - 1:
        return
    free = network.max_prefixlen - network.prefixlen
    host = int(address) & ((1 << free) - 1)
    if host == 0 or (address.version == 4 and host == (1 << free) - 1):
        log.add(path, "{} is the network or broadcast address of {}", address.ip, network, at=at)


def _warn_missing_family(
    expansion: Expansion, by_rack: dict[RackId, list[Network]], warnings: ProblemLog
) -> None:
    families = {rack: {p.version for p in prefixes} for rack, prefixes in by_rack.items()}
    for server, path, at in expansion.servers:
        for version in families[server.rack] - {a.version for a in server.addresses}:
            warnings.add(
                (*path, "addresses"),
                "no IPv{} address although the rack has an IPv{} prefix",
                version,
                version,
                at=at,
            )


def warn_of_strangers(expansion: Expansion, warnings: ProblemLog) -> None:
    """Warn of racks with only IPv4 and racks with only IPv6: no traffic is possible between
    them.
    """
    alone: dict[int, list[Located[Rack]]] = {4: [], 6: []}
    for located in expansion.racks:
        families = located[0].families()
        if len(families) == 1:
            alone[min(families)].append(located)
    if not all(alone.values()):
        return
    fewer, more = sorted(alone, key=lambda version: len(alone[version]))
    other = alone[more][0][0].name
    others = f"rack {other}" + (f" and {len(alone[more]) - 1} more" if alone[more][1:] else "")
    for _, path, at in alone[fewer]:
        warnings.add(
            path,
            "the servers have IPv{} addresses only, and the servers of {} IPv{} only: no traffic "
            "passes between the two, and reservations between the two are refused",
            fewer,
            others,
            more,
            at=at,
        )


def check_one_subnet(expansion: Expansion, log: ProblemLog) -> None:
    """Check that the network of every server interface covers the prefixes of all racks in its
    family.

    Then servers use each other's MAC addresses across racks. With a subnet per rack, a vswitch
    would have to rewrite the MAC address of each destination.
    """
    spans = {
        version: _span(
            prefix for (_, prefix), _, _ in expansion.prefixes if prefix.version == version
        )
        for version in (4, 6)
    }
    covering: dict[Network, bool] = {}
    for (_, address), path, at in expansion.addresses:
        network = address.network
        covers = covering.get(network)
        if covers is None:
            low, high = spans[network.version]
            # Without a prefix of the family, the address itself has been reported.
            covers = low < 0 or (_contains(network, low) and _contains(network, high))
            covering[network] = covers
        if not covers:
            log.add(
                path,
                "the server's network {} does not hold every rack's prefixes: racks with separate "
                "subnets are not supported. Give {} the prefix length of one subnet that "
                "spans all racks",
                network,
                address.ip,
                at=at,
            )


def _span(prefixes: Iterable[Network]) -> tuple[int, int]:
    """Lowest and highest address of all prefixes; -1 without prefixes."""
    low, high = -1, -1
    for prefix in prefixes:
        first = int(prefix.network_address)
        last = first + (1 << (prefix.max_prefixlen - prefix.prefixlen)) - 1
        low = first if low < 0 else min(low, first)
        high = max(high, last)
    return low, high
