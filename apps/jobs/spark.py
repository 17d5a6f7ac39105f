"""A Spark application's shuffles, from its event log: a file of plain lines.

Spark writes such a file with ``spark.eventLog.enabled=true``, ``spark.eventLog.compress=false`` and
``spark.eventLog.rolling.enabled=false``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hydra.errors import HydraError

_CODECS: Final = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"LZ4Block": "lz4",
    b"\x82SNAPPY\0": "snappy",
    b"ZV": "lzf",
}
"""First bytes of a log by each ``spark.eventLog.compression.codec``; zstd is the default."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The beginning or end of a stage that fetches results of earlier stages from other hosts."""

    stage: int
    hosts: tuple[str, ...]
    """Hosts with executors at the beginning, in order."""
    begins: bool


def shuffles(log: Iterable[str | bytes]) -> Iterator[Shuffle]:
    """Beginnings and ends of shuffles, as the lines of ``log`` come.

    A shuffle begins when the last of the stages it fetches from is completed: Spark writes the
    stage's own beginning (``StageSubmitted``) into a buffer, and the buffer reaches the file with
    the stage's end. The ``StageSubmitted`` line counts if the earlier stages are unknown. Each
    begun shuffle ends: with its stage (also a failed stage), with its job, before the stage's next
    attempt, or with the log. A last line that is no event ends the log: Spark was killed while
    writing the line. Raises HydraError for such a line in the middle, after the end of all begun
    shuffles, and for a compressed log.
    """
    reader = _Reader()
    bad: tuple[int, Exception] | None = None
    for number, line in enumerate(log, 1):
        if bad is not None:
            raise HydraError(f"line {bad[0]} is no event of Spark's: {bad[1]!r}") from bad[1]
        if number == 1:
            _check_plain(line)
        try:
            events = reader.read(json.loads(line))
        except (LookupError, TypeError, ValueError) as error:
            events = reader.end(tuple(reader.running))
            bad = number, error
        yield from events
    yield from reader.end(tuple(reader.running))


@dataclass(slots=True)
class _Reader:
    """State of the log so far."""

    host_of: dict[str, str] = field(default_factory=dict)
    """Host of each executor."""
    parents: dict[int, frozenset[int]] = field(default_factory=dict)
    """Stages that a stage fetches from, for the fetching stages of running jobs."""
    stages_of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Stages of each running job."""
    done: set[int] = field(default_factory=set)
    """Completed stages of running jobs."""
    running: dict[int, Shuffle] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    """Attempt of each running stage with a read beginning."""

    def read(self, event: Mapping[str, Any]) -> list[Shuffle]:
        """Shuffles begun and ended by an event. Raises LookupError and TypeError for a foreign
        event.
        """
        match event["Event"]:
            case "SparkListenerExecutorAdded":
                self.host_of[event["Executor ID"]] = event["Executor Info"]["Host"]
            case "SparkListenerExecutorRemoved":
                self.host_of.pop(event["Executor ID"], None)
            case "SparkListenerJobStart":
                stages = {
                    stage["Stage ID"]: frozenset(stage["Parent IDs"])
                    for stage in event["Stage Infos"]
                }
                self.stages_of[event["Job ID"]] = tuple(stages)
                self.parents |= {stage: some for stage, some in stages.items() if some}
            case "SparkListenerJobEnd":
                stages_of_job = self.stages_of.pop(event["Job ID"], ())
                return self._forget(stages_of_job)
            case "SparkListenerStageSubmitted":
                return self._submitted(event["Stage Info"])
            case "SparkListenerStageCompleted":
                return self._completed(event["Stage Info"])
        return []

    def _submitted(self, stage: Mapping[str, Any]) -> list[Shuffle]:
        number, attempt = stage["Stage ID"], stage.get("Stage Attempt ID", 0)
        if not stage["Parent IDs"]:
            return []
        known = self.attempts.setdefault(number, attempt)
        if number in self.running and known == attempt:
            return []
        self.attempts[number] = attempt
        return [*self.end([number]), self._begin(number)]

    def _completed(self, stage: Mapping[str, Any]) -> list[Shuffle]:
        ended = self.end([stage["Stage ID"]])
        self.attempts.pop(stage["Stage ID"], None)
        if "Failure Reason" in stage:
            return ended
        self.done.add(stage["Stage ID"])
        ready = [
            number
            for number, parents in self.parents.items()
            if stage["Stage ID"] in parents
            and parents <= self.done
            and number not in self.done
            and number not in self.running
        ]
        return [*ended, *map(self._begin, ready)]

    def _forget(self, stages: Iterable[int]) -> list[Shuffle]:
        """End and forget the stages of an ended job, except stages shared with other jobs."""
        gone = {*stages}.difference(*self.stages_of.values())
        for number in gone:
            self.parents.pop(number, None)
            self.attempts.pop(number, None)
        self.done -= gone
        return self.end(sorted(gone))

    def _begin(self, stage: int) -> Shuffle:
        hosts = tuple(sorted({*self.host_of.values()}))
        shuffle = self.running[stage] = Shuffle(stage, hosts, begins=True)
        return shuffle

    def end(self, stages: Iterable[int]) -> list[Shuffle]:
        """End the running shuffles among ``stages``."""
        return [
            replace(self.running.pop(stage), begins=False)
            for stage in stages
            if stage in self.running
        ]


def _check_plain(line: str | bytes) -> None:
    """Raises HydraError if the first line of a log shows a compressed log."""
    start = line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line
    for magic, codec in _CODECS.items():
        if start.startswith(magic):
            raise HydraError(
                f"the event log is compressed with {codec}: start the application with "
                "spark.eventLog.compress=false and spark.eventLog.rolling.enabled=false (both are "
                "true by default since Spark 4), for a log in a single file of plain lines"
            )
