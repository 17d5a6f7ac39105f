"""Demand from files: CSV, NPZ, NPY and JSON; matrices and lists of flows."""

from __future__ import annotations

import csv
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from hydra import foreign_json
from hydra.errors import PlanError
from hydra.model import DemandMatrix
from hydra.names import did_you_mean
from topology.problem import validate_demand

_FLOW_COLUMNS: Final = ("src", "dst", "mbps")
_RATE_KEYS: Final = ("mbps", "estimated_mbps")
"""Keys of a rate, in requests and in the output of ``hydra demand --json``."""


def read_demand(path: Path, racks: Sequence[str]) -> DemandMatrix:
    """The demand in a file, shape (N, N), in Mbps; N is the number of ``racks`` (their names).

    The ending shows the form: ``.csv``, ``.tsv`` or ``.txt``, ``.json``, ``.npz`` or ``.npy``. A
    matrix has a row for each sending rack in the order of ``racks``, or names its rows itself. A
    list of flows names racks, or numbers racks from 0 in the order of ``racks``; flows between the
    same two racks add up.

    Raises PlanError with the name of the file, and the wrong line or entry.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        known = ", ".join(_READERS)
        raise PlanError(f"{path}: the file name does not show the format: end the name in {known}")
    try:
        with np.errstate(over="ignore"):  # an infinite result is refused below
            return validate_demand(read(path, _Racks(racks)), len(racks))
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error
    except OSError as error:
        raise PlanError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PlanError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error


def read_flows(path: Path, racks: Sequence[str]) -> list[dict[str, Any]]:
    """The demand as ``{src, dst, mbps}``, racks by name; pairs without demand are left out."""
    demand = read_demand(path, racks)
    return [
        {"src": racks[src], "dst": racks[dst], "mbps": float(demand[src, dst])}
        for src, dst in np.argwhere(demand).tolist()
    ]


class _Racks:
    """Racks by name, or by position counted from 0."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._index: dict[object, int] = {str(i): i for i in range(len(names))}
        self._index |= {i: i for i in range(len(names))}
        self._index |= {name: i for i, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self._names)

    def knows(self, names: Sequence[str]) -> bool:
        """True if ``names`` has names of racks only."""
        return all(name in self._index for name in names)

    def find(self, name: object) -> int:
        key = name.strip() if isinstance(name, str) else name
        if isinstance(key, bool) or not isinstance(key, str | int) or key not in self._index:
            raise PlanError(
                f"no rack {key!r} among {len(self)}{did_you_mean(str(key), self._names)}"
            )
        return self._index[key]

    def sum_flows(self, flows: Iterable[tuple[str, object, object, object]]) -> DemandMatrix:
        """Add up (where, src, dst, mbps); ``where`` is for messages."""
        demand = np.zeros((len(self), len(self)))
        for where, src, dst, mbps in flows:
            try:
                demand[self.find(src), self.find(dst)] += _rate(mbps)
            except PlanError as error:
                raise PlanError(f"{where}: {error}") from error
        return demand

    def arrange(self, names: Sequence[object], matrix: ArrayLike) -> DemandMatrix:
        """The matrix with rows and columns named ``names``, in the order of the racks."""
        given = _numbers(matrix)
        order = [self.find(name) for name in names]
        if len(set(order)) < len(order):
            twice = next(name for i, name in enumerate(names) if order[i] in order[:i])
            raise PlanError(f"rack {twice!r} has two rows: add them up")
        if given.shape != (len(order), len(order)):
            raise PlanError(f"{len(order)} racks are named, but the matrix has shape {given.shape}")
        demand = np.zeros((len(self), len(self)))
        demand[np.ix_(order, order)] = given
        return demand


def _rate(value: object) -> float:
    """A rate in Mbps.

    Raises PlanError also for a negative or infinite rate: a sum could hide such rates.
    """
    refusal = PlanError(f"{value!r} is not a number of Mbps")
    if isinstance(value, bool) or not isinstance(value, str | int | float | np.number):
        raise refusal
    try:
        rate = float(value)
    except ValueError:
        raise refusal from None
    except OverflowError:
        rate = float("inf")
    if not 0 <= rate < float("inf"):
        raise PlanError(f"{rate} Mbps: entries must be finite and not negative")
    return rate


