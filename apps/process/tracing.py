"""Traces of reconfigurations, if a collector is named; otherwise nothing is imported.

The settings are OpenTelemetry's own: ``OTEL_EXPORTER_OTLP_ENDPOINT`` names a collector, and the
other variables of the specification hold, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Final, Protocol

from hydra.errors import HydraError
from hydra.service import Reconfiguration

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Traces(Protocol):
    """Takes note of finished reconfigurations; never waits for the collector."""

    def reconfigured(self, ended: Reconfiguration) -> None: ...

    def close(self) -> None:
        """Send the remaining traces, for a few seconds at most."""


class NoTraces:
    """Traces of nothing, where no collector is named."""

    def reconfigured(self, ended: Reconfiguration) -> None:
        pass

    def close(self) -> None:
        pass


def traces(fabric: str, environment: Mapping[str, str] = os.environ) -> Traces:
    """Traces as set in the environment. Raises HydraError if the package is missing or unusable."""
    chosen = next((name for name in _ENDPOINTS if environment.get(name)), None)
    if chosen is None or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return NoTraces()
    try:
        otlp = import_module("apps.process.otlp")
    except ImportError as error:
        raise HydraError(
            f"{chosen} is set, but {error.name} is not installed: pip install "
            "'hydra-hybrid-network[tracing]', or take the variable away"
        ) from error
    try:
        made: Traces = otlp.OtlpTraces(fabric)
    except (ValueError, OSError) as error:
        raise HydraError(
            f"traces can't be sent with the variables OTEL_… ({error}): correct the variables, or "
            f"unset {chosen}"
        ) from error
    return made
