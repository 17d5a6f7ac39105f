"""Condition of protected reservations whose working path stands, without a path on standby."""

from __future__ import annotations

from collections.abc import Iterator

from hydra.faults.condition import Condition, ConditionKind
from hydra.faults.facts import Facts
from hydra.faults.late_transfers import FirstSeen
from hydra.lifecycle import ReservationState
from hydra.reservations.constraints import planes_of


def protection_lost(facts: Facts, first_seen: FirstSeen) -> Iterator[Condition]:
    """Active reservations that a further loss would interrupt."""
    standing = facts.state.vlans
    bare = [
        reservation
        for reservation in facts.reservations
        if reservation.state is ReservationState.ACTIVE
        and reservation.is_protected
        and reservation.booked in standing
        and reservation.protection not in standing
    ]
    seen = first_seen(
        ConditionKind.PROTECTION_LOST, (reservation.id for reservation in bare), facts
    )
    for reservation in bare:
        planes = () if reservation.booked is None else sorted(planes_of(reservation.booked))
        used = ", ".join(facts.fabric.planes[plane].name for plane in planes)
        yield Condition(
            ConditionKind.PROTECTION_LOST,
            (reservation.id,),
            f"reservation {reservation.id} ({reservation.src} to {reservation.dst}) has no "
            f"path on standby: a loss on {used} would interrupt its traffic",
            seen[reservation.id],
            "the working path stays; the controller looks for another path on standby, at least "
            "every minute",
            f"repair or free ports of both racks on a plane other than {used}",
            "hydra quarantine",
            (reservation.pair,),
            (reservation.id,),
        )
