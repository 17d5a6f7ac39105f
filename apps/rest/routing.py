"""Routes of a resource, as declared in the resource's file, without FastAPI.

API clients use the documents in the same files, and a batch system starts a client for each job.
:mod:`apps.rest.mounting` makes FastAPI's routes from the declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from apps.rest.access import Access
from apps.rest.problems import ProblemType
from hydra.access import Role

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method of a path, and the function that answers."""

    method: str
    path: str
    function: Callable[..., Any]
    tag: str | None
    """Section of the API's description."""
    access: Access
    problems: tuple[ProblemType, ...]
    """Possible answers besides success."""
    settings: Mapping[str, Any]
    """More arguments of FastAPI's route, by name."""


@dataclass(slots=True)
class Routes:
    """The routes of a resource.

    Annotations of the functions name their dependencies. The names are in
    :mod:`apps.rest.dependencies`, which a resource's file imports for the type checker alone.
    """

    prefix: str = ""
    tag: str | None = None
    """Section of the API's description."""
    also: frozenset[Role] = frozenset()
    """Roles that may use the routes, besides operators, and viewers if nothing changes."""
    declared: list[Route] = field(default_factory=list)

    def on(
        self,
        method: str,
        path: str = "",
        *problems: ProblemType,
        also: frozenset[Role] = frozenset(),
        public: bool = False,
        recorded: bool = True,
        **settings: Any,
    ) -> Callable[[_FunctionT], _FunctionT]:
        """Declare the decorated function as the route of ``method`` and ``path``.

        ``also``: more roles that may use the route; ``public`` and ``recorded``: see
        :class:`Access`.
        """
        readers = {Role.VIEWER} if method == "GET" else set()
        access = Access(self.also | also | readers | {Role.OPERATOR}, public, recorded)

        def declare(function: _FunctionT) -> _FunctionT:
            self.declared.append(
                Route(
                    method=method,
                    path=self.prefix + path,
                    function=function,
                    tag=self.tag,
                    access=access,
                    problems=problems,
                    settings=settings,
                )
            )
            return function

        return declare
