"""The measured repetitions of an experiment.

Each repetition is kept in a file in the directory of the results, so that repetitions of hours
survive an interruption, a complete run can be extended, and conclusions can be drawn again. Files
may be compressed by gzip (``raw-1.json.gz``).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from mininet_scenarios.experiments.frame import Experiment
from mininet_scenarios.experiments.scaling import Rates
from mininet_scenarios.stage.stage import ScenarioError

BEGUN: Final = "run.json"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Begun:
    """Common part of all repetitions of a run, and the time spent."""

    full: bool
    rates: Rates
    """Rates, measured or asked for once: repetitions of different scales would not compare."""
    seconds: float = 0.0
    """Wall time of all sittings together."""
    trace: str | None = None
    """File name of the trace, as asked for."""
    trace_sha256: str | None = None
    """Digest of the trace's contents; None: no trace, or a run made before digests were kept."""
    fabric: str | None = None
    """File name of the fabric, as asked for."""
    fabric_sha256: str | None = None

    def same_trace(self, name: str | None, sha256: str | None) -> bool:
        """True if the played trace is the given trace, wherever the file lies now."""
        if self.trace_sha256 is None:
            return self.trace == name
        return self.trace_sha256 == sha256


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    begun: Begun
    runs: tuple[T, ...]


def write(directory: Path, begun: Begun, runs: Sequence[object]) -> None:
    """Write all repetitions measured so far. Raises ScenarioError if a write fails."""
    write_json(directory / BEGUN, asdict(begun))
    for number, measured in enumerate(runs, start=1):
        if _found(directory, number) is not None:
            continue
        if not is_dataclass(measured) or isinstance(measured, type):
            name = type(measured).__name__
            raise ScenarioError(f"{name} is no dataclass, so JSON can't hold the measurement")
        write_json(_raw(directory, number), asdict(measured))


def count(directory: Path) -> int:
    """Number of repetitions in a directory; 0 for a missing directory."""
    number = 0
    while _found(directory, number + 1) is not None:
        number += 1
    return number


def read(directory: Path, experiment: Experiment[T]) -> Kept[T]:
    """All repetitions in a directory.

    Raises ScenarioError if a repetition is missing, or has a different form than this version's
    measurements.
    """
    measured: TypeAdapter[T] = TypeAdapter(get_type_hints(experiment.measure)["return"])
    with _understood(directory / BEGUN) as text:
        begun = TypeAdapter(Begun).validate_json(text)
    runs = []
    for number in range(1, count(directory) + 1):
        with _understood(_found(directory, number) or _raw(directory, number)) as text:
            runs.append(measured.validate_json(text))
    return Kept(begun, tuple(runs))


def write_json(path: Path, document: object) -> None:
    """Write ``document`` as JSON, completely or not at all. Raises ScenarioError if the write
    fails.
    """
    unfinished = path.with_name(path.name + ".part")
    text = json.dumps(document, indent=1, default=_as_list) + "\n"
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise ScenarioError(f"{path} can't be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _raw(directory: Path, number: int) -> Path:
    return directory / f"raw-{number}.json"


def _found(directory: Path, number: int) -> Path | None:
    plain = _raw(directory, number)
    paths = plain, plain.with_suffix(".json.gz")
    return next((path for path in paths if path.exists()), None)


@contextmanager
def _understood(path: Path) -> Iterator[str]:
    """A file's text; parse errors in the block become ScenarioError."""
    try:
        content = path.read_bytes()
        yield (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, ValidationError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ScenarioError(
            f"{path} is not what this version measures ({why}): run the experiment anew, without "
            "--continue"
        ) from error


def _as_list(value: object) -> object:
    """A set as a list, since JSON has no sets."""
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
