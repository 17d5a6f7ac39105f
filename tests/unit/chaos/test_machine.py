"""A busy machine is no violation, and an idle machine no excuse."""

from __future__ import annotations

import pytest

from mininet_scenarios.chaos.machine import Deadline, waited_s


class Machine:
    """A clock, and the time for which processes have waited for processors."""

    def __init__(self):
        self.now_s = self.waited_s = 100.0

    def deadline(self, after_s):
        return Deadline(after_s, lambda: self.waited_s, lambda: self.now_s)

    def seconds_until(self, deadline, waiting):
        """``waiting``: seconds of waiting in each second."""
        began_s = self.now_s
        while not deadline.is_over():
            self.now_s += 0.2
            self.waited_s += 0.2 * waiting
        return self.now_s - began_s


@pytest.mark.parametrize(
    ("waiting", "lasts_s"), [(0.0, 5.0), (0.5, 10.0), (0.9, 50.0), (30.0, 50.0)]
)
def test_time_counts_while_processes_can_run(waiting, lasts_s):
    machine = Machine()
    assert machine.seconds_until(machine.deadline(5.0), waiting) == pytest.approx(lasts_s, abs=0.5)


def test_processes_that_end_give_no_time_back():
    machine = Machine()
    deadline = machine.deadline(5.0)
    machine.waited_s = 0.0
    machine.now_s += 5.1
    assert deadline.is_over()


def test_waits_of_all_threads_are_summed_and_ended_processes_passed_over(tmp_path):
    for pid, thread, waited_ns in ((7, 7, 1_500_000_000), (7, 8, 500_000_000), (9, 9, 10**9)):
        (tmp_path / f"{pid}" / "task" / f"{thread}").mkdir(parents=True)
        text = f"12345 {waited_ns} 6\n"
        (tmp_path / f"{pid}" / "task" / f"{thread}" / "schedstat").write_text(text)
    assert waited_s([7, 8], tmp_path) == 2.0
