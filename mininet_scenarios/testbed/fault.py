"""A fault of an emulated optical switch, ordered from a shell."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mininet_scenarios.emulators.admin import AdminClient, AdminError
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.testbed import sysctl
from mininet_scenarios.testbed.shell import TestbedError

CLEAR: Final = "clear"
CLOSE, OPEN = "close", "open"
ORDERS: Final = (CLEAR, CLOSE, OPEN, *(kind.value for kind in FaultKind))


def order_fault(
    where: str, order: str, port: int | None, *, times: int | None, delay_s: float
) -> None:
    """Order a fault of an emulated optical switch.

    ``where`` is a plane of the testbed on this machine, or an emulator's control socket as
    HOST:PORT. ``order`` is a name in :data:`ORDERS`; ``close`` and ``open`` are for the shutter of
    ``port``. Raises TestbedError.
    """
    if (order in (CLOSE, OPEN)) != (port is not None):
        raise TestbedError(f"{CLOSE} and {OPEN} need a PORT, other faults take none")
    admin = AdminClient(*_control_socket(where))
    try:
        if port is not None:
            admin.shutter(port, closed=order == CLOSE)
        elif order == CLEAR:
            admin.clear()
        else:
            admin.fault(FaultKind(order), times=times, delay_s=delay_s)
    except AdminError as error:
        raise TestbedError(f"{error}") from error


def _control_socket(where: str) -> tuple[str, int]:
    host, colon, number = where.rpartition(":")
    if not colon:
        return _of_plane(where)
    if not number.isdigit():
        raise TestbedError(f"{where!r} is neither a plane nor HOST:PORT")
    return host.strip("[]"), int(number)


def _of_plane(plane: str) -> tuple[str, int]:
    """The control socket, as the emulator of the running testbed wrote into its log."""
    logs = {log.stem.removeprefix("ocs-"): log for log in sysctl.STATE_DIR.glob("ocs-*.log")}
    if plane not in logs:
        planes = f"the testbed has {', '.join(sorted(logs))}" if logs else "no testbed is up"
        raise TestbedError(f"no plane {plane!r} here: {planes}")
    host, _, number = _admin_address(logs[plane]).rpartition(":")
    return host.strip("[]"), int(number)


def _admin_address(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    for line in reversed(lines):
        words = line.split()
        if words[:1] == ["listening"] and "admin" in words:
            return words[words.index("admin") + 1]
    raise TestbedError(f"the emulator is not yet listening: see {log}")
