"""A controller's term: the time in which it leads, and decides and acts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hydra.errors import LifecycleError
from hydra.faults.facts import TakeoverRisk


@dataclass(frozen=True, slots=True)
class Replica:
    """A controller of several."""

    id: str
    """Another one at each start."""
    name: str
    """Name of its machine."""
    url: str
    """Where its REST API is."""
    release: str
    since_unix_s: float
    """When it began to stand by, or to lead."""
    switches: int | None = None
    """Number of switches that are connected to it, as it said last; None: its release says none."""


@dataclass(frozen=True, slots=True)
class StoreMember:
    """A member of the store that controllers share, as it says itself."""

    endpoint: str
    answers: bool
    leads: bool = False
    """Leader of the store's members, which is not the leader of the controllers."""
    version: str = ""
    size_mb: float = 0.0
    behind: int = 0
    """Entries of the store's log that this member has yet to apply."""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replicas:
    """All controllers that have a lease, and the store."""

    leader: Replica | None
    standing_by: tuple[Replica, ...]
    store: tuple[StoreMember, ...]
    problem: str = ""
    """The reason why the store does not say who leads; empty if it does."""


@dataclass(frozen=True, slots=True)
class Standby:
    """What a controller that does not lead knows of who does."""

    words: str
    leader: Replica | None = None
    """The one that led when the store answered last; None: nobody, or itself."""
    store_lost: tuple[float, str] | None = None
    """Since when the store does not answer, in Unix seconds, and how; None: it answers."""


class Term(Protocol):
    """Usable from any thread; nothing waits but :meth:`exceed`, :meth:`replicas` and
    :meth:`end_soon`.
    """

    @property
    def is_shared(self) -> bool:
        """True if others may lead after this one."""
        ...

    @property
    def generation(self) -> int | None:
        """Number by which switches tell a leader from those before it; None: it has none.

        A later leader's is higher. It grows in a term only by :meth:`exceed`.
        """
        ...

    def exceed(self, generation: int) -> bool:
        """Have :attr:`generation`, and those of all later leaders, be beyond this one, of a store
        before the present one. False: it is not, as this controller leads no more.
        """
        ...

    def over(self) -> bool:
        """True if this controller does not lead, and has to leave all devices alone."""
        ...

    def left_s(self) -> float:
        """Seconds in which this controller certainly leads; 0 if it does not."""
        ...

    def look_at_once(self) -> None:
        """Ask the store whether this controller still leads, and end at once if not; returns
        before the answer.
        """
        ...

    def standby(self) -> Standby | None:
        """What a controller that does not lead knows; None: it leads, and takes requests."""
        ...

    def replicas(self) -> Replicas | None:
        """All controllers of a store; None if there is but this one."""
        ...

    def risks(self) -> Sequence[TakeoverRisk]:
        """What a takeover would suffer from, as last seen by the one that leads."""
        ...

    def hand_over(self) -> tuple[Replica, ...]:
        """End this controller, so that one of those that stand by leads; these.

        Raises LifecycleError if there are none, or one of them has fewer switches than this one:
        if that led, it would have to wait for them.
        """
        ...

    def end_soon(self) -> None:
        """Tell those that stand by that this controller is about to end; return once they look so
        often whether it has that one of them leads at once. It leads meanwhile as ever.
        """
        ...

    def take_no_more(self) -> None:
        """Have requests refused from now on: :meth:`standby` says that this controller ends."""
        ...

    def resign(self) -> None:
        """Have the term be over; nobody else leads before the lease is given back."""
        ...


class Alone:
    """The term of a controller that no other one stands by for: it ends with the process."""

    is_shared = False
    generation: int | None = None

    def exceed(self, generation: int) -> bool:  # noqa: ARG002
        return False

    def over(self) -> bool:
        return False

    def left_s(self) -> float:
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
            "this controller is alone, since its journal is a file: controllers hand over where "
            "controller.store.etcd names a store that they share"
        )
