from pathlib import Path

import pytest

from drivers.registry import plane_checks, rack_checks
from hydra.config import load
from hydra.model import Fabric

DEMO = Path(__file__).parents[3] / "configs" / "demo.yaml"


@pytest.fixture(scope="session")
def fabric() -> Fabric:
    """Racks r1 to r4 of two servers (h11, h12, …); planes p1 and p2; all links at 100 Mb/s."""
    return load(
        DEMO,
        optical_drivers=plane_checks(),
        tor_drivers=rack_checks(),
        algorithms=dict.fromkeys(("hydra-bfs", "hydra-bfs+", "anytime"), lambda _fabric: None),
    ).fabric
