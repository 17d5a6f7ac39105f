"""Versions of Open vSwitch whose cached flows need separate handling."""

import pytest

from mininet_scenarios.testbed.ovs import confuses_cached_flows


@pytest.mark.parametrize(
    ("version", "confuses"),
    [
        ((2, 5, 0), True),
        ((2, 17, 7), True),
        ((2, 17, 8), False),
        ((3, 0, 4), True),
        ((3, 0, 5), False),
        ((3, 1, 0), True),
        ((3, 1, 3), False),
        ((3, 2, 0), False),
        ((3, 5, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_series_were_mended_one_by_one(version, confuses):
    assert confuses_cached_flows(version) == confuses
