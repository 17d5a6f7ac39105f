"""Clean-up of everything made by a testbed, found by mark or name."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.testbed import ovs, sysctl
from mininet_scenarios.testbed.shell import MEMBER_VARIABLE, TestbedError, ip_batch, run

PREFIX: Final = "hy"
"""Prefix of every bridge and interface of the testbed in the root namespace."""

_STATE, _FLAGS, _ENVIRONMENT_END = 0, 6, 48
"""Places in stat, from the field after the name."""
_EXITS, _IN_KERNEL = 0x4, 0x200000
"""PF_EXITING and PF_KTHREAD of the kernel."""

_Stats = Mapping[int, Sequence[str]]


def clean_up() -> None:
    """Remove all processes, bridges and interfaces of a testbed, and restore the kernel's settings.

    The clean-up is the same after a good end, after a failure half-way, and for the rest of a
    killed run. The caller holds the testbed lock. Repeating the clean-up is harmless.
    """
    _kill_members()
    if ovs.is_running():
        delete_bridges()
    _delete_interfaces()
    ovs.stop_if_started()
    sysctl.restore()
    shutil.rmtree(sysctl.STATE_DIR, ignore_errors=True)


def delete_bridges() -> None:
    """Remove our bridges from a running Open vSwitch.

    The database outlives the daemons: bridges of a killed run come back at the daemons' next start.
    """
    ovs.delete(name for name in ovs.bridges() if name.startswith(PREFIX))


def members() -> list[int]:
    """Ids of all processes started by a testbed, never including this process.

    Processes in other PID namespaces are skipped: their testbeds have locks of their own.
    """
    mark = f"{MEMBER_VARIABLE}=1".encode()
    ours = _pid_namespace("self")
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # ended meanwhile
                marked = mark in (entry / "environ").read_bytes().split(b"\0")
                if marked and _pid_namespace(entry.name) == ours:
                    found.append(int(entry.name))
    return found


def _pid_namespace(process: str) -> str:
    return str(Path("/proc", process, "ns/pid").readlink())


def _kill_members() -> None:
    """Kill all members, and return once all have ended and their resources are free.

    A process during exec shows no environment, and so does not look like a member: processes
    without an environment are looked at again. A process just before exec is missed, too: so there
    is a second look.
    """
    deadline = time.monotonic() + PATIENCE_S
    killed: set[int] = set()
    looks_without = 0
    while looks_without < 2:
        pids = members()
        killed.update(pids)
        stats = _stats()
        left = killed & _alive(stats)
        late = time.monotonic() > deadline
        if left and late:
            raise TestbedError(f"processes {left} survive SIGKILL: see `ps -o stat,wchan` for why")
        looks_without = 0 if left or (_being_executed(stats) and not late) else looks_without + 1
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _alive(stats: _Stats) -> set[int]:
    """Ids of all processes except zombies."""
    return {pid for pid, fields in stats.items() if fields[_STATE] not in "ZX"}


def _being_executed(stats: _Stats) -> bool:
    """True if a process is between the old and the new memory of an exec."""
    return any(
        fields[_ENVIRONMENT_END] == "0"
        and fields[_STATE] not in "ZX"
        and not int(fields[_FLAGS]) & (_EXITS | _IN_KERNEL)
        and os.access(f"/proc/{pid}/exe", os.X_OK)  # else the kernel hides the process's memory
        for pid, fields in stats.items()
    )


def _stats() -> _Stats:
    """By process, the fields of the stat file after the name, as in proc(5)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # ended meanwhile
                text = (entry / "stat").read_text(errors="replace")
                found[int(entry.name)] = text.rpartition(")")[2].split()
    return found


def _delete_interfaces() -> None:
    # An interface whose peer was in a server's namespace goes with the peer, some time after the
    # last process: a listed interface may be gone at its deletion, so look again.
    deadline = time.monotonic() + PATIENCE_S
    while doomed := _interfaces():
        try:
            ip_batch(f"link delete dev {name}" for name in doomed)
        except TestbedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _interfaces() -> list[str]:
    """Our interfaces in the root namespace; one end of each veth pair, since its deletion removes
    both ends.
    """
    ours: list[str] = []
    for link in json.loads(run(["ip", "-j", "link", "show"])):
        if link["ifname"].startswith(PREFIX) and link.get("link") not in ours:
            ours.append(link["ifname"])
    return ours
