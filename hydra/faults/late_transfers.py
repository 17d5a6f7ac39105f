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
    for reservation, missing in short:
        yield Condition(
            ConditionKind.TRANSFER_AT_RISK,
            (reservation.id,),
            f"{missing:g} MB of reservation {reservation.id} ({reservation.src} to "
            f"{reservation.dst}) will not arrive by the deadline",
            seen[reservation.id],
            f"the transfer keeps {reservation.bandwidth_mbps:g} Mb/s until its end",
            "reserve for the missing megabytes with a later deadline",
            f"hydra reserve {reservation.src} {reservation.dst} --megabytes {missing:g} --end TIME",
            (reservation.pair,),
            (reservation.id,),
        )
