"""Files: a check of existence, and files written atomically."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO


def is_there(path: Path | str) -> bool:
    """True for a file or folder; False also for a name too long for a file."""
    try:
        return Path(path).exists()
    except OSError:
        return False


@contextmanager
def replacing(path: Path, mode: int = 0o666, most: int = 0o7777) -> Iterator[TextIO]:
    """A file that replaces ``path`` once complete, with the owner and mode of ``path``.

    If ``path`` is a link, the file replaces the link's target; a pipe or device is written
    directly. A new file has ``mode``, less the umask; an existing file keeps the bits of its mode
    in ``most``.
    """
    try:
        before = path.stat()
    except FileNotFoundError:
        before = None
    if before is not None and not stat.S_ISREG(before.st_mode):
        with path.open("w", encoding="utf-8") as file:
            yield file
        return
    target = path.resolve()
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if before is not None:
                with suppress(PermissionError):
                    os.fchown(handle, before.st_uid, before.st_gid)
                os.fchmod(handle, stat.S_IMODE(before.st_mode) & most)
            yield file
            file.flush()
            os.fsync(handle)
        part.replace(target)
        sync_folder(target)
    except OSError as error:
        if error.filename in {None, str(part)}:
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def making(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A new file, complete or removed: removed if the block fails, or the disk.

    Raises FileExistsError if the name is taken.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
        sync_folder(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Make the name of a new or moved file outlive a loss of power.

    Not every file system can; the content is written all the same.
    """
    with suppress(OSError):
        handle = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def give_to(owner: os.stat_result, *paths: Path) -> None:
    """As root, give files to the owner of another file or folder; else do nothing.

    The folder's owner may have put links in place of the files: links are not followed.
    """
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
