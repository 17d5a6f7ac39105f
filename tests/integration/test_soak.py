"""A short form of `python -m benchmarks.soak`: nothing is left behind by what comes and goes."""

from __future__ import annotations

import pytest

from apps.client import HydraClient
from mininet_scenarios.soak import REMEMBERED, Soak, typical

from .live import live

pytestmark = [pytest.mark.ovs, pytest.mark.takes(25)]

SECONDS = 15.0
HISTORIES_MB = 25.0
"""Histories that are bounded in number are far from full after so short a time."""


def test_descriptors_threads_and_memory_stay(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path) as network:
        soak = Soak(network.stage, network.process, seed=1)
        soak.fill()
        with HydraClient(network.process.base_url) as client:
            assert sum(1 for _ in client.reservations()) == REMEMBERED
        run = soak.run(SECONDS, sample_s=0.5)
    early, late = run.early(), run.late()
    assert run.changes >= 10
    assert run.reservations >= 1
    for what in (lambda one: one.descriptors, lambda one: one.threads):
        assert typical(late, what) <= typical(early, what) + 2
    grown = typical(late, lambda one: one.resident_mb) - typical(early, lambda one: one.resident_mb)
    assert grown < HISTORIES_MB
