"""A controller's term: the time in which the controller leads, and decides and acts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hydra.errors import LifecycleError
from hydra.faults.facts import TakeoverRisk


@dataclass(frozen=True, slots=True)
class Replica:
    """One of several controllers."""

    id: str
    """A new id at each start."""
    name: str
    """Name of the machine."""
    url: str
    """Address of the REST API."""
    release: str
    since_unix_s: float
    """Start of standby, or of leadership."""
    switches: int | None = None
    """Number of connected switches at the last report; None: not reported by the release."""


@dataclass(frozen=True, slots=True)
class StoreMember:
    """A member of the store shared by controllers, as reported by the member."""

    endpoint: str
    answers: bool
    leads: bool = False
    """True for the leader of the store's members, unrelated to the leader of the controllers."""
    version: str = ""
    size_mb: float = 0.0
    behind: int = 0
    """Entries of the store's log not applied yet by this member."""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replicas:
    """All controllers with a lease, and the store."""

    leader: Replica | None
    standing_by: tuple[Replica, ...]
    store: tuple[StoreMember, ...]
    problem: str = ""
    """The reason why the store does not name the leader; empty if named."""


@dataclass(frozen=True, slots=True)
class Standby:
    """A standby's knowledge of the leader."""

    words: str
    leader: Replica | None = None
    """The leader at the store's last answer; None: no leader, or this controller."""
    store_lost: tuple[float, str] | None = None
    """Start of the store's silence, in Unix seconds, and the error; None: the store answers."""


class Term(Protocol):
    """Usable from any thread; nothing waits but :meth:`exceed`, :meth:`replicas` and
    :meth:`end_soon`.
    """

    @property
    def is_shared(self) -> bool:
        """True if another controller may lead afterwards."""
        ...

    @property
    def generation(self) -> int | None:
        """Number by which switches distinguish a leader from earlier leaders; None: no number.

        A later leader has a higher number. In a term, the number only grows by :meth:`exceed`.
        """
        ...

    def exceed(self, generation: int) -> bool:
        """Raise :attr:`generation`, for this leader and all later leaders, beyond ``generation``,
        known from an earlier store. False: not raised, as this controller leads no more, or the
        store did not confirm.
        """
        ...

    def over(self) -> bool:
        """True if this controller does not lead, and has to leave all devices alone."""
        ...

    def remaining_s(self) -> float:
        """Seconds of certain leadership; 0 for a controller that does not lead."""
        ...

    def look_at_once(self) -> None:
        """Ask the store whether this controller still leads, and end if not; returns at once."""
        ...

    def standby(self) -> Standby | None:
        """The knowledge of a standby; None: this controller leads, and takes requests."""
        ...

    def replicas(self) -> Replicas | None:
        """All controllers of a store; None for a controller without a shared store."""
        ...

    def risks(self) -> Sequence[TakeoverRisk]:
        """Risks of a takeover, as last seen by the leader."""
        ...

    def hand_over(self) -> tuple[Replica, ...]:
        """End this controller, so that a standby leads; returns the standbys.

        Raises LifecycleError if there are none, or if a standby has fewer switches than this
        controller: as the leader, it would have to wait for the missing switches.
        """
        ...

    def end_soon(self) -> None:
        """Announce this controller's end to the standbys; returns once they look at the lease
        often enough to lead at once. This controller leads meanwhile as always.
        """
        ...

    def take_no_more(self) -> None:
        """Refuse requests from now on: :meth:`standby` says that this controller ends."""
        ...

    def resign(self) -> None:
        """End the term; no other controller leads before the lease is given back."""
        ...


class Alone:
    """The term of a controller without standbys: ends with the process."""

    is_shared = False
    generation: int | None = None

    def exceed(self, generation: int) -> bool:  # noqa: ARG002
        return False

    def over(self) -> bool:
        return False

    def remaining_s(self) -> float:
        return math.inf

    def look_at_once(self) -> None:
        pass

    def standby(self) -> Standby | None:
        return None

    def replicas(self) -> Replicas | None:
        return None

    def risks(self) -> Sequence[TakeoverRisk]:
        return ()

    def end_soon(self) -> None:
        pass

    def take_no_more(self) -> None:
        pass

    def resign(self) -> None:
        pass

    def hand_over(self) -> tuple[Replica, ...]:
        raise LifecycleError(
            "this controller is alone, since its journal is a file: controllers hand over only "
            "with a shared store, controller.store.etcd"
        )
