"""Stages on separate testbeds, with the rates of a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from apps.process.configuration import load_configuration
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage.stage import ScenarioError, Stage
from mininet_scenarios.testbed import Testbed
from mininet_scenarios.testbed.links import USUAL_QUEUES, QueueSize
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

BUILD_S: Final = 3.0
_CIRCUIT_MBPS: Final = 100.0
"""Rate of a circuit in :data:`DEFAULT_CONFIG`."""


@contextmanager
def stage_of(
    source: Path,
    scale: float,
    work_dir: Path,
    narrator: Narrator,
    *,
    debounce_ms: float = 0.0,
    queues: QueueSize = USUAL_QUEUES,
) -> Iterator[Stage]:
    """A testbed of the fabric in ``source`` with all rates multiplied by ``scale``.

    ``debounce_ms``: delay from light to carrier at a ToR.
    """
    config = scaled_config(scale, source)
    with stage_with(config, work_dir, narrator, queues, debounce_ms) as stage:
        yield stage


@contextmanager
def stage_with(
    config: Mapping[str, Any],
    work_dir: Path,
    narrator: Narrator,
    queues: QueueSize = USUAL_QUEUES,
    debounce_ms: float = 0.0,
) -> Iterator[Stage]:
    """A testbed of the fabric in ``config``, a parsed file.

    ``work_dir`` is made for logs and reports. Raises ScenarioError if ``work_dir`` exists.
    """
    try:
        work_dir.mkdir(parents=True)
    except FileExistsError as error:
        raise ScenarioError(
            f"{work_dir} exists: name a new directory for the stage's logs and reports"
        ) from error
    path = work_dir / "fabric.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    loaded = load_configuration(path)
    with ExitStack() as stack:
        with narrator.phase("building the testbed", BUILD_S):
            testbed = stack.enter_context(
                Testbed(
                    loaded.fabric,
                    loaded.controller,
                    debounce_ms=debounce_ms,
                    queues=queues,
                )
            )
        yield Stage(testbed, loaded.fabric, config, work_dir)


def times_its_rates(circuit_mbps: float) -> float:
    """Factor of the rates of :data:`DEFAULT_CONFIG` for circuits of the given rate."""
    return circuit_mbps / _CIRCUIT_MBPS


def scaled_config(scale: float, source: Path = DEFAULT_CONFIG) -> dict[str, Any]:
    """The fabric in ``source``, as a parsed file, with all rates multiplied by ``scale``.

    Scales the rates of servers, planes and the electrical network. Raises HydraError for a file
    with problems.
    """
    load_configuration(source)
    config: dict[str, Any] = yaml.safe_load(source.read_text(encoding="utf-8"))
    electrical = config["electrical"]
    return {
        **config,
        "planes": [
            {**plane, "rate_mbps": plane["rate_mbps"] * scale} for plane in config["planes"]
        ],
        "electrical": {**electrical, "rate_mbps": electrical["rate_mbps"] * scale},
        "server_rate_mbps": config["server_rate_mbps"] * scale,
    }
