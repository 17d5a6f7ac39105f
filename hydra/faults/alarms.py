"""What to tell of a device's alarms, from those that stand and those that it reported."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hydra.roles import Alarm, Severity


def news(
    before: Collection[Alarm], reports: Sequence[Alarm], now: Collection[Alarm]
) -> list[Alarm]:
    """What is new since ``before`` stood: what came in passing, what began, and what is over.

    ``reports`` came from the device of its own accord between two looks, of which ``now`` is the
    second. They are told where the looks do not tell the same condition: because it came and went,
    or because the device lists it under another name or not at all. What is over has severity
    CLEARED.
    """
    known = {(alarm.port, alarm.code) for alarm in (*before, *now)}
    passing = [alarm for alarm in reports if (alarm.port, alarm.code) not in known]
    began = [alarm for alarm in now if alarm not in before]
    over = [replace(alarm, severity=Severity.CLEARED) for alarm in before if alarm not in now]
    return [*passing, *began, *over]
