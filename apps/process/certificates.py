"""TLS contexts of PEM files, with renewal of the files while the process runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from hydra.errors import HydraError

LOG: Final = logging.getLogger("hydra.certificates")
_Context = TypeVar("_Context")
_State = tuple[tuple[int, ...] | None, ...]


class Renewable(Generic[_Context]):
    """A context of PEM files, made anew after a change of the files.

    If the new files can't be used (a half-written file, a key that does not match), the old context
    stays. For a single thread.
    """

    def __init__(self, paths: Sequence[str], make: Callable[[], _Context]) -> None:
        """``make`` reads the files, and raises HydraError for unusable files."""
        self._paths = paths
        self._make = make
        self._seen = self._state()
        self._context = make()
        self._refused = False

    def context(self) -> _Context:
        """For the next connection."""
        now = self._state()
        if now == self._seen:
            return self._context
        self._seen = now
        files = ", ".join(self._paths)
        try:
            self._context = self._make()
        except HydraError as error:
            if not self._refused:
                LOG.warning("%s. The earlier content of %s stays in use", error, files)
            self._refused = True
        else:
            LOG.info("new connections use %s as renewed", files)
            self._refused = False
        return self._context

    def _state(self) -> _State:
        return tuple(map(_state, self._paths))


def _state(path: str) -> tuple[int, ...] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
