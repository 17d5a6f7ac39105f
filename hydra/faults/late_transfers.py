"""Condition of transfers whose bytes will not arrive by their deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from hydra.faults.condition import Condition, ConditionKind
from hydra.faults.facts import Facts
from hydra.reservations.transfers import missing_megabytes

FirstSeen = Callable[[ConditionKind, Iterable[str], Facts], Mapping[str, float]]
"""Times at which the conditions of a kind were seen first, by name."""


def transfers_at_risk(facts: Facts, first_seen: FirstSeen) -> Iterator[Condition]:
    """Transfers whose rate does not carry all bytes by the end."""
    short = [
        (reservation, missing)
        for reservation in facts.reservations
        if reservation.is_booked and (missing := missing_megabytes(reservation))
    ]
    names = (reservation.id for reservation, _ in short)
    seen = first_seen(ConditionKind.TRANSFER_AT_RISK, names, facts)
    for one, missing in short:
        yield Condition(
            ConditionKind.TRANSFER_AT_RISK,
            (one.id,),
            f"{missing:g} MB of reservation {one.id} ({one.src} to {one.dst}) will not arrive "
            "by the deadline",
            seen[one.id],
            f"the transfer keeps {one.bandwidth_mbps:g} Mb/s until its end",
            "reserve for the missing megabytes with a later deadline",
            f"hydra reserve {one.src} {one.dst} --megabytes {missing:g} --end TIME",
            (one.pair,),
            (one.id,),
        )
