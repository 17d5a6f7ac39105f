"""Calls of the tools that build the testbed: few calls, with many changes each."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hydra.errors import HydraError
from mininet_scenarios.patience import PATIENCE_S

MEMBER_VARIABLE: Final = "HYDRA_TESTBED_MEMBER"
"""Environment variable of all processes of a testbed, for the clean-up."""

_KEPT_WAITING: Final = re.compile(r"^[^|\n]+\|\d+\|timeval\|WARN\|.*$", re.MULTILINE)
"""Log lines of Open vSwitch's tools on a machine too busy to give a tool the processor for a
second.
"""


class TestbedError(HydraError):
    """The emulated data plane can't be built, or a building tool failed."""

    __test__ = False  # not a test class, despite its name


def require_root() -> None:
    """Raise TestbedError for any other user, before anything is made, including the lock's file."""
    if os.geteuid():
        raise TestbedError(
            "Open vSwitch, interfaces and network namespaces need root: run this as root"
        )


def member_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a process that must end with the testbed."""
    return {**os.environ, **(extra or {}), MEMBER_VARIABLE: "1"}


def run(
    command: Sequence[str], *, stdin: str | None = None, complaint_is_failure: bool = False
) -> str:
    """Standard output of a command. Raises :class:`TestbedError` with the command's error output.

    ``complaint_is_failure``: for commands that complain on standard error and still return 0;
    complaints about a slow machine are ignored.
    """
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except FileNotFoundError as error:
        raise TestbedError(f"{command[0]} is not installed: run `make bootstrap`") from error
    except subprocess.TimeoutExpired as error:
        raise TestbedError(
            f"{command[0]} gave no answer for {PATIENCE_S:.0f} s: is ovs-vswitchd alive?"
        ) from error
    complains = complaint_is_failure and _KEPT_WAITING.sub("", done.stderr).strip()
    if done.returncode or complains:
        words = (done.stderr or done.stdout).strip()
        raise TestbedError(f"{' '.join(command[:6])} failed with {done.returncode}: {words}")
    return done.stdout


def ip_batch(lines: Iterable[str]) -> None:
    _batch(["ip", "-batch", "-"], lines)


def tc_batch(lines: Iterable[str], namespace_pid: int | None = None) -> None:
    """Run tc with ``lines``; ``namespace_pid``: a process in the network namespace to use."""
    enter = [] if namespace_pid is None else ["mnexec", "-a", str(namespace_pid)]
    _batch([*enter, "tc", "-batch", "-"], lines)


def _batch(command: Sequence[str], lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if text:
        run(command, stdin=text)
