"""Directories of results, each for a single run at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mininet_scenarios.stage.stage import ScenarioError


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Make a directory, if need be, and keep other runs out for the length of the block.

    The directory may be moved or removed within the block. Raises ScenarioError if the directory
    can't be made, or another run holds the directory. On file systems without locks on directories
    (NFS), every run is let in.
    """
    descriptor = _lock(directory)
    try:
        yield
    finally:
        os.close(descriptor)  # also unlocks


def _lock(directory: Path) -> int:
    """Lock the directory now named ``directory``; return its descriptor."""
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ScenarioError(f"{directory} can't be made: {error.strerror}") from error
        with suppress(FileNotFoundError):  # the previous holder has moved the directory meanwhile
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            if _is_locked(descriptor, directory):
                return descriptor
            os.close(descriptor)


def _is_locked(descriptor: int, directory: Path) -> bool:
    """Lock the descriptor; False if the name now belongs to a different directory or to none."""
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
