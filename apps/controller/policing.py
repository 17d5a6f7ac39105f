"""Keeps reserved bandwidth in the data plane: meters at senders, counters at receivers.

The conductor names the reservations to hold (:meth:`Policing.hold`). A thread reads the counters
once a second, or less often if there are very many. The thread then shares out the bandwidth left
by reservations anew (:mod:`apps.controller.shares`), and notes the delivered rates of reservations.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from apps.controller.delivered_rates import Deliveries
from apps.controller.held_tables import HeldTables
from apps.controller.meter_tables import (
    Metered,
    MeterTable,
    MeterTables,
    added_meters,
    affected,
    differing,
    in_both,
    is_news,
    missing,
    offers_of,
    old_meters,
    part_of,
    rate_changes,
    steering_switches,
    tables_with,
)
from apps.controller.odd_rates import OddRates
from apps.controller.refills import Refills, borne
from apps.controller.shares import Offer, held_back, shares
from apps.openflow.fleet import Fleet
from drivers.codecs.openflow.meters import (
    MeterChange,
    RemoveEveryMeter,
    burst_kbit,
)
from hydra.failures import Failure, FailureKind
from hydra.forwarding.pipeline import DELIVERY_COUNTERS, DELIVERY_COUNTERS_MASK
from hydra.model import DatapathId, Fabric, NetworkState, Path, RackId
from hydra.reservations.reservation import Reservation
from hydra.service import Delivery
from hydra.sharing.parted_holdings import exchanged
from hydra.sharing.policing import Aggregate, burst_of

LOG = logging.getLogger("hydra.policing")
_INTERVAL_S: Final = 1.0
_REST: Final = 8.0
"""The pacer rests for at least this multiple of the processor time of its turn."""
_LOOK_AT_RATES: Final = 10
"""Turns of the pacer between two checks of the meters' rates."""
_PATIENCE_S: Final = 1.0
_NO_ANSWER: Final = frozenset({FailureKind.UNKNOWN, FailureKind.LATE})


