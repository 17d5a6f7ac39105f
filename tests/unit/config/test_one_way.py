"""`circuits: unidirectional`: where allowed, and with which settings. With the real algorithms."""

from __future__ import annotations

import pytest
import yaml

from apps.process.configuration import load_configuration
from hydra.errors import ConfigError
from tests.unit.config.conftest import CONFIGS


@pytest.fixture
def changed(tmp_path):
    """Loads the shipped file with these changes."""

    def load(policy=None, **changes):
        document = yaml.safe_load((CONFIGS / "one-way.yaml").read_text()) | changes
        document["policy"] |= policy or {}
        file = tmp_path / "fabric.yaml"
        file.write_text(yaml.safe_dump(document))
        return load_configuration(file)

    return load


def problems(caught):
    return {problem.path: problem.message for problem in caught.value.problems}


def test_the_shipped_fabric_is_the_openflow_one_with_one_way_circuits():
    one_way, duplex = (
        load_configuration(CONFIGS / f"{name}.yaml").fabric for name in ("one-way", "openflow-only")
    )
    assert (one_way.one_way, duplex.one_way) == (True, False)
    assert one_way.ports == duplex.ports
    assert one_way.racks == duplex.racks


def test_planned_by_what_plans_light_paths(changed):
    assert changed({"algorithm": "b-matching"}).policy.algorithm == "b-matching"
    with pytest.raises(ConfigError) as caught:
        changed({"algorithm": "hydra-bfs+"})
    assert problems(caught)["policy.algorithm"].endswith(
        "and this fabric has one-way circuits: choose b-matching or helios"
    )
    with pytest.raises(ConfigError) as caught:
        changed(circuits="bidirectional")
    assert "the algorithm plans one-way light paths" in problems(caught)["policy.algorithm"]


def test_slots_are_for_duplex_circuits(changed):
    with pytest.raises(ConfigError) as caught:
        changed({"sharing": "slotted", "mode": "periodic"})
    assert "write `circuits: bidirectional`" in problems(caught)["policy.sharing"]
