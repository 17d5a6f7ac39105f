"""Calls of the tools that build the testbed: seldom, with many changes at once."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hydra.errors import HydraError
from mininet_scenarios.patience import PATIENCE_S

MEMBER_VARIABLE: Final = "HYDRA_TESTBED_MEMBER"
"""Variable in the environment of all processes of a testbed, by which a clean-up finds them."""

_KEPT_WAITING: Final = re.compile(r"^[^|\n]+\|\d+\|timeval\|WARN\|.*$", re.MULTILINE)
"""What tools of Open vSwitch log where a busy machine gave them no processor for a second."""


class TestbedError(HydraError):
    """The emulated data plane can't be built, or a tool that builds it failed."""

    __test__ = False  # not a test class, despite its name


def require_root() -> None:
    """Raise TestbedError for another user, before anything is made, the lock's file among it."""
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
    """Standard output of a command. Raises :class:`TestbedError` with its words if it fails.

    ``complaint_is_failure`` is for commands that complain on standard error and still return 0:
    of anything but that the machine is slow.
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
    """Run tc with these lines; ``namespace_pid``: in the network namespace of this process."""
    enter = [] if namespace_pid is None else ["mnexec", "-a", str(namespace_pid)]
    _batch([*enter, "tc", "-batch", "-"], lines)


def _batch(command: Sequence[str], lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if text:
        run(command, stdin=text)
