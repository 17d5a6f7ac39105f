"""Exclusive calls of a device: a change is several exchanges, and no other may come between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class HasLock(Protocol):
    _lock: threading.RLock


_SelfT = TypeVar("_SelfT", bound=HasLock)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def exclusive(
    method: Callable[Concatenate[_SelfT, _P], _T],
) -> Callable[Concatenate[_SelfT, _P], _T]:
    """Run ``method`` under its object's lock, so that one thread at a time uses the object."""

    @wraps(method)
    def call(self: _SelfT, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._lock:
            return method(self, *args, **kwargs)

    return call
