"""REST resources, a file each: documents, their making from core data, and routes.

Each document is also an attribute of this package. A file is imported on first use: a client needs
few files, and never the configuration or the planner, which some files import.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from apps.rest.document import *
    from apps.rest.resources.deliveries import *
    from apps.rest.resources.demand import *
    from apps.rest.resources.devices import *
    from apps.rest.resources.events import *
    from apps.rest.resources.groups import *
    from apps.rest.resources.load import *
    from apps.rest.resources.problem_types import *
    from apps.rest.resources.reservations import *
    from apps.rest.resources.servers import *
    from apps.rest.resources.shapes import *
    from apps.rest.resources.topology import *
    from apps.rest.routing import Routes

_FILES: Final = (
    *("reservations", "groups", "problem_types", "servers", "topology", "deliveries", "events"),
    *("shapes", "load", "demand", "devices", "webhooks", "plans", "reconfigurations", "drift"),
    *("quotas", "quarantine", "policy", "decisions", "health", "replicas", "workers", "whoami"),
    *("conditions", "history", "explanations", "agents", "sharing", "schedule", "metrics"),
    *("docs", "dashboard"),
)
"""In the order of a client's first needs."""


def all_routes() -> "Iterator[Routes]":
    """The routes of all resources."""
    return (import_module(f"{__name__}.{file}").routes for file in _FILES)


def __getattr__(name: str) -> object:
    for file in _FILES:
        found = vars(import_module(f"{__name__}.{file}"))
        if name in found:
            globals()[name] = found[name]  # found directly by the next access
            return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
