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
from tempfile import TemporaryDirectory

from hydra.errors import HydraError


@contextmanager
def journal_held(journal: str) -> Iterator[None]:
    """Hold the journal; the system releases the lock at any end of this process.

    Raises HydraError, with the holder's process id, if another controller has the journal.
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
                f"a controller{f' (process {holder})' if holder else ''} is at work on the journal "
                f"{journal}: stop it first; one for another fabric takes a journal (controller."
                "journal) and ports of its own"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def check_private(journal: str) -> None:
    """Raise HydraError if another user may read the journal, or write to it."""
    for file in (Path(journal), Path(f"{journal}-wal")):
        mode = stat.S_IMODE(file.stat().st_mode) if file.is_file() else 0
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise HydraError(
                f"{file} can be read by others (mode {mode:o}), and holds the keys of webhooks: "
                f"chmod 600 {file}, and replace webhooks whose keys may be known"
            )


@contextmanager
def beside(file: Path) -> Iterator[Path]:
    """A path to try operations on ``file``: in a temporary folder beside the file.

    Missing folders of ``file`` are missing there, too, so that their creation is tried. Raises
    HydraError, also for an OSError in the block.
    """
    try:
        folder = next(parent for parent in file.absolute().parents if parent.exists())
        if not folder.is_dir():
            raise HydraError(f"can't write {file}: {folder} is no folder")
        with TemporaryDirectory(prefix=".hydra-check-", dir=folder) as trial:
            yield Path(trial, file.absolute().relative_to(folder))
    except OSError as error:
        raise HydraError(
            f"can't write {file} ({error.strerror or error}): check the directory, its permissions "
            "and the free disk space"
        ) from error


def check_writable(path: str, *, streams: bool = False) -> None:
    """Raise HydraError if this user can't write the file, or create the file with its folders.

    With ``streams``, a terminal or a pipe is accepted.
    """
    file = Path(path)
    try:
        if file.is_file():
            file.open("ab").close()
        elif file.exists():
            # Not opened, as a pipe may have no reader.
            if not (streams and (file.is_char_device() or file.is_fifo())):
                raise HydraError(f"can't write {path}: not a regular file")
            if not os.access(file, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        else:
            with beside(file) as trial:
                trial.parent.mkdir(parents=True, exist_ok=True)
                trial.touch()
    except OSError as error:
        raise HydraError(f"can't write {path}: {error.strerror or error}") from error


def check_port(key: str, host: str, port: int) -> None:
    """Raise HydraError if no program could listen there; ``key``: the port's setting."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with closing(socket.socket(family, kind, protocol)) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        why = (
            "another program, perhaps a second controller, listens there: stop the program"
            if error.errno == errno.EADDRINUSE
            else f"{error.strerror or error}"
        )
        raise HydraError(f"can't listen on {host}:{port}: {why}, or change {key}") from error
