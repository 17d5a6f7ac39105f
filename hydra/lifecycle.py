"""States and transitions of jobs, reconfigurations, staged changes and reservations.

The only definition of transitions; the diagrams in the docs are generated from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from hydra.errors import LifecycleError

_StateT = TypeVar("_StateT", bound=StrEnum)


class JobState(StrEnum):
    """States of a course under way: the course of a job, or a course begun beside a job."""

    QUEUED = "queued"
    """Not begun."""
    PERFORMING = "performing"
    """Devices carry out a batch of the course."""
    WRITING = "writing"
    """The journal writes the course's intent. No other course continues meanwhile."""
    HELD = "held"
    """The batch is over; the course continues once no intent is being written."""
    AWAITING_OTHERS = "awaiting-others"
    """The course continues once all courses begun beside it are over."""
    DONE = "done"
    FAILED = "failed"
    """Ended by an error, or given up."""


class ReconfigurationState(StrEnum):
    QUEUED = "queued"
    MAKING = "making"
    """Make before break: new paths are set up and probed, while traffic uses the old paths."""
    SHIFTING = "shifting"
    """Traffic moves from the old paths to the new paths."""
    EMPTYING = "emptying"
    """The old paths drain."""
    BREAKING = "breaking"
    """The old paths are taken down. If more pairs are to be moved, the reconfiguration
    continues.
    """
    DIVERTING = "diverting"
    DRAINING = "draining"
    MOVING = "moving"
    """Substep 3-2: retag, push and mirrors in parallel."""
    GATING = "gating"
    ACTIVATING = "activating"
    DONE = "done"
    PARTIAL = "partial"
    """Finished, but some circuits failed and their pairs stay electrical; or ended between
    stages.
    """
    REFUSED = "refused"
    """Nothing was touched: the change does not pay, or is impossible."""
    FAILED = "failed"


class StagePhase(StrEnum):
    """Phases of a staged change with stages ahead."""

    QUEUED = "queued"
    """The next stage is queued among the conductor's jobs."""
    BEGUN_BESIDE = "begun-beside"
    """The first stage was made beside another change, before its turn. The rest is planned anew in
    its turn.
    """
    MOVING = "moving"
    """A stage is being made, or the next stage is being planned."""
    AWAITS_HOURS = "awaits-hours"
    """The electrical network has no room for the next stage before ``policy.beyond_hours``. Other
    changes may alter the network in the meantime.
    """
    OVER = "over"
    """Done, or ended early with some stages made."""


class ReservationState(StrEnum):
    HELD = "held"
    """Admitted; cancelled unless committed in time."""
    COMMITTED = "committed"
    SCHEDULED = "scheduled"
    """Admitted for a later start."""
    ACTIVATING = "activating"
    ACTIVE = "active"
    RELEASING = "releasing"
    RELEASED = "released"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Released before the start."""
    EXPIRED = "expired"
    PREEMPTED = "preempted"
    """Gave way to a reservation of higher priority."""


_J = JobState
_GOES_ON: Final = frozenset(_J) - {_J.QUEUED, _J.HELD}
JOB_TRANSITIONS: Final[Mapping[_J, frozenset[_J]]] = {
    _J.QUEUED: _GOES_ON,
    _J.PERFORMING: _GOES_ON | {_J.HELD},
    _J.WRITING: _GOES_ON | {_J.HELD},
    _J.HELD: _GOES_ON,
    _J.AWAITING_OTHERS: _GOES_ON | {_J.HELD},
    _J.DONE: frozenset(),
    _J.FAILED: frozenset(),
}

_R = ReconfigurationState
RECONFIGURATION_TRANSITIONS: Final[Mapping[_R, frozenset[_R]]] = {
    _R.QUEUED: frozenset({_R.MAKING, _R.DIVERTING, _R.REFUSED, _R.DONE, _R.PARTIAL, _R.FAILED}),
    _R.MAKING: frozenset({_R.SHIFTING, _R.FAILED}),
    _R.SHIFTING: frozenset({_R.EMPTYING, _R.FAILED}),
    _R.EMPTYING: frozenset({_R.BREAKING, _R.FAILED}),
    _R.BREAKING: frozenset({_R.MAKING, _R.DIVERTING, _R.DONE, _R.PARTIAL, _R.FAILED}),
    _R.DIVERTING: frozenset({_R.DRAINING, _R.FAILED}),
    _R.DRAINING: frozenset({_R.MOVING, _R.FAILED}),
    _R.MOVING: frozenset({_R.GATING, _R.FAILED}),
    _R.GATING: frozenset({_R.ACTIVATING, _R.FAILED}),
    _R.ACTIVATING: frozenset({_R.DONE, _R.PARTIAL, _R.FAILED}),
    _R.DONE: frozenset(),
    _R.PARTIAL: frozenset(),
    _R.REFUSED: frozenset(),
    _R.FAILED: frozenset(),
}

_P = StagePhase
STAGE_TRANSITIONS: Final[Mapping[_P, frozenset[_P]]] = {
    _P.QUEUED: frozenset({_P.MOVING, _P.OVER}),
    _P.BEGUN_BESIDE: frozenset({_P.MOVING, _P.OVER}),
    _P.MOVING: frozenset({_P.QUEUED, _P.BEGUN_BESIDE, _P.AWAITS_HOURS, _P.OVER}),
    _P.AWAITS_HOURS: frozenset({_P.MOVING, _P.OVER}),
    _P.OVER: frozenset(),
}

_S = ReservationState
RESERVATION_TRANSITIONS: Final[Mapping[_S, frozenset[_S]]] = {
    _S.HELD: frozenset({_S.COMMITTED, _S.CANCELLED, _S.EXPIRED, _S.FAILED, _S.PREEMPTED}),
    _S.COMMITTED: frozenset({_S.SCHEDULED, _S.ACTIVATING}),
    _S.SCHEDULED: frozenset({_S.ACTIVATING, _S.CANCELLED, _S.EXPIRED, _S.FAILED, _S.PREEMPTED}),
    _S.ACTIVATING: frozenset({_S.ACTIVE, _S.FAILED, _S.RELEASING, _S.EXPIRED, _S.PREEMPTED}),
    _S.ACTIVE: frozenset({_S.RELEASING, _S.EXPIRED, _S.FAILED, _S.PREEMPTED}),
    _S.RELEASING: frozenset({_S.RELEASED}),
    _S.RELEASED: frozenset(),
    _S.FAILED: frozenset({_S.RELEASED}),
    _S.CANCELLED: frozenset(),
    _S.EXPIRED: frozenset(),
    _S.PREEMPTED: frozenset(),
}


def check_transition(
    table: Mapping[_StateT, frozenset[_StateT]], old: _StateT, new: _StateT, what: str
) -> None:
    """Raise LifecycleError, about ``what``, unless ``table`` allows ``old`` → ``new``."""
    if new not in table[old]:
        allowed = ", ".join(sorted(str(state.value) for state in table[old]))
        may = f"possible next states: {allowed}" if allowed else "the state is final"
        raise LifecycleError(f"{what} is {old.value} and can't become {new.value}: {may}")


def can_become(table: Mapping[_StateT, frozenset[_StateT]], old: _StateT, new: _StateT) -> bool:
    """True if ``table`` leads from ``old`` to ``new`` in any number of transitions, including
    none.
    """
    seen, ahead = set[_StateT](), [old]
    while ahead:
        state = ahead.pop()
        if state is new:
            return True
        if state not in seen:
            seen.add(state)
            ahead += table[state]
    return False
