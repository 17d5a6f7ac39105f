"""Delay of a reconfiguration, by substep.

The reconfiguration delay runs from the first divert rule to the activation of the new paths, less
the drain, which is given apart: the published control cycle has no drain. For a make-before-break
change, the delay runs from the first step to the moment at which traffic has gone over; later
breaks count for nothing. Mirrors, retagging and rules run in parallel, so their times don't add up;
the delay *without the mirrors* is the delay if the mirrors had moved in no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Final

from mininet_scenarios.stage.controller_client import ControllerError, TimelineStep

GATE_STEPS: Final = ("carrier", "tag", "announce", "probe")
ACTIVATING: Final = ("activate", "shift")
"""Steps after which traffic is on the new paths."""
SUBSTEPS: Final = ("divert", "drain", "retag", "push", "mirrors", "gate", "activate")
"""Substeps in the order of the bar chart; retag, push and mirrors are parallel."""


@dataclass(frozen=True, slots=True)
class DelaySplit:
    """Delay of one reconfiguration (or the mean of several), in ms."""

    divert_ms: float
    drain_ms: float
    retag_ms: float
    push_ms: float
    mirrors_ms: float
    gate_ms: float
    activate_ms: float
    total_ms: float
    """Time from the first change (the divert, if any) to the activation, drain included."""
    delay_ms: float
    """``total_ms`` less the drain."""
    delay_without_mirrors_ms: float
    """``delay_ms`` if the mirrors had moved in no time."""

    def substep(self, name: str) -> float:
        """Duration of a substep in :data:`SUBSTEPS`, ms."""
        value: float = getattr(self, f"{name}_ms")
        return value


def split(timeline: Sequence[TimelineStep], switching_ms: float) -> DelaySplit:
    """Split a timeline by substep; ``switching_ms`` is the time of the mirrors themselves.

    Raises ControllerError if the timeline lacks the last step.
    """
    activate = _span(timeline, ACTIVATING)
    if activate is None:
        steps = ", ".join(step.step for step in timeline) or "nothing"
        raise ControllerError(f"the timeline lacks activate among {steps}")
    until_then = [step for step in timeline if step.started_ms < activate[1]]
    names = {**{name: (name,) for name in SUBSTEPS}, "gate": GATE_STEPS, "activate": ACTIVATING}
    spans = {name: _span(until_then, steps) for name, steps in names.items()}
    begin_ms = min(span[0] for span in spans.values() if span is not None)
    lengths = {name: 0.0 if span is None else span[1] - span[0] for name, span in spans.items()}
    total_ms = activate[1] - begin_ms
    delay_ms = total_ms - lengths["drain"]
    return DelaySplit(
        **{f"{name}_ms": lengths[name] for name in SUBSTEPS},
        total_ms=total_ms,
        delay_ms=delay_ms,
        delay_without_mirrors_ms=delay_ms - _held_up_by_mirrors(spans, switching_ms),
    )


def mean(splits: Sequence[DelaySplit]) -> DelaySplit:
    """Mean of each part. Raises ControllerError if ``splits`` is empty."""
    if not splits:
        raise ControllerError("no reconfiguration to average")
    return DelaySplit(
        **{
            item.name: fmean(getattr(split, item.name) for split in splits)
            for item in fields(DelaySplit)
        }
    )


_Span = tuple[float, float]


def _span(timeline: Sequence[TimelineStep], names: Sequence[str]) -> _Span | None:
    """Time from the first start to the last end of the named steps, on any device."""
    chosen = [step for step in timeline if step.step in names]
    if not chosen:
        return None
    return min(step.started_ms for step in chosen), max(step.finished_ms for step in chosen)


def _held_up_by_mirrors(spans: dict[str, _Span | None], switching_ms: float) -> float:
    """Time by which substep 3-2 ended later because the mirrors took ``switching_ms``."""
    mirrors = spans["mirrors"]
    if mirrors is None:
        return 0.0
    others = [span[1] for name in ("retag", "push") if (span := spans[name]) is not None]
    unhindered = max([*others, mirrors[1] - switching_ms])
    return max(0.0, mirrors[1] - unhindered)
