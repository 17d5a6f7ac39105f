"""A Spark application's shuffles, by its event log: one file of plain lines.

Spark writes such a file with ``spark.eventLog.enabled=true``, ``spark.eventLog.compress=false`` and
``spark.eventLog.rolling.enabled=false``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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
    """A stage that fetches what earlier stages have left on other hosts, as it begins or ends."""

    stage: int
    hosts: tuple[str, ...]
    """Hosts with executors when it began, in order."""
    begins: bool


def shuffles(log: Iterable[str | bytes]) -> Iterator[Shuffle]:
    """Beginnings and ends of shuffles, as the lines of ``log`` come.

    Each that has begun ends: with its stage (also one that failed), before the stage's next
    attempt, or with the log. A last line that is no event ends the log: Spark was killed while it
    wrote the line. Raises HydraError for such a line in the middle, after the end of all shuffles
    that have begun, and for a compressed log.
    """
    host_of: dict[str, str] = {}
    running: dict[int, Shuffle] = {}
    bad: tuple[int, Exception] | None = None
    for number, line in enumerate(log, 1):
        if bad is not None:
            raise HydraError(f"line {bad[0]} is no event of Spark's: {bad[1]!r}") from bad[1]
        if number == 1:
            _check_plain(line)
        try:
            told = _told(json.loads(line), host_of)
        except (LookupError, TypeError, ValueError) as error:
            yield from _ends(running)
            bad = number, error
            continue
        if told is None:
            continue
        if (before := running.pop(told.stage, None)) is not None:
            yield replace(before, begins=False)
        if told.begins:
            running[told.stage] = told
            yield told
    yield from _ends(running)


def _ends(running: dict[int, Shuffle]) -> Iterator[Shuffle]:
    """End all that have begun."""
    while running:
        yield replace(running.pop(next(iter(running))), begins=False)


def _check_plain(line: str | bytes) -> None:
    """Raises HydraError if a log that begins so is compressed."""
    start = line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line
    for magic, codec in _CODECS.items():
        if start.startswith(magic):
            raise HydraError(
                f"the event log is compressed with {codec}: start the application with "
                "spark.eventLog.compress=false and spark.eventLog.rolling.enabled=false (both are "
                "true by default since Spark 4), so that its log is one file of plain lines"
            )


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
