"""Tables of the meters and tallies of vswitches; differences between tables; readings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import count
from math import isinf
from typing import Final, TypeVar

from apps.controller.shares import Offer
from drivers.codecs.openflow.meters import (
    AddMeter,
    MeterChange,
    MeterCounters,
    RemoveMeter,
    SetMeter,
)
from hydra.forwarding.rules import (
    FlowRule,
    Install,
    Lane,
    Remove,
    RuleChange,
    match_key,
    numbered_way,
)
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, Path, RackId
from hydra.sharing.parted_holdings import exchanged
from hydra.sharing.policing import (
    Aggregate,
    Holdings,
    Tally,
    aggregate_rules,
    burst_of,
    electrical_rule,
    tally_rules,
)

_WORTH_TELLING: Final = 0.02
"""Relative change of a rate below which a meter is left unchanged."""


_HELD_BACK: Final = 0.002
"""Part of an aggregate's bytes: an aggregate that loses less would hardly send more."""


_KeyT = TypeVar("_KeyT", Aggregate, Tally)
Ways = Mapping[tuple[RackId, int], Lane]
"""Path in use of protected traffic, by destination and number in the switches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterTable:
    """Meters and tallies of a vswitch, by number, and the aggregates kept off its circuits."""

    meters: Mapping[Aggregate, int] = field(default_factory=dict)
    tallies: Mapping[Tally, int] = field(default_factory=dict)
    electrical: frozenset[Aggregate] = frozenset()
    lanes: Mapping[Aggregate, int] = field(default_factory=dict)
    """As in :class:`hydra.sharing.policing.Holdings`."""
    standbys: Mapping[tuple[RackId, int], tuple[Lane, Lane]] = field(default_factory=dict)
    """Working path and path on standby of protected traffic, by destination rack and number."""
    ways: Ways = field(default_factory=dict)
    """The path of ``standbys`` that is in use."""


_EMPTY: Final = MeterTable()
MeterTables = Mapping[DatapathId, MeterTable]
Metered = tuple[float, Mapping[DatapathId, Mapping[int, MeterCounters]]]
"""The time of a reading, in s, and the meters' counters by vswitch and number."""


def tables_of(
    wanted: Holdings, switch_of: Mapping[str, DatapathId]
) -> Iterator[tuple[DatapathId, MeterTable]]:
    """The table of each vswitch, with numbers yet to be given."""
    aggregates: dict[DatapathId, list[Aggregate]] = {}
    tallies: dict[DatapathId, list[Tally]] = {}
    electrical: dict[DatapathId, list[Aggregate]] = {}
    lanes: dict[DatapathId, dict[Aggregate, int]] = {}
    standbys: dict[DatapathId, dict[tuple[RackId, int], tuple[Lane, Lane]]] = {}
    for aggregate in sorted(wanted.routes):
        aggregates.setdefault(switch_of[aggregate.sender], []).append(aggregate)
    for tally in sorted(wanted.tallies):
        tallies.setdefault(switch_of[tally.receiver], []).append(tally)
    for aggregate in wanted.electrical:
        electrical.setdefault(switch_of[aggregate.sender], []).append(aggregate)
    for aggregate, lane in wanted.lanes.items():
        lanes.setdefault(switch_of[aggregate.sender], {})[aggregate] = lane
        if aggregate in wanted.standbys:
            both = wanted.standbys[aggregate]
            standbys.setdefault(switch_of[aggregate.sender], {})[aggregate.to, lane] = both
    for datapath in aggregates.keys() | tallies.keys() | electrical.keys():
        yield (
            datapath,
            MeterTable(
                meters=dict.fromkeys(aggregates.get(datapath, ()), 0),
                tallies=dict.fromkeys(tallies.get(datapath, ()), 0),
                electrical=frozenset(electrical.get(datapath, ())),
                lanes=lanes.get(datapath, {}),
                standbys=standbys.get(datapath, {}),
                ways={way: both[0] for way, both in standbys.get(datapath, {}).items()},
            ),
        )


