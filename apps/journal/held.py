"""Records of a journal in etcd as held in memory, and the changes of a write."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

from apps.journal.layout import (
    PART,
    Held,
    KindHeld,
    Work,
    place_of,
)
from hydra.journal import AGEING, KEPT, TRUSTED_S, Change, Kind

Delta = dict[tuple[Kind, int], Held | None]
"""Records to be written, or deleted, by kind and order."""


class HeldRecords:
    """Pure: has the content of the store, and accesses no store."""

    def __init__(self, kept_s: float) -> None:
        """Records of :data:`hydra.journal.AGEING` older than ``kept_s`` go when a record comes."""
        self._kept_s = kept_s
        self.by_kind = {kind: KindHeld() for kind in Kind}
        self._next_order = 1

    def begin(self, by_kind: dict[Kind, KindHeld]) -> None:
        """Hold the records of the store."""
        self.by_kind = by_kind
        newest = (next(reversed(held.records), 0) for held in by_kind.values())
        self._next_order = max(self._next_order, *(order + 1 for order in newest))

    def delta(self, changes: Iterable[Change]) -> tuple[Delta, int]:
        """The sum of the changes, and the next free order after the changes."""
        delta: Delta = {}
        orders: dict[tuple[Kind, str], int | None] = {}
        appended: dict[Kind, float | None] = {}
        next_order = self._next_order
        for change in changes:
            kind, key, record = change.kind, change.key, change.record
            order = None
            if key is not None:
                order = orders.get((kind, key), self.by_kind[kind].orders.get(key))
            if record is None:
                if key is not None and order is not None:
                    delta[kind, order] = None
                    orders[kind, key] = None
                continue
            if order is None:
                order, next_order = next_order, next_order + 1
            document: dict[str, Any] = {"record": record}
            if key is None:
                appended[kind] = record.get("unix_s")
            else:
                document["key"] = key
                orders[kind, key] = order
            delta[kind, order] = Held(key, record.get("unix_s"), json.dumps(document))
        for kind, unix_s in appended.items():
            self._forget_old(delta, kind, unix_s)
        unknown = [
            place
            for place, held in delta.items()
            if held is None and place[1] not in self.by_kind[place[0]].records
        ]
        for place in unknown:  # came and went
            del delta[place]
        return delta, next_order

    def _forget_old(self, delta: Delta, kind: Kind, unix_s: float | None) -> None:
        """Leave out old records of a kind, after an append with the last record at ``unix_s``."""
        held = self.by_kind[kind]
        new = {
            order: entry for (of, order), entry in delta.items() if of is kind and entry is not None
        }
        excess = len(held.records) + len(new) - KEPT[kind]
        if excess > 0:
            for order, _ in zip(chain(held.records, new), range(excess), strict=False):
                delta[kind, order] = None
        if kind not in AGEING or unix_s is None:
            return
        times_s = {order: entry.unix_s for order, entry in new.items() if entry.unix_s is not None}
        if min(held.oldest_s, *times_s.values()) >= unix_s - self._kept_s:
            return
        times_s |= {
            order: entry.unix_s for order, entry in held.records.items() if entry.unix_s is not None
        }
        trusted_s = max(
            (one_s for one_s in times_s.values() if one_s <= unix_s - TRUSTED_S),
            default=float("-inf"),
        )
        for order, one_s in times_s.items():
            if one_s < trusted_s - self._kept_s:
                delta[kind, order] = None

    def before(self, delta: Delta) -> Delta:
        """The present records at the places of ``delta``."""
        return {place: self.by_kind[place[0]].records.get(place[1]) for place in delta}

    def work(self, delta: Delta, before: Delta) -> Work:
        """Keys to bring the records from ``before`` to ``delta``."""
        puts: dict[str, str] = {}
        ranges: list[tuple[str, str]] = []
        gone: dict[Kind, set[int]] = {}
        for (kind, order), held in delta.items():
            if held is None:
                gone.setdefault(kind, set()).add(order)
                continue
            place = place_of(kind, order)
            for part in range(held.parts):
                puts[f"{place}/{part:04x}"] = held.text[part * PART : (part + 1) * PART]
            old = before[kind, order]
            if old is not None and old.parts > held.parts:
                ranges.append((f"{place}/{held.parts:04x}", f"{place}0"))
        for kind, orders in gone.items():
            first = []
            for order in self.by_kind[kind].records:
                if order not in orders:
                    break
                first.append(order)
            if len(first) > 1:  # the oldest records go as a range
                ranges.append((f"records/{kind}/", f"{place_of(kind, first[-1])}0"))
                orders.difference_update(first)
            ranges += [
                (f"{place_of(kind, order)}/", f"{place_of(kind, order)}0")
                for order in sorted(orders)
            ]
        return Work(puts, ranges)

    def remember(self, delta: Delta, next_order: int) -> None:
        """Take in a written delta, as from :meth:`delta`."""
        self._next_order = next_order
        for (kind, order), held in delta.items():
            self.by_kind[kind].set(order, held)
        for kind in AGEING.intersection(kind for (kind, _), held in delta.items() if held is None):
            self.by_kind[kind].see_oldest()
