"""A short form of `python -m benchmarks.soak`: nothing is left behind by what comes and goes."""

from __future__ import annotations

import pytest

from apps.client import HydraClient
from mininet_scenarios.soak import REMEMBERED, Soak, threads, typical

from .live import live

pytestmark = [pytest.mark.ovs, pytest.mark.takes(25)]

SECONDS = 15.0
HISTORIES_MB = 25.0
"""Histories that are bounded in number are far from full after so short a time."""
POOLS = {"AnyIO worker thread": 40, "bodies": 2, "device": 4 + 2 + 8, "reader": 128}
"""Threads that come with what is to be done at a time, and how many there may be.

Those that speak with devices are one for each rack and plane, and eight.
"""


def test_descriptors_threads_and_memory_stay(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path) as network:
        soak = Soak(network.stage, network.process, seed=1)
        soak.fill()
        with HydraClient(network.process.base_url) as client:
            assert sum(1 for _ in client.reservations()) == REMEMBERED
        before = threads(network.process)
        run = soak.run(SECONDS, sample_s=0.5)
        early, late = run.early(), run.late()
        after = threads(network.process)
    assert run.changes >= 10
    assert run.reservations >= 1
    assert {of: many for of, many in after.items() if of not in POOLS} == {
        of: many for of, many in before.items() if of not in POOLS
    }
    assert all(after.get(of, 0) <= bound for of, bound in POOLS.items())
    descriptors = typical(early, lambda one: one.descriptors)
    assert typical(late, lambda one: one.descriptors) <= descriptors + 2
    grown = typical(late, lambda one: one.resident_mb) - typical(early, lambda one: one.resident_mb)
    assert grown < HISTORIES_MB
