"""Changes of the alarms of a device, from two reads and the reports in between."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hydra.roles import Alarm, Severity


def news(
    before: Collection[Alarm], reports: Sequence[Alarm], now: Collection[Alarm]
) -> list[Alarm]:
    """Alarms that passed, began and ended since ``before``, in this order.

    ``now`` are the alarms at the second read; ``reports`` were sent by the device unasked between
    the reads. A report counts as passed if neither read lists its port and code: the alarm came and
    went, or the device lists the alarm under another name or not at all. Ended alarms have severity
    CLEARED.
    """
    known = {(alarm.port, alarm.code) for alarm in (*before, *now)}
    passing = [alarm for alarm in reports if (alarm.port, alarm.code) not in known]
    began = [alarm for alarm in now if alarm not in before]
    over = [replace(alarm, severity=Severity.CLEARED) for alarm in before if alarm not in now]
    return [*passing, *began, *over]