def tables_with(
    before: MeterTables, gone: Holdings, new: Holdings, switch_of: Mapping[str, DatapathId]
) -> MeterTables:
    """The tables with the holdings ``new`` in place of the holdings ``gone``.

    Unchanged meters and tallies keep their numbers; an unchanged table is the same object.
    """
    after = dict(before)
    old, added = (dict(tables_of(held, switch_of)) for held in (gone, new))
    for datapath in old.keys() | added.keys():
        present = before.get(datapath, _EMPTY)
        out, come = old.get(datapath, _EMPTY), added.get(datapath, _EMPTY)
        table = MeterTable(
            meters=dict.fromkeys(
                sorted((present.meters.keys() - out.meters.keys()) | come.meters.keys()), 0
            ),
            tallies=dict.fromkeys(
                sorted((present.tallies.keys() - out.tallies.keys()) | come.tallies.keys()), 0
            ),
            electrical=(present.electrical - out.electrical) | come.electrical,
            lanes=exchanged(present.lanes, out.lanes, come.lanes),
            standbys=exchanged(present.standbys, out.standbys, come.standbys),
            ways=exchanged(present.ways, out.ways, come.ways),
        )
        if table.meters or table.tallies or table.electrical:
            after[datapath] = numbered(table, present)
        else:
            after.pop(datapath, None)
    return after


def affected(old: Holdings, new: Holdings) -> set[Aggregate]:
    """Aggregates of ``new`` with rates possibly affected by a difference from ``old``.

    An aggregate is affected if it shares a link, directly or through a chain of links of other
    aggregates, with a new, removed or changed element.
    """
    found = {
        aggregate for aggregate, links in new.routes.items() if old.routes.get(aggregate) != links
    }
    gone = old.routes.keys() - new.routes.keys()
    for flow in set(old.flows) ^ set(new.flows):
        found |= new.routes.keys() & set(flow.aggregates)
    was, left = old.remaining_mbps, new.remaining_mbps
    links = {link for link in was.keys() | left.keys() if was.get(link) != left.get(link)}
    for way in found | gone:
        links.update(old.routes.get(way, ()), new.routes.get(way, ()))
    several = {along for along in new.routes.values() if len(along) > 1}
    while more := {along for along in several if not links.isdisjoint(along)}:
        links.update(*more)
        several -= more
    return found | {
        aggregate for aggregate, along in new.routes.items() if not links.isdisjoint(along)
    }


def missing(tables: MeterTables, read: Metered) -> Iterator[Aggregate]:
    """Aggregates without a meter on a vswitch that answered."""
    _, counters = read
    for datapath, found in counters.items():
        for aggregate, number in tables[datapath].meters.items():
            if number not in found:
                yield aggregate


def is_news(old_mbps: float, new_mbps: float) -> bool:
    """Whether to send a rate to a meter."""
    if isinf(old_mbps) or isinf(new_mbps):
        return old_mbps != new_mbps
    return abs(new_mbps - old_mbps) > _WORTH_TELLING * old_mbps


def offers_of(
    tables: MeterTables, before: Metered, after: Metered
) -> Iterator[tuple[Aggregate, Offer]]:
    """Offers of aggregates, from two readings of meters."""
    (began_s, first), (ended_s, last) = before, after
    for datapath in first.keys() & last.keys():
        for aggregate, number in tables[datapath].meters.items():
            if number not in first[datapath] or number not in last[datapath]:
                continue
            old, new = first[datapath][number], last[datapath][number]
            sent, dropped = new.bytes_in - old.bytes_in, new.bytes_dropped - old.bytes_dropped
            if sent >= 0:
                rate_mbps = sent * 8e-6 / (ended_s - began_s)
                yield aggregate, Offer(rate_mbps, held_back=dropped > _HELD_BACK * sent)


def numbered(table: MeterTable, before: MeterTable) -> MeterTable:
    if (
        table.meters.keys() == before.meters.keys()
        and table.tallies.keys() == before.tallies.keys()
        and table.electrical == before.electrical
        and table.lanes == before.lanes
        and table.standbys == before.standbys
        and table.ways == before.ways
    ):
        return before
    return MeterTable(
        meters=_numbers(table.meters, before.meters),
        tallies=_numbers(table.tallies, before.tallies),
        electrical=table.electrical,
        lanes=table.lanes,
        standbys=table.standbys,
        ways=table.ways,
    )


def switched_over(table: MeterTable, lost: Collection[Path]) -> Ways:
    """The new ways of protected traffic that can leave ``lost`` paths."""
    return {
        way: other
        for way, both in table.standbys.items()
        for other in both
        if table.ways[way][0] in lost and other[0] not in lost
    }


def _numbers(wanted: Iterable[_KeyT], before: Mapping[_KeyT, int]) -> dict[_KeyT, int]:
    """Numbers by key: the old number if any, else the lowest free number."""
    taken = set(before.values())
    free = (number for number in count(1) if number not in taken)
    return {key: before[key] if key in before else next(free) for key in wanted}


