"""Backups of a controller's memory, and support bundles for reports of problems."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import platform
import re
import stat
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from apps.journal.opening import looked_into
from apps.journal.sqlite import SqliteJournal, copy_journal, restored_path, set_aside
from apps.process.configuration import load_configuration
from apps.process.files import give_to, making, sync_folder
from apps.process.single_instance import journal_held
from apps.tools import migration
from drivers.credentials import secret
from hydra import __version__
from hydra.config import Loaded
from hydra.config.source import YamlError, parse_yaml
from hydra.errors import HydraError
from hydra.journal import Kind
from hydra.model import Login
from hydra.settings import ControllerSettings

_JOURNAL: Final = "journal.db"
_CONFIGURATION: Final = "fabric.yaml"
_TOKENS: Final = "tokens.json"
_MANIFEST: Final = "manifest.json"
_SECRET_KEY: Final = re.compile(r"pass|secret|token|key|community|login|credential", re.IGNORECASE)
_SECRET_TEXT: Final = re.compile(
    r"\bhydra_[A-Za-z0-9][A-Za-z0-9.-]*_[\w-]{43}(?![\w-])"  # tokens, revoked tokens included
    r"|(?i:bearer)\s+\S+"
    r"|(?i:\b(?:password|passwd|secret|token|community)\b[\"']?\s*[=:]\s*)[\"']?[^\s\"',}]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    re.DOTALL,
)
_HIDDEN: Final = "(left out)"
_LOG_TAIL_BYTES: Final = 4 * 1024 * 1024


class ArchiveError(HydraError):
    """A backup can't be made, or a file is not HydRA's backup."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup's description of itself."""

    fabric: str
    release: str
    created_unix_s: float


def back_up(loaded: Loaded, target: Path) -> Backup:
    """Write the journal, the configuration and the tokens' hashes to ``target``, a new .tar.gz.

    The controller may run meanwhile: the copy shows a single moment. Raises HydraError.
    """
    about = Backup(loaded.fabric.name, __version__, time.time())
    with TemporaryDirectory() as folder:
        copy = Path(folder) / _JOURNAL
        _copy(loaded.controller, copy)
        files = {_JOURNAL: copy.read_bytes(), _CONFIGURATION: Path(loaded.source).read_bytes()}
    if loaded.controller.tokens is not None and Path(loaded.controller.tokens).is_file():
        files[_TOKENS] = Path(loaded.controller.tokens).read_bytes()
    files[_MANIFEST] = json.dumps(
        {"fabric": about.fabric, "release": about.release, "created_unix_s": about.created_unix_s}
    ).encode()
    _write(target, files)
    return about


def _copy(settings: ControllerSettings, target: Path) -> None:
    """Write the journal to a new file, from SQLite or etcd."""
    if settings.etcd is not None:
        with looked_into(settings) as source, closing(SqliteJournal(target)) as copy:
            migration.copy(source, copy)
        return
    journal = Path(settings.journal)
    if not journal.is_file():
        raise ArchiveError(
            f"there is no journal {journal}: run the command where the controller "
            "runs, since a relative controller.journal starts from its working directory"
        )
    copy_journal(journal, target)


def look(loaded: Loaded, source: Path) -> Backup:
    """Description of a restorable backup. Raises the errors of :func:`restore`."""
    about, _ = _backup(loaded, source)
    if loaded.controller.etcd is None:
        with journal_held(loaded.controller.journal):
            pass
    return about


def restore(loaded: Loaded, source: Path) -> tuple[Backup, Path | None]:
    """Put the journal of a backup in place; returns the backup and the former journal's new path.

    With etcd, the prefix must hold no journal; the former journal's path is None. Raises
    HydraError, without any change, if a controller uses the journal, if the backup is of a
    different fabric, or if the file is no backup.
    """
    about, journal = _backup(loaded, source)
    if loaded.controller.etcd is not None:
        with TemporaryDirectory() as folder, migration.etcd_journal(loaded.controller) as target:
            copy = Path(folder) / _JOURNAL
            copy.write_bytes(journal)
            with closing(SqliteJournal(copy)) as held:
                migration.copy(held, target)
        return about, None
    with journal_held(loaded.controller.journal):
        return about, _put_in_place(journal, Path(loaded.controller.journal))


