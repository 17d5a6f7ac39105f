"""Directories of results, each of which one run at a time writes into."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mininet_scenarios.stage.stage import ScenarioError


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Make a directory, if need be, and let no other run in for the length of the block.

    It may be moved or removed within the block. Raises ScenarioError if it can't be made, or
    another run holds it. File systems that lock no directories (NFS) let everybody in.
    """
    descriptor = _lock(directory)
    try:
        yield
    finally:
        os.close(descriptor)  # also unlocks


def _lock(directory: Path) -> int:
    """Descriptor of the directory that has this name once it is locked."""
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ScenarioError(f"{directory} can't be made: {error.strerror}") from error
        with suppress(FileNotFoundError):  # whoever held it has moved it meanwhile
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            if _is_locked(descriptor, directory):
                return descriptor
            os.close(descriptor)


def _is_locked(descriptor: int, directory: Path) -> bool:
    """Lock it; False if the name is another directory's by now, or nobody's."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ScenarioError(
            f"another run writes into {directory}: wait for its end, or name another directory"
        ) from error
    except OSError:
        return True
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), directory.stat())
    return False
