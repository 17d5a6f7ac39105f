"""The demo fabric, possibly resized, for a benchmark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from apps.process.configuration import load_configuration
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.testbed import Testbed
from mininet_scenarios.testbed.links import USUAL_QUEUES, QueueSize

CONFIGS = Path(__file__).parents[1] / "configs"
CONFIG = CONFIGS / "demo.yaml"


@contextmanager
def demo_stage(
    optical_mbps: float | None = None,
    changes: Mapping[str, Any] | None = None,
    source: Path = CONFIG,
    queues: QueueSize = USUAL_QUEUES,
) -> Iterator[Stage]:
    """The stage of ``source``. Needs root, and exclusive use of the machine's testbed.

    ``optical_mbps`` slows down servers and circuits, and the electrical network to a tenth of this
    rate, for machines with other work. ``changes`` replace parts of the file.
    """
    document: dict[str, Any] = yaml.safe_load(source.read_text())
    document |= changes or {}
    if optical_mbps is not None:
        document["planes"][0]["rate_mbps"] = document["server_rate_mbps"] = optical_mbps
        document["electrical"]["rate_mbps"] = optical_mbps / 10
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "fabric.yaml"
        config.write_text(yaml.safe_dump(document, sort_keys=False))
        loaded = load_configuration(config)
        with Testbed(
            loaded.fabric,
            loaded.controller,
            fdb_age_s=loaded.policy.fdb_age_s,
            queues=queues,
        ) as testbed:
            yield Stage(testbed, loaded.fabric, document, Path(directory))
