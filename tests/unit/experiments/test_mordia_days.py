"""Mordia's ToRs that hold frames: the check of the optical switch, a ToR, and conclusions."""

import json
import socket
import subprocess
import sys

import pytest

from mininet_scenarios.experiments.mordia import days
from mininet_scenarios.experiments.mordia.days import Days, Slot, Week, passed
from mininet_scenarios.workloads.tor_queues import (
    BURST,
    DAY,
    END,
    EVERYONE,
    HELLO,
    HERE,
    NIGHT,
    SYNC,
    Burst,
    Sync,
)
from tests.unit.experiments.judged import agreeing, differing
from tests.waiting import PATIENCE_S

SLOTS = [Slot(1, 1.0, 1.9), Slot(2, 2.0, 2.9)]


@pytest.mark.parametrize(
    ("source", "destination", "begin_s", "count", "arrive"),
    [
        (0, 1, 1.0, 3, 3),  # three times 0.3 s: the whole day
        (0, 1, 1.0, 4, 3),
        (0, 1, 1.05, 3, 2),  # the night cuts the last transmission off
        (0, 1, 0.8, 3, 2),  # begun before the day
        (0, 2, 1.0, 3, 0),  # another ToR's day
        (2, 0, 1.0, 3, 3),
        (0, 2, 2.0, 3, 3),
        (0, EVERYONE, 0.9, 6, 4),  # 0.9 before the days, 1.8 cut off
    ],
)
def test_a_frame_arrives_if_it_lies_within_its_day(source, destination, begin_s, count, arrive):
    burst = Burst(source, destination, begin_s, count)
    assert passed([burst], 0.3, SLOTS, 3) == arrive
    assert passed([burst, burst], 0.3, SLOTS, 3) == 2 * arrive
    assert passed([], 0.3, SLOTS, 3) == 0


def test_a_tor_sends_what_its_day_has_room_for():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ocs:
        ocs.settimeout(PATIENCE_S)
        ocs.bind((HERE, 0))
        port = ocs.getsockname()[1]
        command = [sys.executable, "-m", "mininet_scenarios.workloads.tor_queues", str(port), "3"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tor:
            hello, address = ocs.recvfrom(10)
            assert HELLO.unpack(hello) == (3,)
            day = Sync(DAY, 5, 1e6 * 3.5, 1e6)
            for sync in (day, Sync(NIGHT), day, Sync(END)):
                ocs.sendto(SYNC.pack(*sync), address)
            first, second = (Burst(*BURST.unpack(ocs.recv(100))) for _ in range(2))
            came = json.loads(tor.communicate(timeout=PATIENCE_S)[0])
    assert first == Burst(3, 5, came[0], 3)
    # The network card is still busy with the first day's frames.
    assert second == Burst(3, 5, pytest.approx(came[0] + 3e6), 3)
    assert len(came) == 3


def week(slot_us: float, share: float, lost: int) -> Week:
    return Week(slot_us, days.NIGHT_US, 1000, 1000 - lost, share)


def result(share: float, late_us: float) -> Days:
    weeks = tuple(week(slot_us, share, 5) for slot_us in days.FULL_SLOTS_US)
    captured = week(106.0, 0.87, 100)
    deltas = (6.0, 100.0) * 99 + (6.0 + late_us,) * 50
    return Days(23, Week(0, 0, 1000, 1000, 1.0), weeks, captured, deltas)


def test_shares_are_judged_by_slot_and_jitter_is_the_reason():
    rows = days.EXPERIMENT.conclude([result(0.65, 0.5)]).rows
    assert set(agreeing(rows)) == {
        f"mordia/{name}" for name in ("UDP 61", "capture", "loss", "sync")
    }
    assert differing(rows) == ["mordia/UDP 300"]
    (row,) = (row for row in rows if row.claim == "mordia/UDP 300")
    assert "within 0.50 µs" in row.why
    late = days.EXPERIMENT.conclude([result(0.95, 3.0)]).rows
    assert set(differing(late)) == {"mordia/UDP 61", "mordia/sync"}