def _numbers(matrix: ArrayLike) -> DemandMatrix:
    if isinstance(matrix, np.ndarray) and np.iscomplexobj(matrix):
        raise PlanError("not a matrix of real numbers: the numbers are complex")
    try:
        return np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"not a matrix of numbers: {error}") from error


# --- text -----------------------------------------------------------------------------------


def _read_text(path: Path, racks: _Racks) -> ArrayLike:
    """A matrix, with or without names in its first row and column; or flows under a heading."""
    rows = _rows(path.read_text(encoding="utf-8-sig"))
    if not rows:
        raise PlanError("the file is empty")
    heading = [cell.lower() for cell in rows[0][1]]
    if set(_FLOW_COLUMNS) <= set(heading):
        return racks.sum_flows(_flow_rows(heading, rows[1:]))
    if all(map(_is_number, rows[0][1])):
        return _matrix_of([(line, cells) for line, cells in rows])
    named = not heading[0] or not any(map(_is_number, heading))
    if named and racks.knows(rows[0][1][1:]):
        return _named_matrix(rows, racks)
    if not named or len(rows) != len(heading):
        raise PlanError(
            f"line {rows[0][0]} is neither a row of numbers, nor the heading src,dst,mbps of a "
            "list of flows, nor an empty cell and the names of the racks"
        )
    return _named_matrix(rows, racks)


def _named_matrix(rows: Sequence[tuple[int, list[str]]], racks: _Racks) -> DemandMatrix:
    """The matrix of a table whose first row and first column name the racks."""
    columns, names = rows[0][1][1:], [cells[0] for _, cells in rows[1:]]
    for kind, other, given, wanted in (
        ("row", "column", names, columns),
        ("column", "row", columns, names),
    ):
        found = Counter(given)
        if missing := [name for name in wanted if name not in found]:
            raise PlanError(
                f"no {kind} for {', '.join(map(repr, missing))}, named as a {other}: give each "
                "rack a row and a column"
            )
        if len(found) < len(given):
            raise PlanError(f"rack {found.most_common(1)[0][0]!r} has two {kind}s: add them up")
    if columns != names:
        row, column = next(pair for pair in zip(names, columns, strict=True) if len({*pair}) > 1)
        raise PlanError(
            f"the rows have another order than the columns: {row!r} is in the place of {column!r}"
        )
    return racks.arrange(names, _matrix_of(_blank_diagonal_is_zero(rows[1:]), names))


def _rows(text: str) -> list[tuple[int, list[str]]]:
    """Non-empty lines with their numbers, cut at tabs, semicolons, commas or else white space."""
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    delimiter = next((d for d in "\t;," if d in first), None)
    if delimiter is None:
        cut: Iterable[list[str]] = (line.split() for line in lines)
    else:
        cut = csv.reader(lines, delimiter=delimiter)
    try:
        return [
            (number, [cell.strip() for cell in cells])
            for number, cells in enumerate(cut, start=1)
            if any(cell.strip() for cell in cells)
        ]
    except csv.Error as error:
        raise PlanError(f"not a table: {error}") from error


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _flow_rows(
    heading: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]]
) -> Iterable[tuple[str, object, object, object]]:
    src, dst, mbps = (heading.index(column) for column in _FLOW_COLUMNS)
    for line, cells in rows:
        if len(cells) != len(heading):
            raise PlanError(f"line {line} has {len(cells)} cells, the heading {len(heading)}")
        yield f"line {line}", cells[src], cells[dst], cells[mbps]


def _blank_diagonal_is_zero(
    rows: Iterable[tuple[int, Sequence[str]]],
) -> list[tuple[int, list[str]]]:
    """Rows of a matrix with names, without the names."""
    found = [(line, list(cells[1:])) for line, cells in rows]
    for position, (_, cells) in enumerate(found):
        if cells[position : position + 1] == [""]:
            cells[position] = "0"
    return found