class Policing(HeldTables):
    """:meth:`hold` belongs to the conductor's thread; :meth:`prepare` is for another thread, for
    vswitches that are not ready meanwhile.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        fleet: Fleet,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        work_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        super().__init__(fabric)
        self._switch_of = steering_switches(fabric)
        self._fleet = fleet
        self._timeout_s, self._patience_s = timeout_s, min(timeout_s, _PATIENCE_S)
        self._clock, self._work_clock = clock, work_clock
        self._held: tuple[object, ...] = ({}, (), frozenset())
        self._cleared: set[DatapathId] = set()
        """Vswitches freed of an earlier controller's meters since the last synchronisation."""
        self._offers: Mapping[Aggregate, Offer] = {}
        """Offers by the last reading of the meters."""
        self._delivered = Deliveries()
        self._allowed_mbps: dict[Aggregate, float] = {}
        """Rates of the meters, as held by all vswitches except unsettled vswitches."""
        self._unsettled: set[DatapathId] = set()
        """Vswitches whose meters may have other rates: no rates were sent, or rates changed while
        sending.
        """
        self._busy: set[DatapathId] = set()
        """Vswitches whose meters are being changed: the pacer leaves them alone meanwhile."""
        self._fresh: set[Aggregate] = set()
        """Aggregates whose counts began anew, as meters were changed or made in the pacer's
        turn.
        """
        self._unanswered: set[DatapathId] = set()
        """Vswitches without metering for lack of an answer in time."""
        self.refused: Mapping[DatapathId, Failure] = {}
        """Vswitches without metering by a refusal; a new object with each change."""
        self._turns = 0
        self._odd_rates = OddRates()
        self._refills = Refills(lambda link: fabric.rate_of(link[0]))
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
        vacated: frozenset[Path] = frozenset(),
    ) -> frozenset[DatapathId]:
        """Have the ``ready`` vswitches hold ``reservations`` in ``state``; protected traffic stays
        off ``vacated`` paths, lost paths that still stand in ``state``.

        Returns the vswitches that did not confirm, and have to be synchronised. Other vswitches get
        meters and rules at their synchronisation. An unexpected error leaves all vswitches of
        reservations unconfirmed.
        """
        held = state.vlans, tuple(reservations), vacated
        before = after = self._tables
        changed_rates: Sequence[Aggregate] = ()
        if held != self._held:
            before, after, changed_rates = self._adopt(state, reservations, vacated)
            self._held = held
        elif self._unsettled.isdisjoint(ready):
            return frozenset()
        try:
            failed = self._write(before, after, changed_rates, ready)
        except Exception:
            LOG.exception("the rates of reservations were not written")
            failed = (before.keys() | after.keys()).intersection(ready)
        for datapath in sorted(failed):
            LOG.warning("vswitch %#x did not take the rates of reservations", datapath)
        return frozenset(failed)

    def _write(
        self,
        before: MeterTables,
        after: MeterTables,
        changed_rates: Sequence[Aggregate],
        ready: Collection[DatapathId],
    ) -> AbstractSet[DatapathId]:
        """Write the difference of two tables to ``ready`` vswitches, with changed rates in both;
        return the vswitches that did not confirm.
        """
        either = sorted(before.keys() | after.keys())
        touched = [dp for dp in either if dp in ready and before.get(dp) is not after.get(dp)]
        rules = {datapath: list(self._rules(datapath, before)) for datapath in touched}
        with self._lock:
            self._unsettled |= after.keys() - ready
            unsettled = self._unsettled.intersection(ready)
            self._unsettled -= unsettled
            again = in_both(before, after, unsettled)
            some = self._rate_changes(dict.fromkeys((*changed_rates, *again)))
            self._fresh.update(changed_rates, again)  # the meters' counts begin anew
            self._charge({*changed_rates, *again})
            meters = {datapath: changes for datapath, changes in some.items() if datapath in ready}
            for datapath in touched:
                meters.setdefault(datapath, []).extend(self._new_meters(datapath, before, after))
            self._busy |= meters.keys()
        try:
            failed = self._change_meters(meters)
        finally:
            with self._lock:
                self._busy -= meters.keys()
        changes = {dp: differing(rules[dp], list(self._rules(dp, after))) for dp in touched}
        errors = self._fleet.apply({dp: c for dp, c in changes.items() if c}, self._timeout_s)
        failed |= self._change_meters({dp: old_meters(dp, before, after) for dp in touched})
        return failed | {datapath for datapath, error in errors.items() if error is not None}

    def _adopt(
        self, state: NetworkState, reservations: Sequence[Reservation], vacated: frozenset[Path]
    ) -> tuple[MeterTables, MeterTables, Sequence[Aggregate]]:
        """Adopt the holdings of ``reservations`` in ``state``. Returns the tables before and after,
        and the aggregates in both tables with changed rates.

        Rates are shared out anew where something differs, and stay everywhere else. All is computed
        before anything is adopted: after an exception, the next hold finds the same difference.
        """
        before = self._tables
        parted, gone, new = self._parted.renewed(state, reservations)
        after = self._on_standing(tables_with(before, gone, new, self._switch_of), vacated)
        moving = affected(gone, new)
        rates_mbps = shares(part_of(new, moving), {})
        anew = {way: rates_mbps[way] for way in new.routes if way in moving}
        begun = (gone.routes.keys() - new.routes.keys()) | moving
        with self._lock:
            old = self._allowed_mbps
            offers, allowed_mbps = exchanged(self._offers, begun, {}), exchanged(old, begun, anew)
            self._delivered.hold(gone, new)
            self._parted, self._tables, self._vacated = parted, after, vacated
            self._offers, self._allowed_mbps = offers, allowed_mbps
            self._fresh |= moving
        return before, after, [way for way, mbps in anew.items() if way in old and mbps != old[way]]

    def _new_meters(
        self, datapath: DatapathId, before: MeterTables, after: MeterTables
    ) -> list[MeterChange]:
        added = added_meters(datapath, before, after, self._allowed_mbps)
        if added and datapath not in self._cleared:
            self._cleared.add(datapath)
            added.insert(0, RemoveEveryMeter())
        return added

    def _change_meters(
        self, changes: Mapping[DatapathId, Sequence[MeterChange]]
    ) -> frozenset[DatapathId]:
        """Returns vswitches without confirmation: unmetered until the next :meth:`prepare`."""
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
            refused = {
                dp: failure for dp, failure in failed.items() if failure.kind is FailureKind.REFUSED
            }
            self.refused = {**self.refused, **refused}
            self._unanswered.update(
                dp for dp, failure in failed.items() if failure.kind in _NO_ANSWER
            )
        return frozenset(failed)

    def prepare(self, datapaths: Collection[DatapathId]) -> None:
        """Give the vswitches their meters, before the rules of :meth:`HeldTables.rules_for`."""
        none: MeterTables = {}
        with self._lock:
            self._unmetered.difference_update(datapaths)
            self.refused = {
                dp: refusal for dp, refusal in self.refused.items() if dp not in datapaths
            }
            self._unanswered.difference_update(datapaths)
            self._cleared.difference_update(datapaths)
            meters = {dp: self._new_meters(dp, none, self._tables) for dp in datapaths}
            self._unsettled.update(datapaths)
            for datapath in datapaths:
                self._fresh.update(self._tables.get(datapath, MeterTable()).meters)
        self._change_meters(meters)

    @property
    def unanswered(self) -> frozenset[DatapathId]:
        """Vswitches without metering for lack of an answer in time, to be prepared again."""
        with self._lock:
            return frozenset(self._unanswered)

    # -- the pacer's thread -----------------------------------------------------------------------

    def _repeat(self) -> None:
        while self.turn(lambda: not self._ended.wait(self._rest_s)):
            pass

    def turn(self, pause: Callable[[], bool]) -> bool:
        """Read counters around ``pause()``, and share out free bandwidth; False if ``pause()`` is.

        Meters are read before and after the pause, as some meters count anew after a change.
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

    def _read_meters(self, datapaths: Collection[DatapathId]) -> Metered:
        counters = self._fleet.meter_counters(datapaths, self._patience_s) if datapaths else {}
        return self._clock(), counters

    def _tally(self, tables: MeterTables) -> None:
        counting = [datapath for datapath, table in tables.items() if table.tallies]
        answers = self._fleet.rule_counters(
            counting, DELIVERY_COUNTERS, DELIVERY_COUNTERS_MASK, self._patience_s
        )
        now_s = self._clock()
        with self._lock:
            for datapath, body in answers.items():
                if body is not None:
                    now = self._tables.get(datapath, MeterTable()).tallies.items()
                    self._delivered.note(dict(now & tables[datapath].tallies.items()), body, now_s)

    def _pace(self, tables: MeterTables, before: Metered, after: Metered) -> None:
        """Share out the bandwidth left by reservations anew: lowered meters come first.

        Circuits that have yet to bear bursts of earlier changes stay unchanged.
        """
        with self._lock:
            # Remaining aggregates still have their numbers.
            old, routes = self._allowed_mbps, self._holdings.routes
            self._offers = {
                aggregate: offer
                for aggregate, offer in offers_of(tables, before, after)
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
                is_news,
            )
            self._unsettled |= {
                self._switch_of[way.sender] for way in missing(tables, after) if way in routes
            }
            self._allowed_mbps = old | changed
            self._charge(changed)
            for less in (True, False):
                some = [
                    aggregate
                    for aggregate, mbps in changed.items()
                    if (mbps < old[aggregate]) is less
                ]
                self._fleet.set_meters(self._rate_changes(some))

    def _look_at_rates(self, tables: MeterTables) -> None:
        """Find meters with other rates than given, and have the rates sent again. A third party may
        have changed the meters, or a switch has not carried out a confirmed change.

        A switch with the same odd rate afterwards can't do better; only the log has the fact.
        """
        with self._lock:
            before = self._allowed_mbps
            out = self._unmetered | self._unsettled
            some = [dp for dp, table in tables.items() if table.meters and dp not in out]
        found = self._fleet.meter_rates(some, self._patience_s) if some else {}
        with self._lock:
            same = {
                datapath: rates
                for datapath, rates in found.items()
                if datapath not in self._busy and self._tables.get(datapath) is tables[datapath]
            }
            self._unsettled |= self._odd_rates.look(tables, same, before, self._allowed_mbps)

    def _charge(self, changed: Iterable[Aggregate]) -> None:
        """Note the bursts allowed again by changes of meters; the caller holds the lock."""
        self._refills.pass_to(self._clock())
        for aggregate in changed:
            links = self._holdings.routes[aggregate]
            if links:
                kbit = burst_kbit(self._allowed_mbps[aggregate], burst_of(aggregate))
                self._refills.charge(links, kbit / 1000)

    def _rate_changes(self, aggregates: Iterable[Aggregate]) -> dict[DatapathId, list[MeterChange]]:
        changes = rate_changes(aggregates, self._tables, self._allowed_mbps, self._switch_of)
        return {dp: some for dp, some in changes.items() if dp not in self._unmetered}

    # -- any thread -------------------------------------------------------------------------------

    def held_back(self) -> Mapping[tuple[str, RackId], bool]:
        """For each metered server and destination rack: True if meters drop traffic."""
        with self._lock:
            return held_back(self._offers)

    def delivery(self, reservation: Reservation) -> Delivery:
        """Delivered rates of ``reservation``, as last read."""
        (delivery,) = self.deliveries([reservation])
        return delivery

    def deliveries(self, reservations: Iterable[Reservation]) -> tuple[Delivery, ...]:
        """Delivered rates of each reservation, as last read."""
        with self._lock:
            return tuple(map(self._delivery, reservations))

    def _delivery(self, reservation: Reservation) -> Delivery:
        metered = self._tables.keys() - self._unmetered
        return self._delivered.of(reservation, lambda sender: self._switch_of[sender] in metered)
