"""The file that holds the tokens' hashes: written by ``hydra token``, read by the controller."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from apps.process.files import replacing
from hydra.access import StoredToken
from hydra.errors import HydraError

LOG = logging.getLogger("hydra.tokens")


def read_tokens(path: Path) -> dict[str, StoredToken]:
    """The tokens by name; none if the file is missing. Raises HydraError for an invalid file.

    Errors quote nothing from the file except names of tokens.
    """
    try:
        records = json.loads(path.read_text(encoding="utf-8"))["tokens"]
        tokens = [StoredToken.from_record(record) for record in records]
    except FileNotFoundError:
        return {}
    except HydraError as error:
        raise HydraError(f"{path}: {error}") from None
    except OSError as error:
        raise HydraError(f"can't read the tokens in {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise HydraError(
            f"{path} is not a file of tokens ({type(error).__name__}): write the file with `hydra "
            "token`"
        ) from None
    return {token.name: token for token in tokens}


def write_tokens(path: Path, tokens: Iterable[StoredToken]) -> None:
    """Replace the file as a whole. Raises HydraError.

    Only the owner may read a new file. The group of an existing file keeps its permission to read.
    """
    text = json.dumps({"tokens": [token.to_record() for token in tokens]}, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Restricted from the first moment on.
        with replacing(path, 0o600, most=0o640) as file:
            file.write(text)
    except OSError as error:
        raise HydraError(f"can't write the tokens to {path}: {error.strerror}") from error


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Lock out other changes between reading and writing the file. Raises HydraError.

    Locks the folder, since each change replaces the file.
    """
    try:
        folder = next(parent for parent in path.resolve().parents if parent.exists())
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, RuntimeError) as error:
        # RuntimeError: a link to itself, before Python 3.13.
        raise HydraError(f"can't change the tokens in {path}: {error}") from error
    try:
        with suppress(OSError):  # NFS locks no folder: no protection there
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class TokenFile:
    """The tokens now in the file: a revoked token is refused at once."""

    def __init__(self, path: Path) -> None:
        """Raises HydraError if the file can't be used, or holds no token."""
        self._path = path
        self._lock = threading.Lock()
        self._version = self._look()
        self._known: Mapping[str, StoredToken] = read_tokens(path)
        if not self._known:
            raise HydraError(
                f"controller.tokens is {path}, a file without tokens: make a token with `hydra "
                f"token create NAME --role operator --file {path}`"
            )

    def _look(self) -> tuple[int, int, int] | None:
        try:
            seen = self._path.stat()
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns, seen.st_size

    def known(self) -> Mapping[str, StoredToken]:
        """Tokens by name. If the file breaks meanwhile, the last tokens stay, and the log reports
        the error.
        """
        version = self._look()
        with self._lock:
            if version != self._version:
                self._version = version
                try:
                    self._known = read_tokens(self._path)
                except HydraError as error:
                    LOG.error("%s; the tokens read before still count", error)
            return self._known