def _matrix_of(
    rows: Sequence[tuple[int, Sequence[str]]], names: Sequence[str] = ()
) -> DemandMatrix:
    """Numbers of a table; ``names`` of columns are for messages."""
    width = len(rows[0][1])
    for line, cells in rows:
        if len(cells) != width:
            raise PlanError(f"line {line} has {len(cells)} numbers, line {rows[0][0]} has {width}")
    try:
        return np.array([cells for _, cells in rows], dtype=np.float64)
    except ValueError:
        line, column, cell = next(
            (line, column, cell)
            for line, cells in rows
            for column, cell in enumerate(cells)
            if not _is_number(cell)
        )
        where = f"line {line}, column {names[column] if names else column + 1}"
        found = f"{cell!r} is not a number of Mbps" if cell else "empty: write 0 for no demand"
        raise PlanError(f"{where}: {found}") from None


# --- JSON -----------------------------------------------------------------------------------


def _read_json(path: Path, racks: _Racks) -> ArrayLike:
    """A matrix; a list of flows; or an object with either, as below."""
    try:
        content = foreign_json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # also numbers of more digits than Python reads
        raise PlanError(f"is not JSON: {error}") from error
    if isinstance(content, dict):
        if "racks" in content and "mbps" in content:
            return racks.arrange(_a_list(content["racks"], "racks"), content["mbps"])
        content = content.get("demand", content.get("entries"))
    if isinstance(content, list) and content and isinstance(content[0], dict):
        return racks.sum_flows(_flow_objects(content))
    if isinstance(content, list):
        return _numbers(content) if content else np.zeros((len(racks), len(racks)))
    raise PlanError(
        "neither a list of rows, nor a list of flows {src, dst, mbps}, nor an object with "
        '"demand" or "entries" (such a list), or with "racks" (names) and "mbps" (rows)'
    )


def _a_list(value: object, key: str) -> list[object]:
    if not isinstance(value, list):
        raise PlanError(f'"{key}" is not a list')
    return value


def _flow_objects(flows: Iterable[Any]) -> Iterable[tuple[str, object, object, object]]:
    for position, flow in enumerate(flows):
        where = f"flow {position}"
        if not isinstance(flow, dict):
            raise PlanError(f"{where} is no object with src, dst and mbps")
        rate = next((key for key in _RATE_KEYS if key in flow), "mbps")
        missing = [key for key in ("src", "dst", rate) if key not in flow]
        if missing:
            raise PlanError(f"{where} has no {missing[0]!r}")
        yield where, flow["src"], flow["dst"], flow[rate]


# --- numpy ----------------------------------------------------------------------------------


def _read_npy(path: Path, _racks: _Racks) -> ArrayLike:
    try:
        loaded = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise PlanError(f"is no NPY file of numbers: {error}") from error
    if not isinstance(loaded, np.ndarray):
        raise PlanError("is no NPY file: end its name in .npz")
    return _numbers(loaded)


def _read_npz(path: Path, racks: _Racks) -> ArrayLike:
    """The arrays ``src``, ``dst`` and ``mbps``; or ``demand``, with ``racks`` or without."""
    arrays = _load_npz(path)
    if set(_FLOW_COLUMNS) <= arrays.keys():
        columns = [arrays[column].ravel().tolist() for column in _FLOW_COLUMNS]
        if len({len(column) for column in columns}) > 1:
            raise PlanError("src, dst and mbps are not equally long")
        flows = enumerate(zip(*columns, strict=True))
        return racks.sum_flows((f"flow {i}", src, dst, mbps) for i, (src, dst, mbps) in flows)
    if "demand" in arrays and "racks" in arrays:
        return racks.arrange(arrays["racks"].ravel().tolist(), arrays["demand"])
    others = [name for name in arrays if name not in {"racks", *_FLOW_COLUMNS}]
    if "demand" in arrays or (len(arrays) == 1 and others):
        return _numbers(arrays.get("demand", next(iter(arrays.values()))))
    raise PlanError(
        f"holds {', '.join(arrays) or 'nothing'}: demand, or src, dst and mbps, is needed"
    )


def _load_npz(path: Path) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise PlanError(f"is no NPZ file of numbers and names: {error}") from error


_READERS: Final[Mapping[str, Callable[[Path, _Racks], ArrayLike]]] = MappingProxyType(
    {
        ".csv": _read_text,
        ".tsv": _read_text,
        ".txt": _read_text,
        ".json": _read_json,
        ".npz": _read_npz,
        ".npy": _read_npy,
    }
)
