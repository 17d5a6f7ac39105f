"""The result of a change that takes the network to a target in one or more courses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hydra.failures import Failure
from hydra.lifecycle import ReconfigurationState
from hydra.model import Circuit, DatapathId, NetworkState
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.touched import Touched, rebased

_ItemT = TypeVar("_ItemT")


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The courses of one change: make-before-break courses and diverting courses.

    Properties combine the courses' attributes of the same name
    (:class:`~hydra.reconfiguration.run.Run`).
    """

    courses: Sequence[Execution]
    """In order; at least one."""
    cut_short: str = ""
    """The reason why no course was found for the remaining pairs; empty if none was needed."""

    @property
    def before(self) -> NetworkState:
        """The state before the change, with the results of other changes since."""
        first, *later = self.courses
        before = first.began
        for execution in later:
            before = rebased(before, execution.planned.current, execution.began)
        return before

    @property
    def result(self) -> NetworkState:
        return self.courses[-1].result

    @property
    def wanted(self) -> NetworkState:
        return self.courses[-1].wanted

    @property
    def state(self) -> ReconfigurationState:
        """The final state of the change's life cycle."""
        partial = any(course.state is ReconfigurationState.PARTIAL for course in self.courses)
        if partial or self.cut_short:
            return ReconfigurationState.PARTIAL
        return self.courses[-1].state

    @property
    def connected(self) -> frozenset[Circuit]:
        """Circuits that have come up."""
        return _union(course.plan.connect - course.failures.keys() for course in self.courses)

    @property
    def disconnected(self) -> frozenset[Circuit]:
        return _union(course.plan.disconnect for course in self.courses)

    @property
    def failures(self) -> dict[Circuit, Failure]:
        return {circuit: why for course in self.courses for circuit, why in course.failures.items()}

    @property
    def troubles(self) -> tuple[Failure, ...]:
        return tuple(
            dict.fromkeys(trouble for course in self.courses for trouble in course.troubles)
        )

    @property
    def unconfirmed(self) -> frozenset[str]:
        return _union(course.unconfirmed for course in self.courses)

    @property
    def late(self) -> frozenset[DatapathId]:
        return _union(course.late for course in self.courses)

    @property
    def ceded(self) -> Touched | None:
        return self.courses[-1].ceded

    @property
    def reason(self) -> str:
        return "; ".join(
            filter(None, (*(course.reason for course in self.courses), self.cut_short))
        )

    @property
    def rules_pushed(self) -> int:
        return sum(course.rules_pushed for course in self.courses)

    @property
    def ports_retagged(self) -> int:
        return sum(course.ports_retagged for course in self.courses)

    @property
    def outage_s(self) -> float | None:
        """Seconds for which pairs were off circuits; None if the move of no pair was completed."""
        last = self.courses[-1]
        began = [step.started_s for step in last.steps if step.name in ("divert", "move")]
        ended = [step.finished_s for step in last.steps if step.name == "activate"]
        return max(ended) - min(began) if began and ended else None


def _union(sets: Iterable[Collection[_ItemT]]) -> frozenset[_ItemT]:
    return frozenset[_ItemT]().union(*sets)
