"""Reported changes of alarms: alarms that began, ended, or came and went between two looks."""

from dataclasses import replace

import pytest

from hydra.faults.alarms import news
from hydra.roles import Alarm, Severity

LOS = Alarm(Severity.CRITICAL, 3, "LOS", "fibre cut")
FAN = Alarm(Severity.MINOR, None, "FAN", "slow")
LOS_OVER, FAN_OVER = (replace(alarm, severity=Severity.CLEARED) for alarm in (LOS, FAN))


@pytest.mark.parametrize(
    ("before", "reports", "now", "told"),
    [
        ([], [], [], []),
        ([], [], [LOS], [LOS]),
        ([LOS], [], [LOS], []),
        ([LOS], [], [], [LOS_OVER]),
        ([], [LOS], [LOS], [LOS]),  # once, although the device also reported the alarm
        ([LOS], [LOS_OVER], [], [LOS_OVER]),
        ([FAN], [LOS, LOS_OVER], [FAN], [LOS, LOS_OVER]),  # the alarm came and went
        ([FAN], [replace(LOS, port=4)], [LOS], [replace(LOS, port=4), LOS, FAN_OVER]),
    ],
)
def test_what_is_told(before, reports, now, told):
    assert news(before, reports, now) == told
