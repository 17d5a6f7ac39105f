"""Changes in a device's alarms, from two looks at it and its reports in between."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hydra.roles import Alarm, Severity


def news(
    before: Collection[Alarm], reports: Sequence[Alarm], now: Collection[Alarm]
) -> list[Alarm]:
    """Alarms that came in passing, that began, and that ended since ``before``, in this order.

    ``now`` is what stands at the second look; ``reports`` came from the device of its own accord
    between the two. A report counts as passing if neither look lists its port and code: the alarm
    came and went, or the device lists it under another name or not at all. Ended alarms have
    severity CLEARED.
    """
    known = {(alarm.port, alarm.code) for alarm in (*before, *now)}
    passing = [alarm for alarm in reports if (alarm.port, alarm.code) not in known]
    began = [alarm for alarm in now if alarm not in before]
    over = [replace(alarm, severity=Severity.CLEARED) for alarm in before if alarm not in now]
    return [*passing, *began, *over]
