"""Larger socket buffers, so that applications' demand shows in them (c-Through, 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hydra.errors import HydraError

_TCP_WMEM: Final = Path("/proc/sys/net/ipv4/tcp_wmem")
"""Least, first and largest send buffer of TCP sockets in this network namespace."""


@contextmanager
def send_buffers(octets: int, setting: Path = _TCP_WMEM) -> Iterator[None]:
    """Let new TCP sockets hold this much unsent; it takes memory only as far as it is filled.

    Both the first and the largest size are set: the kernel's own growth follows the rate that the
    network takes, which is the bottleneck's. Leaving the block restores them, unless somebody else
    has changed them. Raises HydraError.
    """
    try:
        before = setting.read_text(encoding="ascii")
        least = before.split()[0]
        ours = f"{least}\t{octets}\t{octets}\n"
        setting.write_text(ours, encoding="ascii")
    except OSError as error:
        raise HydraError(
            f"can't set {setting} ({error.strerror}): run the agent as root, or leave "
            "--socket-buffer-mb out"
        ) from error
    try:
        yield
    finally:
        if setting.read_text(encoding="ascii").split() == ours.split():
            setting.write_text(before, encoding="ascii")
