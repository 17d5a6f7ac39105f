"""Bodies of the REST API, by resource. Units are in the names; racks and planes go by name.

A resource's module is imported when a name in it is asked for: a client needs few of them, and the
configuration's and the planner's, which some rest on, not at all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from apps.rest.models.base import *
    from apps.rest.models.conditions import *
    from apps.rest.models.controllers import *
    from apps.rest.models.decisions import *
    from apps.rest.models.demand import *
    from apps.rest.models.devices import *
    from apps.rest.models.drift import *
    from apps.rest.models.events import *
    from apps.rest.models.policy import *
    from apps.rest.models.problems import *
    from apps.rest.models.reconfigurations import *
    from apps.rest.models.reservations import *
    from apps.rest.models.topology import *
else:
    _MODULES: Final = (
        *("base", "topology", "reservations", "problems", "devices", "controllers"),
        *("demand", "reconfigurations", "events", "decisions", "drift", "conditions", "policy"),
    )
    """What a client needs first."""

    def __getattr__(name: str) -> object:
        for module in _MODULES:
            found = vars(import_module(f"{__name__}.{module}"))
            if name in found:
                globals()[name] = found[name]  # which the next one finds without this
                return found[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
