"""Replies of switches: thousands of requests at once, with a common wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final, Generic, TypeVar

_ValueT = TypeVar("_ValueT")
_LOCK: Final = threading.Lock()
"""Held for a few instructions. All replies share the lock: a lock and a condition for each, as in
the standard library's futures, take longer to make and to notify than everything else about an
answer.
"""


class Reply(Generic[_ValueT]):
    """A value that is set once, or never."""

    __slots__ = ("_is_done", "_then", "_value")

    def __init__(self) -> None:
        self._is_done = False
        self._value: _ValueT | None = None
        self._then: list[Callable[[Reply[_ValueT]], object]] = []

    def done(self) -> bool:
        return self._is_done

    def result(self) -> _ValueT:
        """The value. Raises LookupError if the value is not set yet."""
        if not self._is_done:
            raise LookupError("no switch has answered yet")
        return self._value  # type: ignore[return-value]  # set, perhaps to None

    def set_result(self, value: _ValueT) -> None:
        """Set the value and run the callbacks. Only the first value counts: later values are
        ignored.
        """
        with _LOCK:
            if self._is_done:
                return
            self._value, self._is_done = value, True
            then, self._then = self._then, []
        for callback in then:
            callback(self)

    def add_done_callback(self, callback: Callable[[Reply[_ValueT]], object]) -> None:
        """Call ``callback`` with the reply: now if the value is set, else in the thread that sets
        the value.
        """
        with _LOCK:
            if not self._is_done:
                self._then.append(callback)
                return
        callback(self)


class Replies:
    """Several replies with a common wait."""

    def __init__(self, replies: Collection[Reply[_ValueT]]) -> None:
        self._outstanding = len(replies)
        self._all_done = threading.Event()
        if not replies:
            self._all_done.set()
        for reply in replies:
            reply.add_done_callback(self._note)

    def _note(self, _reply: object) -> None:
        with _LOCK:
            self._outstanding -= 1
            last = not self._outstanding
        if last:
            self._all_done.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until all are done, or the time is up; True if all are done."""
        return self._all_done.wait(timeout_s)
