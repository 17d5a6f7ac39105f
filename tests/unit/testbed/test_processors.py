"""Processor time taken by the host, by the kernel's own table."""

import pytest

from mininet_scenarios.testbed.processors import ProcessorTime

STAT = "cpu  600 10 300 9000 50 20 70 {steal} 5 0\ncpu0 300 5 150 4500 25 10 35 0 2 0\n"


def test_the_first_line_is_of_all_processors() -> None:
    assert ProcessorTime.read(STAT.format(steal=40)) == ProcessorTime(run=1000, withheld=40)


def test_the_share_is_of_the_time_that_was_wanted() -> None:
    began = ProcessorTime(run=1000, withheld=40)
    assert began.withheld_share(ProcessorTime(run=1300, withheld=140)) == pytest.approx(0.25)
    assert began.withheld_share(began) == 0.0


def test_this_machine_tells_its_own() -> None:
    began = ProcessorTime.now()
    assert began.run > 0
    assert 0 <= began.withheld_share(ProcessorTime.now()) <= 1
