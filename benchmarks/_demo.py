"""The demo fabric, built for a benchmark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from apps.configuration import load_configuration
from mininet_scenarios.stage import Stage
from mininet_scenarios.testbed import Testbed

CONFIG = Path(__file__).parents[1] / "configs" / "demo.yaml"


@contextmanager
def demo_stage() -> Iterator[Stage]:
    """Needs root, and the machine's testbed for itself."""
    loaded = load_configuration(CONFIG)
    with (
        tempfile.TemporaryDirectory() as directory,
        Testbed(loaded.fabric, loaded.controller, fdb_age_s=loaded.policy.fdb_age_s) as testbed,
    ):
        document = yaml.safe_load(CONFIG.read_text())
        yield Stage(testbed, loaded.fabric, document, Path(directory))
