"""Larger socket buffers, so that applications' demand shows in the buffers (c-Through, 4.1)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from apps.process.files import replacing
from hydra.errors import HydraError

LOG: Final = logging.getLogger("hydra.agent")
_TCP_WMEM: Final = Path("/proc/sys/net/ipv4/tcp_wmem")
"""Least, first and largest send buffer of TCP sockets in this network namespace."""
_NOTES: Final = Path("/run/hydra-agent")
"""Lost at a start of the machine, as are the settings of agents."""


@contextmanager
def send_buffers(
    octets: int, setting: Path = _TCP_WMEM, note: Path | None = None
) -> Iterator[None]:
    """Let new TCP sockets hold this much unsent; memory is used only as far as the buffers fill.

    Both the first and the largest size are set: the kernel's own growth follows the rate of the
    network, limited by the bottleneck. Leaving the block restores both sizes, unless another
    process has changed the setting. ``note`` keeps the sizes to restore, for the next agent if this
    agent is killed. Raises HydraError.
    """
    note = note or _note_of_this_namespace()
    try:
        found = setting.read_text(encoding="ascii")
        before = _noted(note, found) or found
        least = before.split()[0]
        ours = f"{least}\t{octets}\t{octets}\n"
        _write(note, before, [found, ours])
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
            with suppress(OSError):
                note.unlink()


def _note_of_this_namespace() -> Path:
    return _NOTES / f"tcp_wmem.{Path('/proc/self/ns/net').stat().st_ino}"


def _noted(note: Path, found: str) -> str | None:
    """The setting from before killed agents; None if ``found`` was not set by such agents."""
    try:
        noted = json.loads(note.read_text(encoding="ascii"))
        before, previous = str(noted["before"]), [str(limits).split() for limits in noted["set"]]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return before if found.split() in previous else None


def _write(note: Path, before: str, previous: list[str]) -> None:
    """Write the note before the setting changes from the first of ``previous`` to the last: an
    agent may be killed at any moment.
    """
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(note, 0o600) as file:
            json.dump({"before": before, "set": previous}, file)
    except OSError as error:
        LOG.warning(
            "can't write %s (%s): if the agent is killed, its send buffers stay",
            note,
            error.strerror,
        )
