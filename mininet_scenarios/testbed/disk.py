"""A disk of a test's own, small enough to be filled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mininet_scenarios.testbed.shell import run


@contextmanager
def small_disk(directory: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a file system of ``size_bytes``, in memory, at the new folder ``directory``.

    Raises TestbedError if the mount fails.
    """
    directory.mkdir()
    run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(directory)])
    try:
        yield directory
    finally:
        run(["umount", "--lazy", str(directory)])
