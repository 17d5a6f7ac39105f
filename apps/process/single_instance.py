"""Keeps a second controller from starting beside the first on the same machine by mistake."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hydra.errors import HydraError


@contextmanager
def journal_held(journal: str) -> Iterator[None]:
    """Hold the journal: the system lets go of it when this process ends, however it ends.

    Raises HydraError, with the holder's process id, if another controller has it.
    """
    path = Path(f"{journal}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise HydraError(
            f"can't hold the journal {journal} ({error}): check the directory and its permissions"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            raise HydraError(
                f"another controller{f' (process {holder})' if holder else ''} is at work on "
                f"the journal {journal}: stop it first, or give this one a fabric, a journal and "
                "ports of its own"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def check_private(journal: str) -> None:
    """Raise HydraError if somebody else may read the journal, or write to it."""
    for file in (Path(journal), Path(f"{journal}-wal")):
        mode = stat.S_IMODE(file.stat().st_mode) if file.is_file() else 0
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise HydraError(
                f"{file} can be read by others (mode {mode:o}), and holds the keys of webhooks: "
                f"chmod 600 {file}, and make those webhooks anew whose keys may be known"
            )


def check_writable(path: str, *, streams: bool = False) -> None:
    """Raise HydraError if this user can't write the file, or make it with its folders.

    With ``streams``, a terminal or a pipe will do.
    """
    file = Path(path)
    there = next(one for one in (file, *file.absolute().parents) if one.exists())
    if there == file:
        is_stream = streams and (file.is_char_device() or file.is_fifo())
        why = None if file.is_file() or is_stream else "it is no regular file"
    else:
        why = None if there.is_dir() else f"{there} is no folder"
    if why is None and not os.access(there, os.W_OK):
        why = f"no permission to write {there}"
    if why is not None:
        raise HydraError(f"can't write {path}: {why}")


def check_port(key: str, host: str, port: int) -> None:
    """Raise HydraError if nobody could listen there; ``key`` is its place in the configuration."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with closing(socket.socket(family, kind, protocol)) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        why = (
            "another program, perhaps a second controller, listens there: stop it"
            if error.errno == errno.EADDRINUSE
            else f"{error.strerror or error}"
        )
        raise HydraError(f"can't listen on {host}:{port}: {why}, or change {key}") from error
