"""Kernel settings of the testbed, and a file from which any later run can undo the changes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from apps.process.files import replacing

_LOG: Final = logging.getLogger(__name__)
STATE_DIR: Final = Path("/run/hydra-testbed")
_SAVED: Final = STATE_DIR / "sysctl.json"

_BUFFER_BYTES: Final = 8 * 1024 * 1024

_MINIMUM: Final = {
    # Userspace bridges read their ports in the thread that also takes flow-mods: while the thread
    # is busy, frames wait in these buffers (otherwise 5000 rules cost a flow hundreds of
    # retransmissions).
    "net.core.rmem_max": _BUFFER_BYTES,
    "net.core.rmem_default": _BUFFER_BYTES,
    # One socket sends for all ports: frames waiting in any port's queue are charged to the socket.
    "net.core.wmem_max": _BUFFER_BYTES,
    "net.core.wmem_default": _BUFFER_BYTES,
    # Frames between the ends of a cable wait for their processor in a queue shared by all cables,
    # whose drops no interface counts.
    "net.core.netdev_max_backlog": 10_000,
}
_EXACT: Final = {
    # The electrical network is a Linux bridge: no firewall of this machine may see the frames.
    "net.bridge.bridge-nf-call-iptables": 0,
    "net.bridge.bridge-nf-call-ip6tables": 0,
    "net.bridge.bridge-nf-call-arptables": 0,
}


def apply() -> None:
    """Raise the buffers and take the bridge off the firewall, remembering the previous values.

    The buffers are settings of the whole machine: inside a network namespace, they can't be raised.
    """
    before = {name: _read(name) for name in (*_MINIMUM, *_EXACT) if _path(name).exists()}
    wanted = {name: max(before[name], least) for name, least in _MINIMUM.items() if name in before}
    wanted |= {name: value for name, value in _EXACT.items() if name in before}
    changed = {name: before[name] for name, value in wanted.items() if value != before[name]}
    if not changed:
        return
    STATE_DIR.mkdir(parents=True, exist_ok=True)
    # The file keeps changes of earlier runs until a run restores them.
    earlier = json.loads(_SAVED.read_text()) if _SAVED.exists() else {}
    _save(changed | earlier)
    refused = [name for name in changed if not _try_write(name, wanted[name])]
    if refused:  # the usual case in a container
        _save({name: changed[name] for name in changed if name not in refused} | earlier)
        _LOG.warning(
            "%s can't be set here: expect losses while rules are pushed, or set them outside of "
            "this container to %s",
            ", ".join(refused),
            ", ".join(str(wanted[name]) for name in refused),
        )


def restore() -> None:
    """Restore the values changed by :func:`apply`, in this run or in a killed run."""
    if not _SAVED.exists():
        return
    for name, value in json.loads(_SAVED.read_text()).items():
        _try_write(name, value)
    _SAVED.unlink()


def lacking() -> dict[str, tuple[int, int]]:
    """Settings that are too small, as in a container that may not raise them.

    (value, least wanted value) by name. Settings missing in this network namespace are left out.
    """
    there = {name: least for name, least in _MINIMUM.items() if _path(name).exists()}
    return {name: (now, least) for name, least in there.items() if (now := _read(name)) < least}


def send_buffer_bytes() -> int:
    """Buffer size of a socket opened now."""
    return _read("net.core.wmem_default")


def _save(values: Mapping[str, int]) -> None:
    with replacing(_SAVED) as file:
        json.dump(values, file)


def _try_write(name: str, value: int) -> bool:
    try:
        _path(name).write_text(f"{value}\n")
    except PermissionError:
        return False
    return True


def _read(name: str) -> int:
    return int(_path(name).read_text())


def _path(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")