def rate_changes(
    aggregates: Iterable[Aggregate],
    tables: MeterTables,
    allowed_mbps: Mapping[Aggregate, float],
    switch_of: Mapping[str, DatapathId],
) -> dict[DatapathId, list[MeterChange]]:
    """Changes that set the meters of ``aggregates`` to their rates, by vswitch."""
    changes: dict[DatapathId, list[MeterChange]] = {}
    for aggregate in aggregates:
        datapath = switch_of[aggregate.sender]
        number = tables[datapath].meters[aggregate]
        change = SetMeter(number, allowed_mbps[aggregate], burst_of(aggregate))
        changes.setdefault(datapath, []).append(change)
    return changes


def in_both(
    before: MeterTables, after: MeterTables, datapaths: AbstractSet[DatapathId]
) -> list[Aggregate]:
    """Aggregates with a meter both before and after, of the given vswitches."""
    return [
        aggregate
        for datapath in sorted(after.keys() & before.keys() & datapaths)
        for aggregate in after[datapath].meters
        if aggregate in before[datapath].meters
    ]


def added_meters(
    datapath: DatapathId,
    before: MeterTables,
    after: MeterTables,
    allowed_mbps: Mapping[Aggregate, float],
) -> list[MeterChange]:
    """Changes that add the meters present only after a change."""
    old = before.get(datapath, MeterTable()).meters
    new = after.get(datapath, MeterTable()).meters
    added = ((aggregate, number) for aggregate, number in new.items() if aggregate not in old)
    return [
        AddMeter(number, allowed_mbps[aggregate], burst_of(aggregate))
        for aggregate, number in added
    ]


def old_meters(
    datapath: DatapathId,
    before: MeterTables,
    after: MeterTables,
) -> list[MeterChange]:
    old = before.get(datapath, MeterTable()).meters
    new = after.get(datapath, MeterTable()).meters
    return [RemoveMeter(number) for aggregate, number in old.items() if aggregate not in new]


def differing(before: Iterable[FlowRule], after: Iterable[FlowRule]) -> list[RuleChange]:
    old = {match_key(rule): rule for rule in before}
    new = {match_key(rule): rule for rule in after}
    gone = [Remove(rule) for key, rule in old.items() if key not in new]
    return [*gone, *(Install(rule) for key, rule in new.items() if old.get(key) != rule)]


def rules_of(fabric: Fabric, table: MeterTable, *, metered: bool) -> Iterator[FlowRule]:
    """Rules of a vswitch for its table; without the rules of meters unless ``metered``."""
    if metered:
        for aggregate, meter in table.meters.items():
            lane = table.lanes.get(aggregate)
            yield from _own(
                fabric, aggregate.sender, aggregate_rules(fabric, aggregate, meter, lane)
            )
    yield from way_rules(fabric, table.ways)
    for aggregate in sorted(table.electrical):
        yield from _own(fabric, aggregate.sender, [electrical_rule(aggregate)])
    for tally, number in table.tallies.items():
        yield from _own(fabric, tally.receiver, tally_rules(fabric, tally, number))


def way_rules(fabric: Fabric, ways: Ways) -> Iterator[FlowRule]:
    """Rules that send protected traffic along its path in use."""
    substrate = substrate_of(fabric)
    for (to, number), lane in ways.items():
        path = lane[0]
        rack = path.src if path.dst == to else path.dst
        yield numbered_way(substrate.steer(rack, to, (lane, lane), 0), number)


def _own(fabric: Fabric, server: str, rules: Iterable[FlowRule]) -> Iterator[FlowRule]:
    substrate = substrate_of(fabric)
    for rule in rules:
        yield substrate.for_server(rule, fabric.server_by_name[server])


def part_of(held: Holdings, some: Collection[Aggregate]) -> Holdings:
    """The part of ``held`` that concerns the aggregates ``some``."""
    return Holdings(
        tuple(
            flow for flow in held.flows if any(aggregate in some for aggregate in flow.aggregates)
        ),
        {aggregate: links for aggregate, links in held.routes.items() if aggregate in some},
        held.remaining_mbps,
    )


def steering_switches(fabric: Fabric) -> dict[str, DatapathId]:
    """The switch that steers each server's frames, by the server's name."""
    steering = substrate_of(fabric).steering
    return {
        server.name: switch.datapath
        for rack in fabric.racks
        for switch in steering(rack.id)
        for server in switch.servers
    }
