from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from drivers.registry import plane_checks, rack_checks
from hydra.config import Loaded, load
from hydra.errors import ConfigError, Problem

CONFIGS = Path(__file__).parents[3] / "configs"


def load_file(path: Path) -> Loaded:
    return load(
        path,
        optical_drivers={**plane_checks(), "any": lambda _plane: ()},
        tor_drivers={**rack_checks(), "any": lambda _rack: ()},
        algorithms=dict.fromkeys(
            ("anytime", "hydra-bfs", "hydra-bfs+", "static"), lambda _fabric: None
        ),
    )


@pytest.fixture
def demo() -> dict:
    """The demo configuration as plain data: a test changes the data and loads the result."""
    return yaml.safe_load((CONFIGS / "demo.yaml").read_text())


@pytest.fixture
def load_text(tmp_path) -> Callable[[str], Loaded]:
    def load_it(text: str) -> Loaded:
        path = tmp_path / "fabric.yaml"
        path.write_text(text)
        return load_file(path)

    return load_it


@pytest.fixture
def load_data(load_text) -> Callable[[dict], Loaded]:
    # Without aliases, which the dumper would make of shared lists.
    dumper = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})
    return lambda data: load_text(yaml.dump(data, Dumper=dumper, sort_keys=False))


@pytest.fixture
def problems_of(load_data) -> Callable[[dict], Sequence[Problem]]:
    def problems(data: dict) -> Sequence[Problem]:
        with pytest.raises(ConfigError) as caught:
            load_data(data)
        return caught.value.problems

    return problems
