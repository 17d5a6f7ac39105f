"""Fixtures of all rooms."""

import pytest

from apps.process.configuration import load_configuration
from hydra.model import Fabric
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG


@pytest.fixture(scope="session")
def fabric() -> Fabric:
    """The demo's: racks r1 to r4 of two servers (h11, h12, …); planes p1 and p2; all links at 100
    Mb/s.
    """
    return load_configuration(DEFAULT_CONFIG).fabric
