"""Keeps reserved bandwidth in the data plane: meters at the senders, counters at the ends.

The conductor says which reservations are to be held (:meth:`Policing.hold`). A thread reads the
counters once a second, or less often where there are very many, shares out anew the bandwidth that
reservations leave (:mod:`apps.controller.shares`), and notes the rates that reservations get.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import isinf
from typing import Final, TypeVar

from apps.controller.refills import Refills, borne
from apps.controller.shares import Offer, shares
from apps.openflow.fleet import Fleet
from drivers.codecs.openflow.meters import (
    LENIENT,
    STRICT,
    AddMeter,
    Burst,
    MeterChange,
    MeterCounters,
    RemoveEveryMeter,
    RemoveMeter,
    SetMeter,
    rate_kbps,
)
from drivers.codecs.openflow.statistics import (
    NOT_COUNTED,
    MalformedReplyError,
    decode_flow_stats,
)
from hydra.failures import Failure, FailureKind
from hydra.forwarding.pipeline import COOKIE_SUBJECT_MASK, DELIVERY_COUNTERS, DELIVERY_COUNTERS_MASK
from hydra.forwarding.rules import FlowRule, Install, Remove, RuleChange, match_key
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, NetworkState, Path, RackId, VlanId
from hydra.reservations.reservation import Reservation
from hydra.service import Delivery
from hydra.sharing.policing import (
    Aggregate,
    Flow,
    Holdings,
    Link,
    Tally,
    aggregate_rules,
    electrical_rule,
    holdings,
    tally_rules,
)

LOG = logging.getLogger("hydra.policing")
_INTERVAL_S: Final = 1.0
_REST: Final = 8.0
"""The pacer rests for at least this many times the processor time that it took."""
_READINGS: Final = 3
"""Rates are averages over two intervals: Open vSwitch brings its counters up to date twice a second
at most."""
_WORTH_TELLING: Final = 0.02
"""Relative change of a rate below which a meter is left as it is."""
_HELD_BACK: Final = 0.002
"""Part of an aggregate's bytes: one that loses less would hardly send more."""
_LOOK_AT_RATES: Final = 10
"""Turns of the pacer between two looks whether meters have the rates that they were given."""
_PATIENCE_S: Final = 1.0
_NO_ANSWER: Final = frozenset({FailureKind.UNKNOWN, FailureKind.LATE})

_KeyT = TypeVar("_KeyT", Aggregate, Tally)


@dataclass(frozen=True, slots=True)
class _Table:
    """Meters and tallies of one vswitch, by number, and the aggregates kept off its circuits."""

    meters: Mapping[Aggregate, int] = field(default_factory=dict)
    tallies: Mapping[Tally, int] = field(default_factory=dict)
    electrical: frozenset[Aggregate] = frozenset()
    lanes: Mapping[Aggregate, int] = field(default_factory=dict)
    """As in :class:`hydra.sharing.policing.Holdings`."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """Flows by reservation and by tally; names of senders by link."""

    by_reservation: Mapping[str, Sequence[Flow]] = field(default_factory=dict)
    by_tally: Mapping[Tally, Sequence[Flow]] = field(default_factory=dict)
    senders: Mapping[Link, Collection[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, held: Holdings) -> _Shared:
        by_reservation: defaultdict[str, list[Flow]] = defaultdict(list)
        by_tally: defaultdict[Tally, list[Flow]] = defaultdict(list)
        senders: defaultdict[Link, set[str]] = defaultdict(set)
        for flow in held.flows:
            by_reservation[flow.reservation].append(flow)
            for tally in flow.tallies:
                by_tally[tally].append(flow)
        for aggregate, links in held.routes.items():
            for link in links:
                senders[link].add(aggregate.sender)
        return cls(by_reservation, by_tally, senders)


class _Rates:
    """Mbps from byte counters, averaged over the last readings."""

    def __init__(self) -> None:
        self._readings: dict[Tally, deque[tuple[float, int]]] = {}

    def note(self, tally: Tally, now_s: float, total_bytes: int) -> None:
        readings = self._readings.setdefault(tally, deque(maxlen=_READINGS))
        if readings and total_bytes < readings[-1][1]:
            readings.clear()  # its rules were installed anew
        readings.append((now_s, total_bytes))

    def mbps(self, tally: Tally) -> float | None:
        """None until the tally has been read twice."""
        readings = self._readings.get(tally)
        if readings is None or len(readings) < 2:
            return None
        (first_s, first), (last_s, last) = readings[0], readings[-1]
        return (last - first) * 8e-6 / (last_s - first_s)

    def keep_only(self, tallies: Collection[Tally]) -> None:
        self._readings = {key: one for key, one in self._readings.items() if key in tallies}


_Metered = tuple[float, Mapping[DatapathId, Mapping[int, MeterCounters]]]
"""The time of a reading, in s, and the meters' counters by vswitch and number."""


