"""Algorithms, drivers and experiments by name, from HydRA and from other packages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TypeVar, cast

from hydra.errors import HydraError

_T = TypeVar("_T")


class Unusable(HydraError):
    """An unusable contribution: the message has the name, the reason, and the remedy."""


class Places(Mapping[str, _T]):
    """Objects by name, each at a place ``module`` or ``module:object``.

    A module is imported on the first access to its object, since some modules import large
    packages.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> _T:
        return cast(_T, EntryPoint(name, self._places[name], "").load())

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Derived(Mapping[str, _T]):
    """A value for each of ``names``, made on access."""

    def __init__(self, names: Collection[str], make: Callable[[str], _T]) -> None:
        self._names, self._make = names, make

    def __getitem__(self, name: str) -> _T:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_all_points = cache(entry_points)
"""Read once: metadata of all packages take 10 ms of a controller's start."""


def points_of(group: str) -> EntryPoints:
    """Entry points of a group, from all installed packages."""
    return _all_points().select(group=group)


class Contributions(Mapping[str, _T]):
    """Objects of a kind by name, from HydRA first, then from other packages; loaded on access.

    ``refused(name, why)`` replaces an unusable contribution; all other names work. A name from two
    packages, or from a package and HydRA, is unusable.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        ours: Mapping[str, _T],
        *,
        flaw: Callable[[str, object], str | None],
        refused: Callable[[str, str], _T],
        by_place: bool = False,
    ) -> None:
        """``group``: group of the entry points. ``flaw(name, found)``: reason why an object is
        unsuitable, or None. ``by_place``: a name may also be a place, ``module:object``.
        """
        self._kind, self._group, self._ours = kind, group, ours
        self._flaw, self._refused, self._by_place = flaw, refused, by_place
        self._made: dict[str, _T] = {}

    @cached_property
    def _points(self) -> Mapping[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for point in sorted(points_of(self._group), key=lambda point: point.name):
            found.setdefault(point.name, []).append(point)
        return found

    def __getitem__(self, name: str) -> _T:
        if name not in self:
            raise KeyError(name)
        if name in self._ours and name not in self._points:
            return self._ours[name]
        if name not in self._made:
            try:
                self._made[name] = self._loaded(name)
            except Unusable as error:
                self._made[name] = self._refused(name, str(error))
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        placed = self._by_place and isinstance(name, str) and ":" in name
        return placed or name in self._ours or name in self._points

    def __iter__(self) -> Iterator[str]:
        yield from self._ours
        yield from (name for name in self._points if name not in self._ours)

    def __len__(self) -> int:
        return len({*self._ours, *self._points})

    def _loaded(self, name: str) -> _T:
        """Load an object of another package. Raises Unusable."""
        points = self._points.get(name) or [EntryPoint(name, name, self._group)]
        if name in self._ours or len(points) > 1:
            givers = [f"{point.value}{_package(point)}" for point in points]
            raise Unusable(
                f"{self._kind} {name} can't be used: {' and '.join(givers)} "
                f"{'has' if len(points) == 1 else 'have'} the name{_ours(name in self._ours)}; "
                f"rename the entry point in {self._group}, or uninstall the package"
            )
        (point,) = points
        found = load_point(self._kind, point)
        if (problem := self._flaw(name, found)) is not None:
            raise _unusable(self._kind, point, problem)
        return cast(_T, found)


def load_point(kind: str, point: EntryPoint) -> object:
    """Load the object of an entry point. Raises Unusable."""
    if EntryPoint.pattern.match(point.value) is None:
        raise _unusable(kind, point, "the name is not written as module:object")
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # an import may raise anything
        raise _unusable(kind, point, f"{type(error).__name__}: {error}") from error


def _unusable(kind: str, point: EntryPoint, problem: str) -> Unusable:
    if point.name == point.value:
        remedy = "make the module importable (pip install, PYTHONPATH), or repair it"
        return Unusable(f"{kind} {point.name} can't be loaded ({problem}): {remedy}")
    return Unusable(
        f"{kind} {point.name} can't be loaded from {point.value}{_package(point)} ({problem}): "
        f"mend or uninstall that package, or choose another {kind}"
    )


def _package(point: EntryPoint) -> str:
    return "" if point.dist is None else f" of package {point.dist.name}"


def _ours(ours: bool) -> str:
    return " of one of HydRA's own" if ours else ", each"