def _backup(loaded: Loaded, source: Path) -> tuple[Backup, bytes]:
    """Description and journal of a backup of this fabric. Raises HydraError."""
    files = _read(source)
    if not {_JOURNAL, _MANIFEST} <= files.keys():
        raise ArchiveError(f"{source} is no backup of a controller, without a {_JOURNAL}")
    try:
        about = Backup(**json.loads(files[_MANIFEST]))
    except (ValueError, TypeError) as error:
        raise ArchiveError(f"{source} is no backup of this release ({error})") from error
    if about.fabric != loaded.fabric.name:
        raise ArchiveError(
            f"{source} is a backup of fabric {about.fabric!r}, not of {loaded.fabric.name!r}: "
            "give the configuration of the backup"
        )
    return about, files[_JOURNAL]


def _put_in_place(content: bytes, journal: Path) -> Path | None:
    """Replace the file ``journal``, for the same user; returns the former journal's new path.

    A link is followed. After an interruption, the path has the former journal, the new journal, or
    a file refused by the next start.
    """
    try:
        path = journal.resolve()
        restored = restored_path(path)
        owner = next(file for file in (path, restored, path.parent) if file.exists()).stat()
    except (OSError, RuntimeError) as error:
        # RuntimeError: a circular link, before Python 3.13.
        raise ArchiveError(f"{journal} can't be written: {error}") from error
    fresh = path.with_name(f"{path.name}.restoring")
    parts = [Path(f"{fresh}{end}") for end in ("", "-wal", "-shm")]
    try:
        for part in parts:  # left by a killed restoration
            part.unlink(missing_ok=True)
        with making(fresh) as file:
            file.write(content)
        SqliteJournal(fresh).close()  # raises for a file of an unknown format
        give_to(owner, fresh, Path(f"{journal}.lock"))  # the controller may run as another user
        fresh.replace(restored)
        sync_folder(path)  # the path is known before the journal is away
        kept = set_aside(path)
        sync_folder(path)  # and not beside a foreign write-ahead log
        restored.replace(path)
        sync_folder(path)
    except OSError as error:
        raise ArchiveError(f"{journal} can't be written: {error.strerror}") from error
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    return kept


def support_bundle(
    config: Path,
    target: Path,
    answers: Mapping[str, str],
    log: Path | None,
    warn: Callable[[str], None] = lambda _words: None,
) -> list[str]:
    """Write the contents of a problem report to ``target``, a new .tar.gz, without secrets.

    ``answers``: the controller's answers, by file name. Returns the names in the bundle. ``warn``
    gets the reason for a missing configuration or journal. Raises HydraError.
    """
    texts = {"system.json": _json(_system()), **answers}
    with suppress(OSError, ValueError, YamlError):  # else a warning follows below
        texts["configuration.yaml"] = redacted_configuration(config.read_text("utf-8"))
    known: set[str] = set()
    try:
        loaded = load_configuration(config)
    except HydraError as error:
        texts["configuration.txt"] = str(error)
        warn(
            "the configuration can't be used, so the bundle has no journal; passwords of devices "
            f"and keys of webhooks may be in the bundle's other files: {error}"
        )
    else:
        known = _known_secrets(loaded)
        known |= _add_journal(texts, loaded.controller, warn)
    if log is not None:
        try:
            text = _tail(log).decode("utf-8", "replace")
        except OSError as error:
            raise ArchiveError(f"the log {log} can't be read: {error.strerror}") from error
        texts["log.txt"] = text
    _write(target, {name: hide(text, known).encode() for name, text in texts.items()})
    return sorted(texts)


