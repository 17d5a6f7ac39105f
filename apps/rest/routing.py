"""Routes of a resource, as its file declares them: without FastAPI.

Clients of the API read documents of the same files, and a batch system starts such a client for
each job. :mod:`apps.rest.mounting` makes FastAPI's routes of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from apps.rest.problems import ProblemType

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path, and the function that answers it."""

    method: str
    path: str
    function: Callable[..., Any]
    tag: str | None
    """Section of the API's description."""
    problems: tuple[ProblemType, ...]
    """What it may answer besides success."""
    settings: Mapping[str, Any]
    """More arguments of FastAPI's route, by name."""


@dataclass(slots=True)
class Routes:
    """The routes of a resource.

    Functions name in their annotations what they ask for. These names are in
    :mod:`apps.rest.asking`, which a resource's file imports for the type checker alone.
    """

    prefix: str = ""
    tag: str | None = None
    """Section of the API's description, unless a route has another one."""
    declared: list[Route] = field(default_factory=list)

    def on(
        self,
        method: str,
        path: str = "",
        *problems: ProblemType,
        tag: str | None = None,
        **settings: Any,
    ) -> Callable[[_FunctionT], _FunctionT]:
        """Declare the decorated function as the route of ``method`` and ``path``."""

        def declare(function: _FunctionT) -> _FunctionT:
            whole = self.prefix + path
            route = Route(method, whole, function, tag or self.tag, problems, settings)
            self.declared.append(route)
            return function

        return declare
