"""Rows of a ToR's ports in Open vSwitch's database: read, compared and updated."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, cast

from drivers.codecs.ovsdb import SETS
from drivers.transports.ovsdb_session import (
    Call,
    OvsdbSession,
    RefusedError,
    Row,
    SessionLostError,
)
from hydra.model import VlanId
from hydra.roles import PortCounters, PortVlans

ReadT = TypeVar("ReadT")


@dataclass(frozen=True, slots=True)
class VlanColumns:
    """VLAN columns of a Port row."""

    vlan_mode: str | None
    tag: int | None
    trunks: frozenset[int]


@dataclass(frozen=True, slots=True)
class PortRows:
    """A port of the bridge: UUIDs of its row and of its interfaces' rows."""

    uuid: str
    interfaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading(Generic[ReadT]):
    """A reading of a port, from one row or several of a table."""

    table: str
    columns: tuple[str, ...]
    of: Callable[[PortRows], tuple[str, ...]]
    """UUIDs of the rows."""
    made: Callable[[list[Row]], ReadT]
    """The reading made from the rows."""

    def operation(self, uuid: str) -> bytes:
        where = [["_uuid", "==", ["uuid", uuid]]]
        operation = {"op": "select", "table": self.table, "where": where, "columns": self.columns}
        return json.dumps(operation).encode()


def select_rows(
    session: OvsdbSession, ports: Mapping[str, PortRows], reading: Reading[ReadT], call: Call
) -> dict[str, ReadT]:
    """Read the given ports from the database. Raises SessionLostError, RefusedError."""
    uuids = {name: reading.of(port) for name, port in ports.items()}
    operations = [reading.operation(uuid) for ids in uuids.values() for uuid in ids]
    results = iter(session.transact(operations, call))
    found = {}
    for name, ids in uuids.items():
        try:
            rows = [row for _ in ids for row in next(results)["rows"]]
            if len(rows) != len(ids):
                raise RefusedError(f"port {name} was replaced meanwhile")
            found[name] = reading.made(rows)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise SessionLostError(f"the record of port {name} is malformed: {error}") from error
    return found


def ports_of(bridge: Row, known: Mapping[str, Row]) -> dict[str, PortRows]:
    """Ports of a bridge by name. Raises SessionLostError."""
    try:
        return {
            known[uuid]["name"]: PortRows(uuid, tuple(uuids_of(known[uuid]["interfaces"])))
            for uuid in uuids_of(bridge["ports"])
            if uuid in known
        }
    except (LookupError, TypeError, ValueError) as error:
        raise SessionLostError(f"the record of the ports is malformed: {error}") from error


def update_of(uuid: str, columns: VlanColumns) -> bytes:
    tag = b'["set",[]]' if columns.tag is None else b"%d" % columns.tag
    return (
        b'{"op":"update","table":"Port","where":[["_uuid","==",["uuid","%s"]]],'
        b'"row":{"vlan_mode":"%s","tag":%s,"trunks":["set",[%s]]}}'
    ) % (uuid.encode(), str(columns.vlan_mode).encode(), tag, SETS.text(columns.trunks))


def members_of(value: object) -> Collection[Any]:
    """The members of a set in OVSDB's encoding: a single member stands for itself."""
    if isinstance(value, frozenset):
        return value
    if isinstance(value, list) and len(value) == 2 and value[0] in ("set", "map"):
        return value[1]  # type: ignore[no-any-return]
    return (value,)


def uuids_of(value: object) -> Iterator[str]:
    return (uuid for _, uuid in members_of(value))


def columns_read(rows: list[Row]) -> VlanColumns:
    (row,) = rows
    mode, tag = (next(iter(members_of(row[column])), None) for column in ("vlan_mode", "tag"))
    trunks = members_of(row["trunks"])
    if not isinstance(trunks, frozenset):
        trunks = frozenset(map(int, trunks))
    return VlanColumns(mode, None if tag is None else int(tag), trunks)


def carrier_of(rows: list[Row]) -> bool:
    return any(row["link_state"] == "up" for row in rows)


def counters_of(rows: list[Row]) -> PortCounters:
    """Counters summed over a bond's members; 0 for counters not yet reported by ovs-vswitchd."""
    counts = [dict(members_of(row["statistics"])) for row in rows]

    def total(name: str) -> int:
        return sum(count.get(name, 0) for count in counts)

    return PortCounters(
        rx_frames=total("rx_packets"),
        tx_frames=total("tx_packets"),
        rx_octets=total("rx_bytes"),
        tx_octets=total("tx_bytes"),
        rx_dropped=total("rx_dropped"),
        tx_dropped=total("tx_dropped"),
    )


VLANS: Final = Reading(
    "Port", ("vlan_mode", "tag", "trunks"), lambda port: (port.uuid,), columns_read
)


CARRIER: Final = Reading("Interface", ("link_state",), lambda port: port.interfaces, carrier_of)


COUNTERS: Final = Reading("Interface", ("statistics",), lambda port: port.interfaces, counters_of)


def shared(vlans: PortVlans) -> PortVlans:
    """The same membership, with a set shared by all equal memberships."""
    return PortVlans(cast("frozenset[VlanId]", SETS.shared(vlans.tagged)), vlans.native)


@lru_cache(maxsize=64)  # most ports have equal memberships
def membership_of(mode: str, tag: VlanId | None, trunks: frozenset[VlanId]) -> PortVlans | None:
    """Membership by the columns of a Port row; None for an unknown mode."""
    match mode:
        case "access":
            return PortVlans(frozenset(), tag)
        case "trunk":
            return PortVlans(trunks)
        case "native-untagged":
            return PortVlans(trunks - {tag}, tag)
        case "native-tagged":
            return PortVlans(trunks | frozenset(() if tag is None else (tag,)))
    return None


def columns_of(vlans: PortVlans) -> VlanColumns:
    mode = "trunk" if vlans.native is None else "native-untagged"
    return VlanColumns(mode, vlans.native, vlans.tagged)
