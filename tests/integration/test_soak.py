"""A short form of `python -m benchmarks.soak`: no resource leaks."""

from __future__ import annotations

import pytest

from hydra_hybrid_network_client import HydraClient
from mininet_scenarios.soak import POOLS, REMEMBERED, Soak, lasting, threads, typical

from .live import live

pytestmark = [pytest.mark.ovs, pytest.mark.takes(25)]

SECONDS = 15.0
HISTORIES_MB = 25.0
"""Bounded histories are far from full after such a short time."""
BOUNDS = {"AnyIO worker thread": 40, "bodies": 2, "device": 4 + 2 + 8, "reader": 128}
"""Largest number of threads of each pool; of ``device`` one for each rack and plane, and eight."""


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
    assert lasting(after) == lasting(before)
    assert BOUNDS.keys() == POOLS
    assert all(after.get(of, 0) <= bound for of, bound in BOUNDS.items())
    descriptors = typical(early, lambda one: one.descriptors)
    assert typical(late, lambda one: one.descriptors) <= descriptors + 2
    grown = typical(late, lambda one: one.resident_mb) - typical(early, lambda one: one.resident_mb)
    assert grown < HISTORIES_MB