def _tail(log: Path) -> bytes:
    """The end of a log. Raises OSError, also for a pipe: reading might never end."""
    handle = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file: copy the content into a file")
        file.seek(max(0, status.st_size - _LOG_TAIL_BYTES))
        return file.read(_LOG_TAIL_BYTES)


def _add_journal(
    texts: dict[str, str], settings: ControllerSettings, warn: Callable[[str], None]
) -> set[str]:
    """Add the journal's last entries, or the reason for their absence. Returns the keys and
    addresses of webhooks in the journal.
    """
    if settings.etcd is None and not Path(settings.journal).is_file():
        return set()
    try:
        with looked_into(settings) as opened:
            kinds = (Kind.ENTRY, Kind.HISTORY)
            kept = {kind: opened.records(kind, newest=500) for kind in kinds}
            hooks = opened.records(Kind.WEBHOOK)
    except HydraError as error:
        texts["journal.txt"] = str(error)
        warn(
            "the journal is not in the bundle; keys and addresses of webhooks may be in the "
            f"bundle's other files: {error}"
        )
        return set()
    texts["journal.json"] = _json({kind.value: records for kind, records in kept.items()})
    return {str(hook[key]) for hook in hooks for key in ("secret", "url")}


def _known_secrets(loaded: Loaded) -> set[str]:
    """Readable passwords of devices and of etcd's user."""
    fabric, known = loaded.fabric, set()
    logins = [plane.login for plane in fabric.planes] + [rack.tor.login for rack in fabric.racks]
    etcd = loaded.controller.etcd
    if etcd is not None and etcd.username is not None:
        logins.append(Login(etcd.username, etcd.password_env, etcd.password_file))
    for login in filter(None, logins):
        with suppress(HydraError):
            known.add(secret("", login))
    return known


def _system() -> dict[str, Any]:
    packages = {
        found.metadata["Name"]: found.version
        for found in metadata.distributions()
        if found.metadata["Name"]
    }
    return {
        "hydra": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": dict(sorted(packages.items())),
    }


def redacted_configuration(text: str) -> str:
    """The configuration without the values of keys for secrets or paths of secrets."""
    return yaml.safe_dump(_without_secrets(parse_yaml(text).data), sort_keys=False)


def _without_secrets(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: _HIDDEN if _SECRET_KEY.search(str(key)) else _without_secrets(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(inner) for inner in value]
    return hide(value) if isinstance(value, str) else value


def hide(text: str, known: Iterable[str] = ()) -> str:
    """``text`` without known secrets, and without recognisable tokens, passwords and keys."""
    for value in sorted(filter(None, known), key=len, reverse=True):
        for written in (value, json.dumps(value)[1:-1]):
            text = text.replace(written, _HIDDEN)
    return _SECRET_TEXT.sub(_HIDDEN, text)


def _json(document: object) -> str:
    return json.dumps(document, indent=1)


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    """Write the files, readable by the owner alone: a backup has the hashes of tokens.

    If the disk is full, nothing is left: half a backup would block the name for the next backup.
    """
    try:
        with making(target) as sink, tarfile.open(fileobj=sink, mode="w:gz") as archive:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
                archive.addfile(entry, io.BytesIO(content))
    except FileExistsError as error:
        raise ArchiveError(f"{target} exists already: choose another name") from error
    except OSError as error:
        raise ArchiveError(f"{target} can't be written: {error.strerror}") from error


def _read(source: Path) -> dict[str, bytes]:
    """Contents of the files in a backup. Raises ArchiveError, also for a wrong checksum at the end
    of the compressed file: tarfile ignores the checksum.
    """
    try:
        whole = gzip.decompress(source.read_bytes())
        with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as archive:
            return {
                member.name: content.read()
                for member in archive
                if (content := archive.extractfile(member)) is not None
            }
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        why = getattr(error, "strerror", None) or error
        raise ArchiveError(
            f"{source} can't be read as a backup ({why}): give a file of `hydra backup`"
        ) from error
