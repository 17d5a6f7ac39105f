"""REST resources, a file each: documents, their making from core data, and routes."""

from collections.abc import Iterator
from importlib import import_module
from typing import Final

from apps.rest.routing import Routes

_FILES: Final = (
    *("reservations", "groups", "problem_types", "servers", "topology", "deliveries", "events"),
    *("availability", "shapes"),
    *("load", "demand", "devices", "webhooks", "plans", "reconfigurations", "drift"),
    *("quotas", "quarantine", "policy", "decisions", "health", "replicas", "workers", "whoami"),
    *("conditions", "history", "explanations", "agents", "sharing", "schedule", "metrics"),
    *("docs", "dashboard"),
)
"""In the order of the API's description."""


def all_routes() -> Iterator[Routes]:
    """The routes of all resources."""
    return (import_module(f"{__name__}.{file}").routes for file in _FILES)
