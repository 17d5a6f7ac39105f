"""Lock for one testbed per machine: Open vSwitch and the interface names exist once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mininet_scenarios.testbed.shell import TestbedError

LOCK_PATH: Final = Path("/run/lock/hydra-testbed.lock")


@contextlib.contextmanager
def testbed_lock(path: Path = LOCK_PATH, *, wait: bool = True) -> Iterator[None]:
    """Hold the machine-wide lock; wait for other holders, and print their names.

    Without ``wait``, raise TestbedError while there is another holder.

    A process whose ancestor holds the lock (a test session's child, or a process under ``flock``)
    shares the lock and goes straight on; so does a second call in one process.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _try_lock(descriptor):
            holders = _holders(descriptor)
            if holders & _own_line():
                yield
                return
            if not wait:
                raise TestbedError(f"a testbed is in use: {_describe(holders)}")
            print(f"waiting for the testbed: {_describe(holders)}", file=sys.stderr, flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # also unlocks


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holders(descriptor: int) -> set[int]:
    """Ids of processes listed by the kernel as holders (without waiting processes, marked
    ``->``).
    """
    inode = os.fstat(descriptor).st_ino
    holders = set()
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and int(fields[5].split(":")[2]) == inode:
            holders.add(int(fields[4]))
    return holders


def _own_line() -> set[int]:
    """Ids of this process and all ancestors."""
    line, pid = set(), os.getpid()
    while pid > 0:
        line.add(pid)
        pid = _parent(pid)
    return line


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def _describe(holders: set[int]) -> str:
    names = []
    for pid in sorted(holders):
        with contextlib.suppress(FileNotFoundError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            names.append(
                f"{LOCK_PATH} is held by process {pid} ({command.strip()}); `kill {pid}` ends it, "
                "and a testbed then cleans up"
            )
    return "; ".join(names) or f"{LOCK_PATH} is held by another process"
