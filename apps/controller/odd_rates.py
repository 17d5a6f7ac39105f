"""Meters with rates other than the given rates."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from apps.controller.meter_tables import MeterTables, is_news
from drivers.codecs.openflow.meters import rate_kbps
from hydra.model import DatapathId
from hydra.sharing.policing import Aggregate

LOG = logging.getLogger("hydra.policing")


class OddRates:
    def __init__(self) -> None:
        self._odd_kbps: dict[tuple[DatapathId, int], int] = {}
        """Odd rates at the last look, by vswitch and number of the meter."""

    def look(
        self,
        tables: MeterTables,
        found: Mapping[DatapathId, Mapping[int, int]],
        before_mbps: Mapping[Aggregate, float],
        now_mbps: Mapping[Aggregate, float],
    ) -> set[DatapathId]:
        """Vswitches that get their meters' rates again: a meter's rate differs from the rates given
        ``before`` the question and ``now``. ``found``: rates in kb/s by the meter's number.

        A meter with the same odd rate as at the last look can't do better, and is left alone.
        """
        retries: set[DatapathId] = set()
        odd: dict[tuple[DatapathId, int], int] = {}
        for datapath, rates in found.items():
            for aggregate, number in tables[datapath].meters.items():
                given = {rate_kbps(all_mbps[aggregate]) for all_mbps in (before_mbps, now_mbps)}
                rate = rates.get(number)
                if rate is None or any(not is_news(kbps, rate) for kbps in given):
                    continue
                odd[datapath, number] = rate
                if self._odd_kbps.get((datapath, number)) == rate:
                    continue
                LOG.warning(
                    "the meter of %s lets %g Mb/s pass, and was given %g: written again",
                    aggregate.sender,
                    rate / 1000,
                    now_mbps[aggregate],
                )
                retries.add(datapath)
        self._odd_kbps = odd
        return retries
