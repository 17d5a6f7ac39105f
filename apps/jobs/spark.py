"""A Spark application's shuffles, by its event log (``spark.eventLog.enabled``, not compressed)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hydra.errors import HydraError


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A stage that fetches what earlier stages have left on other hosts, as it begins or ends."""

    stage: int
    hosts: tuple[str, ...]
    """Hosts with executors when it began, in order."""
    begins: bool


def shuffles(log: Iterable[str]) -> Iterator[Shuffle]:
    """Beginnings and ends of shuffles, as the lines of ``log`` come.

    Each that has begun ends: with its stage (also one that failed), before the stage's next
    attempt, or with the log. Raises HydraError for a line that is no event of Spark's.
    """
    host_of: dict[str, str] = {}
    running: dict[int, Shuffle] = {}
    for number, line in enumerate(log, 1):
        try:
            told = _told(json.loads(line), host_of)
        except (LookupError, TypeError, ValueError) as error:
            raise HydraError(f"line {number} is no event of Spark's: {error!r}") from error
        if told is None:
            continue
        if (before := running.pop(told.stage, None)) is not None:
            yield replace(before, begins=False)
        if told.begins:
            running[told.stage] = told
            yield told
    for left in running.values():
        yield replace(left, begins=False)


def _told(event: dict[str, Any], host_of: dict[str, str]) -> Shuffle | None:
    """What an event says of a shuffle; keeps ``host_of``, the hosts of executors, up to date."""
    match event["Event"]:
        case "SparkListenerExecutorAdded":
            host_of[event["Executor ID"]] = event["Executor Info"]["Host"]
        case "SparkListenerExecutorRemoved":
            host_of.pop(event["Executor ID"], None)
        case "SparkListenerStageSubmitted" if event["Stage Info"]["Parent IDs"]:
            hosts = tuple(sorted({*host_of.values()}))
            return Shuffle(event["Stage Info"]["Stage ID"], hosts, begins=True)
        case "SparkListenerStageCompleted":
            return Shuffle(event["Stage Info"]["Stage ID"], (), begins=False)
    return None