class Policing:
    """:meth:`hold` and :meth:`rules_for` belong to the conductor's thread; :meth:`prepare` is for
    another, of vswitches that are not ready meanwhile.
    """

    def __init__(
        self,
        fabric: Fabric,
        fleet: Fleet,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        work_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._fabric = fabric
        self._substrate = substrate_of(fabric)
        self._switch_of = {
            server.name: switch.datapath
            for rack in fabric.racks
            for switch in self._substrate.steering(rack.id)
            for server in switch.servers
        }
        self._fleet = fleet
        self._timeout_s = timeout_s
        self._patience_s = min(timeout_s, _PATIENCE_S)
        self._clock, self._work_clock = clock, work_clock
        self._held: tuple[Mapping[Path, VlanId], tuple[Reservation, ...]] = ({}, ())
        self._cleared: set[DatapathId] = set()
        """Vswitches freed of an earlier controller's meters since they were synchronised."""
        self._offers: Mapping[Aggregate, Offer] = {}
        """Offers by the last reading of the meters."""
        self._lock = threading.Lock()
        self._holdings = Holdings()
        self._shared: _Shared | None = None
        """Of :attr:`_holdings`, once somebody has asked."""
        self._tables: Mapping[DatapathId, _Table] = {}
        self._allowed_mbps: dict[Aggregate, float] = {}
        """Rates of the meters, which all vswitches have but those that are unsettled."""
        self._unsettled: set[DatapathId] = set()
        """Vswitches whose meters may have other rates: told none, or while rates were changed."""
        self._busy: set[DatapathId] = set()
        """Vswitches that are being told of meters: the pacer tells them nothing meanwhile."""
        self._fresh: set[Aggregate] = set()
        """Aggregates whose meters were told or made anew since the pacer's turn began: their counts
    began anew."""
        self._unmetered: set[DatapathId] = set()
        """Vswitches that meter nothing."""
        self._unanswered: set[DatapathId] = set()
        """Of these, those that gave no answer in time."""
        self.refused: Mapping[DatapathId, Failure] = {}
        """Of these, those that refuse their meters; a new object with each change."""
        self._turns = 0
        self._odd_kbps: dict[tuple[DatapathId, int], int] = {}
        """Rates that meters had at the last look, by vswitch and number, where they were others."""
        self._refills = Refills(lambda link: fabric.rate_of(link[0]))
        self._rates = _Rates()
        self._rest_s = _INTERVAL_S
        """Time between two readings of the meters."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="pacer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    # -- the conductor's thread -------------------------------------------------------------------

    def hold(
        self,
        state: NetworkState,
        reservations: Sequence[Reservation],
        ready: Collection[DatapathId],
    ) -> frozenset[DatapathId]:
        """Have the ``ready`` vswitches keep to what these reservations hold in ``state``.

        Returns the vswitches that did not confirm it, and have to be synchronised. Others get their
        meters and rules when they are synchronised.
        """
        held = state.vlans, tuple(reservations)
        before = after = self._tables
        told: Sequence[Aggregate] = ()
        if held != self._held:
            self._held = held
            before, after, told = self._adopt(holdings(self._fabric, state, reservations))
        elif self._unsettled.isdisjoint(ready):
            return frozenset()
        either = sorted(before.keys() | after.keys())
        touched = [dp for dp in either if dp in ready and before.get(dp) is not after.get(dp)]
        rules = {datapath: list(self._rules(datapath, before)) for datapath in touched}
        with self._lock:
            self._unsettled |= after.keys() - ready
            unsettled = self._unsettled.intersection(ready)
            self._unsettled -= unsettled
            again = [
                aggregate
                for datapath in sorted(unsettled & after.keys() & before.keys())
                for aggregate in after[datapath].meters
                if aggregate in before[datapath].meters
            ]
            some = self._by_switch(dict.fromkeys((*told, *again)))
            self._fresh.update(told, again)  # their counts begin anew
            self._charge({*told, *again})
            meters = {datapath: changes for datapath, changes in some.items() if datapath in ready}
            for datapath in touched:
                meters.setdefault(datapath, []).extend(self._new_meters(datapath, before, after))
            self._busy |= meters.keys()
        try:
            failed = self._change_meters(meters)
        finally:
            with self._lock:
                self._busy -= meters.keys()
        changes = {dp: _differing(rules[dp], list(self._rules(dp, after))) for dp in touched}
        errors = self._fleet.apply({dp: c for dp, c in changes.items() if c}, self._timeout_s)
        failed |= self._change_meters({dp: _old_meters(dp, before, after) for dp in touched})
        failed |= {datapath for datapath, error in errors.items() if error is not None}
        for datapath in sorted(failed):
            LOG.warning("vswitch %#x did not take what reservations hold", datapath)
        return failed

    def _adopt(
        self, wanted: Holdings
    ) -> tuple[Mapping[DatapathId, _Table], Mapping[DatapathId, _Table], Sequence[Aggregate]]:
        """The tables before and after, and the aggregates in both whose rates differ.

        Meters and tallies that stay keep their numbers, a table that stays is the same object.
        Rates are shared out anew where something differs, and stay everywhere else.
        """
        before = self._tables
        after = {dp: _numbered(table, before.get(dp, _Table())) for dp, table in self._sort(wanted)}
        anew = _affected(self._holdings, wanted)
        routes = wanted.routes
        part = Holdings(
            tuple(flow for flow in wanted.flows if not anew.isdisjoint(flow.aggregates)),
            {aggregate: links for aggregate, links in routes.items() if aggregate in anew},
            wanted.left_mbps,
        )
        rates_mbps = shares(part, {})
        with self._lock:
            self._holdings, self._tables = wanted, after
            self._shared = None
            self._rates.keep_only(wanted.tallies)
            self._fresh |= anew
            self._offers = {
                one: offer
                for one, offer in self._offers.items()
                if one in routes and one not in anew
            }
            old = self._allowed_mbps
            new = {one: rates_mbps[one] if one in anew else old[one] for one in routes}
            self._allowed_mbps = new
        return before, after, [one for one in routes if one in old and new[one] != old[one]]

    def _sort(self, wanted: Holdings) -> Iterable[tuple[DatapathId, _Table]]:
        """The table of each vswitch, its numbers yet to be given."""
        aggregates: dict[DatapathId, list[Aggregate]] = {}
        tallies: dict[DatapathId, list[Tally]] = {}
        electrical: dict[DatapathId, list[Aggregate]] = {}
        lanes: dict[DatapathId, dict[Aggregate, int]] = {}
        for aggregate in sorted(wanted.routes):
            aggregates.setdefault(self._switch_of[aggregate.sender], []).append(aggregate)
        for tally in sorted(wanted.tallies):
            tallies.setdefault(self._switch_of[tally.receiver], []).append(tally)
        for aggregate in wanted.electrical:
            electrical.setdefault(self._switch_of[aggregate.sender], []).append(aggregate)
        for aggregate, lane in wanted.lanes.items():
            lanes.setdefault(self._switch_of[aggregate.sender], {})[aggregate] = lane
        for datapath in aggregates.keys() | tallies.keys() | electrical.keys():
            yield (
                datapath,
                _Table(
                    dict.fromkeys(aggregates.get(datapath, ()), 0),
                    dict.fromkeys(tallies.get(datapath, ()), 0),
                    frozenset(electrical.get(datapath, ())),
                    lanes.get(datapath, {}),
                ),
            )

    def _new_meters(
        self,
        datapath: DatapathId,
        before: Mapping[DatapathId, _Table],
        after: Mapping[DatapathId, _Table],
    ) -> list[MeterChange]:
        old = before.get(datapath, _Table()).meters
        new = after.get(datapath, _Table()).meters
        changes: list[MeterChange] = []
        added = [aggregate for aggregate in new if aggregate not in old]
        if added and datapath not in self._cleared:
            self._cleared.add(datapath)
            changes.append(RemoveEveryMeter())
        return [*changes, *(AddMeter(new[c], self._allowed_mbps[c], _burst(c)) for c in added)]

    def _change_meters(
        self, changes: Mapping[DatapathId, Sequence[MeterChange]]
    ) -> frozenset[DatapathId]:
        """Returns vswitches that did not confirm: they meter nothing until they are prepared."""
        wanted = {
            datapath: some
            for datapath, some in changes.items()
            if some and datapath not in self._unmetered
        }
        errors = self._fleet.change_meters(wanted, self._timeout_s)
        failed = {datapath: error for datapath, error in errors.items() if error is not None}
        for error in failed.values():
            LOG.error(
                "%s does not meter what it sends (%s): reserved bandwidth is not held against it",
                error.subject,
                error,
            )
        with self._lock:
            self._unmetered.update(failed)
            refused = {dp: one for dp, one in failed.items() if one.kind is FailureKind.REFUSED}
            self.refused = {**self.refused, **refused}
            self._unanswered.update(dp for dp, one in failed.items() if one.kind in _NO_ANSWER)
        return frozenset(failed)

    def prepare(self, datapaths: Collection[DatapathId]) -> None:
        """Give these vswitches their meters, before the rules of :meth:`rules_for`."""
        none: Mapping[DatapathId, _Table] = {}
        with self._lock:
            self._unmetered.difference_update(datapaths)
            self.refused = {dp: one for dp, one in self.refused.items() if dp not in datapaths}
            self._unanswered.difference_update(datapaths)
            self._cleared.difference_update(datapaths)
            meters = {dp: self._new_meters(dp, none, self._tables) for dp in datapaths}
            self._unsettled.update(datapaths)
            for datapath in datapaths:
                self._fresh.update(self._tables.get(datapath, _Table()).meters)
        self._change_meters(meters)

    @property
    def unanswered(self) -> frozenset[DatapathId]:
        """Vswitches that meter nothing, since they gave no answer in time: to be prepared again."""
        with self._lock:
            return frozenset(self._unanswered)

    def rules_for(self, datapath: DatapathId) -> Iterator[FlowRule]:
        """Rules that a vswitch is to hold for reservations."""
        return self._rules(datapath, self._tables)

    def _rules(
        self, datapath: DatapathId, tables: Mapping[DatapathId, _Table]
    ) -> Iterator[FlowRule]:
        table = tables.get(datapath, _Table())
        if datapath not in self._unmetered:
            for aggregate, meter in table.meters.items():
                lane = table.lanes.get(aggregate)
                yield from self._own(
                    aggregate.sender, aggregate_rules(self._fabric, aggregate, meter, lane)
                )
        for aggregate in sorted(table.electrical):
            yield from self._own(aggregate.sender, [electrical_rule(aggregate)])
        for tally, number in table.tallies.items():
            yield from self._own(tally.receiver, tally_rules(self._fabric, tally, number))

    def _own(self, server: str, rules: Iterable[FlowRule]) -> Iterator[FlowRule]:
        for rule in rules:
            yield self._substrate.for_server(rule, self._fabric.server_by_name[server])

    # -- the pacer's thread -----------------------------------------------------------------------

    def _repeat(self) -> None:
        while self.turn(lambda: not self._ended.wait(self._rest_s)):
            pass

    def turn(self, pause: Callable[[], bool]) -> bool:
        """Read counters around ``pause()``, and share out anew what is left; False if that says no.

        Meters are read before and after it: some begin anew when they are changed.
        """
        began_s = self._work_clock()
        with self._lock:
            tables, metering = self._tables, self._metering()
            self._fresh = set()
        before = self._read_meters(metering)
        if not pause():
            return False
        if tables:
            self._tally(tables)
            self._pace(tables, before, self._read_meters(metering))
            self._turns += 1
            if self._turns % _LOOK_AT_RATES == 0:
                self._look_at_rates(tables)
        self._rest_s = max(_INTERVAL_S, _REST * (self._work_clock() - began_s))
        return True

    def _metering(self) -> list[DatapathId]:
        """Vswitches of servers that share circuits with other aggregates."""
        routes = self._holdings.routes
        senders = {aggregate.sender for aggregate, links in routes.items() if links}
        datapaths = {self._switch_of[name] for name in senders}
        return sorted(datapaths - self._unmetered)

    def _read_meters(self, datapaths: Collection[DatapathId]) -> _Metered:
        counters = self._fleet.meter_counters(datapaths, self._patience_s) if datapaths else {}
        return self._clock(), counters

    def _tally(self, tables: Mapping[DatapathId, _Table]) -> None:
        counting = [datapath for datapath, table in tables.items() if table.tallies]
        answers = self._fleet.rule_counters(
            counting, DELIVERY_COUNTERS, DELIVERY_COUNTERS_MASK, self._patience_s
        )
        now_s = self._clock()
        with self._lock:
            for datapath, body in answers.items():
                if body is not None:
                    now = self._tables.get(datapath, _Table()).tallies.items()
                    self._note(dict(now & tables[datapath].tallies.items()), body, now_s)

    def _note(self, tallies: Mapping[Tally, int], body: bytes, now_s: float) -> None:
        try:
            columns = decode_flow_stats(body)
        except MalformedReplyError as error:
            LOG.debug("%s", error)
            return
        totals = dict.fromkeys(tallies.values(), 0)
        numbers = columns.cookie & COOKIE_SUBJECT_MASK
        uncounted = set(numbers[columns.bytes == NOT_COUNTED].tolist())
        for number, total_bytes in zip(numbers.tolist(), columns.bytes.tolist(), strict=True):
            totals[number] = totals.get(number, 0) + total_bytes
        for tally, number in tallies.items():
            if number not in uncounted:
                self._rates.note(tally, now_s, totals[number])

    def _pace(self, tables: Mapping[DatapathId, _Table], before: _Metered, after: _Metered) -> None:
        """Share out anew what reservations leave: meters that are lowered come first.

        On circuits that have yet to bear what earlier changes let pass again, nothing is changed.
        """
        with self._lock:
            # Those that stay have their numbers still.
            old, routes = self._allowed_mbps, self._holdings.routes
            self._offers = {
                aggregate: offer
                for aggregate, offer in _offers(tables, before, after)
                if aggregate in routes and aggregate not in self._fresh
            }
            self._refills.pass_to(self._clock())
            wanted = shares(self._holdings, self._offers)
            changed = borne(
                old,
                wanted,
                routes,
                lambda aggregate: (
                    aggregate not in self._fresh
                    and self._switch_of[aggregate.sender] not in self._busy
                    and self._refills.bears(routes[aggregate])
                ),
                _is_news,
            )
            self._unsettled |= {
                self._switch_of[one.sender] for one in _missing(tables, after) if one in routes
            }
            self._allowed_mbps = old | changed
            self._charge(changed)
            for less in (True, False):
                some = [
                    aggregate
                    for aggregate, mbps in changed.items()
                    if (mbps < old[aggregate]) is less
                ]
                self._fleet.set_meters(self._by_switch(some))

    def _look_at_rates(self, tables: Mapping[DatapathId, _Table]) -> None:
        """Have meters told again that have other rates than they were given: others may have
        changed them, or their switch has not carried out what it confirmed.

        A switch that has the same other rate after that can't do better: that is told in the log
        alone.
        """
        with self._lock:
            before = self._allowed_mbps
            out = self._unmetered | self._unsettled
            some = [dp for dp, table in tables.items() if table.meters and dp not in out]
        found = self._fleet.meter_rates(some, self._patience_s) if some else {}
        odd: dict[tuple[DatapathId, int], int] = {}
        with self._lock:
            now = self._allowed_mbps
            for datapath, rates in found.items():
                if datapath in self._busy or self._tables.get(datapath) is not tables[datapath]:
                    continue
                for aggregate, number in tables[datapath].meters.items():
                    given = {rate_kbps(one[aggregate]) for one in (before, now)}
                    rate = rates.get(number)
                    if rate is None or any(not _is_news(kbps, rate) for kbps in given):
                        continue
                    odd[datapath, number] = rate
                    if self._odd_kbps.get((datapath, number)) == rate:
                        continue
                    LOG.warning(
                        "the meter of %s lets %g Mb/s pass, and was given %g: told again",
                        aggregate.sender,
                        rate / 1000,
                        now[aggregate],
                    )
                    self._unsettled.add(datapath)
            self._odd_kbps = odd

    def _charge(self, changed: Iterable[Aggregate]) -> None:
        """Note the bursts that changes of these meters let pass again; the lock is held."""
        self._refills.pass_to(self._clock())
        for one in changed:
            links = self._holdings.routes[one]
            if links:
                mbit = _burst(one).kbit(self._allowed_mbps[one]) / 1000
                self._refills.charge(links, mbit)

    def _by_switch(self, aggregates: Iterable[Aggregate]) -> dict[DatapathId, list[MeterChange]]:
        changes: dict[DatapathId, list[MeterChange]] = {}
        for aggregate in aggregates:
            datapath = self._switch_of[aggregate.sender]
            if datapath not in self._unmetered:
                number = self._tables[datapath].meters[aggregate]
                change = SetMeter(number, self._allowed_mbps[aggregate], _burst(aggregate))
                changes.setdefault(datapath, []).append(change)
        return changes

    # -- any thread -------------------------------------------------------------------------------

    def held_back(self) -> Mapping[tuple[str, RackId], bool]:
        """By server and destination rack whose traffic is metered: whether meters drop some."""
        found: dict[tuple[str, RackId], bool] = {}
        with self._lock:
            for aggregate, offer in self._offers.items():
                key = aggregate.sender, aggregate.to
                found[key] = found.get(key, False) or offer.held_back
        return found

    def delivery(self, reservation: Reservation) -> Delivery:
        """Rates that ``reservation`` gets, as last read."""
        (one,) = self.deliveries([reservation])
        return one

    def deliveries(self, reservations: Iterable[Reservation]) -> tuple[Delivery, ...]:
        """Rates that each of them gets, as last read."""
        with self._lock:
            return tuple(map(self._delivery, reservations))

    def _delivery(self, reservation: Reservation) -> Delivery:
        flows = self._sharing().by_reservation.get(reservation.id, ())
        return Delivery(
            reservation,
            self._delivered_mbps(one for one in flows if one.source == reservation.src_rack),
            self._delivered_mbps(one for one in flows if one.source != reservation.src_rack),
            self._unheld(flows),
        )

    def _delivered_mbps(self, flows: Iterable[Flow]) -> float | None:
        """Mbps, None if not known yet. A tally of several reservations is divided in proportion."""
        total_mbps = None
        for flow in flows:
            for tally in flow.tallies:
                mbps = self._rates.mbps(tally)
                if mbps is not None:
                    total_mbps = (total_mbps or 0.0) + mbps * self._part(flow, tally)
        return total_mbps

    def _sharing(self) -> _Shared:
        """Who shares what; the lock is held."""
        if self._shared is None:
            self._shared = _Shared.of(self._holdings)
        return self._shared

    def _part(self, flow: Flow, tally: Tally) -> float:
        sharing = self._sharing().by_tally[tally]
        promised_mbps = sum(one.mbps for one in sharing)
        return flow.mbps / promised_mbps if promised_mbps else 1 / len(sharing)

    def _unheld(self, flows: Iterable[Flow]) -> tuple[str, ...]:
        """Servers whose vswitches hold nothing back from these flows' circuits."""
        routes = self._holdings.routes
        links = {
            link for flow in flows for aggregate in flow.aggregates for link in routes[aggregate]
        }
        sharing = self._sharing()
        senders = {name for link in links for name in sharing.senders.get(link, ())}
        metered = self._tables.keys() - self._unmetered
        return tuple(name for name in sorted(senders) if self._switch_of[name] not in metered)


def _affected(old: Holdings, new: Holdings) -> set[Aggregate]:
    """Aggregates of ``new`` whose rates something that differs from ``old`` may concern.

    They are those that share a link, or by others' links a link, with what has come, gone, or
    become more or less.
    """
    found = {one for one, links in new.routes.items() if old.routes.get(one) != links}
    gone = old.routes.keys() - new.routes.keys()
    for flow in set(old.flows) ^ set(new.flows):
        found |= new.routes.keys() & set(flow.aggregates)
    was, left = old.left_mbps, new.left_mbps
    links = {link for link in was.keys() | left.keys() if was.get(link) != left.get(link)}
    for one in found | gone:
        links.update(old.routes.get(one, ()), new.routes.get(one, ()))
    several = {along for along in new.routes.values() if len(along) > 1}
    while more := {along for along in several if not links.isdisjoint(along)}:
        links.update(*more)
        several -= more
    return found | {one for one, along in new.routes.items() if not links.isdisjoint(along)}


def _missing(tables: Mapping[DatapathId, _Table], read: _Metered) -> Iterator[Aggregate]:
    """Aggregates of vswitches that answered, and have no meter for them."""
    _, counters = read
    for datapath, found in counters.items():
        for aggregate, number in tables[datapath].meters.items():
            if number not in found:
                yield aggregate


def _is_news(old_mbps: float, new_mbps: float) -> bool:
    """Whether a meter is to be told of a rate."""
    if isinf(old_mbps) or isinf(new_mbps):
        return old_mbps != new_mbps
    return abs(new_mbps - old_mbps) > _WORTH_TELLING * old_mbps


def _burst(aggregate: Aggregate) -> Burst:
    return LENIENT if aggregate.reserved else STRICT


def _offers(
    tables: Mapping[DatapathId, _Table], before: _Metered, after: _Metered
) -> Iterator[tuple[Aggregate, Offer]]:
    """Offers of aggregates, from two readings of their meters."""
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


def _numbered(table: _Table, before: _Table) -> _Table:
    if (
        table.meters.keys() == before.meters.keys()
        and table.tallies.keys() == before.tallies.keys()
        and table.electrical == before.electrical
        and table.lanes == before.lanes
    ):
        return before
    return _Table(
        _numbers(table.meters, before.meters),
        _numbers(table.tallies, before.tallies),
        table.electrical,
        table.lanes,
    )


def _numbers(wanted: Iterable[_KeyT], before: Mapping[_KeyT, int]) -> dict[_KeyT, int]:
    """Numbers by key: the old one where there was one, else the lowest that is free."""
    taken = set(before.values())
    free = (number for number in count(1) if number not in taken)
    return {key: before[key] if key in before else next(free) for key in wanted}


def _old_meters(
    datapath: DatapathId,
    before: Mapping[DatapathId, _Table],
    after: Mapping[DatapathId, _Table],
) -> list[MeterChange]:
    old = before.get(datapath, _Table()).meters
    new = after.get(datapath, _Table()).meters
    return [RemoveMeter(number) for aggregate, number in old.items() if aggregate not in new]


def _differing(before: Iterable[FlowRule], after: Iterable[FlowRule]) -> list[RuleChange]:
    old = {match_key(rule): rule for rule in before}
    new = {match_key(rule): rule for rule in after}
    gone = [Remove(rule) for key, rule in old.items() if key not in new]
    return [*gone, *(Install(rule) for key, rule in new.items() if old.get(key) != rule)]
