"""Traffic of an MPI job: places of its ranks, and pairs that talk."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hydra.errors import HydraError

_COMMENT: Final = re.compile(r"#.*|//.*|/\*.*?\*/")
_SETTING: Final = re.compile(r"([\w-]+)\s*=\s*(\S+)\s*")
_SLOTS: Final = frozenset({"slots", "cpu", "count"})
_MOST_SLOTS: Final = frozenset({"max_slots", "max-slots"})
_ACCOUNT: Final = frozenset({"username", "user-name", "port"})
"""Open MPI's keywords without effect on the number of ranks."""
_MPICH: Final = frozenset({"user", "binding"})
"""MPICH's keywords without effect on the number of ranks."""

RankPair = tuple[int, int]
HostPair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    slots: int | None
    """Number of ranks that run on the host; None: as many as the host has cores."""


@dataclass(slots=True)
class _Slots:
    """Sum of a host file's lines about a host so far."""

    count: int = 0
    is_known: bool = False
    """False after a single line without a number: Open MPI counts the cores, MPICH one rank."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a host file: a name, MPICH's count, and settings."""

    name: str
    ranks: int | None
    slots: int | None
    most: int | None
    kind: str | None
    """The MPI with the line's notation; None for a name alone."""


def read_hosts(text: str, source: str) -> list[Host]:
    """Read a host file of Open MPI (``NAME slots=N``) or MPICH (``NAME:N``) as mpirun reads the
    file.

    Open MPI (tried: 4.1.4, 5.0.11, 6.0.0a1): ``cpu`` and ``count`` mean ``slots``; ``max_slots``
    alone is the number of slots; each further line without a number adds a slot; a host with a
    single line and no number has a slot for each core, so its ``slots`` are None. MPICH (tried:
    5.0.2): the numbers of all lines of a host are added, and a line without a number adds 1.

    Raises HydraError for a file that mpirun refuses, or reads in an unexpected way.
    """
    hosts: dict[str, _Slots] = {}
    kinds: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = _COMMENT.sub(" ", line).strip()
        if not words:
            continue
        try:
            line_read = _read_line(words)
            if line_read.kind is not None:
                kinds.setdefault(line_read.kind, number)
            if len(kinds) > 1:
                raise ValueError(
                    "NAME:N is MPICH's notation and NAME slots=N Open MPI's: write all hosts "
                    "in the same notation, since no mpirun reads both"
                )
            _count(hosts, line_read)
        except ValueError as error:
            raise HydraError(f"{source}:{number}: {line.strip()!r}: {error}") from error
    if not hosts:
        raise HydraError(f"{source} names no hosts")
    return [
        Host(name, host.count if host.is_known or "MPICH" in kinds else None)
        for name, host in hosts.items()
    ]


def _read_line(words: str) -> _Line:
    """Parse a line. Raises ValueError with the problem and the remedy."""
    name, *rest = words.split(None, 1)
    name, colon, ranks = name.rpartition("@")[2].partition(":")
    if not name or "," in name or name[0] in '+^"':
        raise ValueError("the line must begin with the name of one host")
    settings, at = [], 0
    text = rest[0] if rest else ""
    while at < len(text):
        if (found := _SETTING.match(text, at)) is None:
            raise ValueError("a line holds one host: write each host on a line of its own")
        settings.append((found[1], found[2]))
        at = found.end()
    known = _MPICH if colon else _SLOTS | _MOST_SLOTS | _ACCOUNT
    for key, _ in settings:
        if key not in known:
            raise ValueError(f"mpirun knows no {key}=, but {', '.join(sorted(known))}")
    slots = [_positive(key, value) for key, value in settings if key in _SLOTS]
    most = [_positive(key, value) for key, value in settings if key in _MOST_SLOTS]
    if len(slots) > 1:
        raise ValueError("the slots are given twice: give the number once, as mpirun requires")
    return _Line(
        name,
        _positive("the number of ranks", ranks) if colon else None,
        slots[0] if slots else None,
        most[-1] if most else None,
        "MPICH" if colon else "Open MPI" if settings else None,
    )


def _positive(subject: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal()) or int(value) == 0:
        raise ValueError(f"{subject} is {value!r}: write a number from 1")
    return int(value)


def _count(hosts: dict[str, _Slots], line: _Line) -> None:
    """Add a line to its host. Raises ValueError if mpirun would refuse the line."""
    is_new = line.name not in hosts
    host = hosts.setdefault(line.name, _Slots())
    if line.slots is not None and not is_new:
        raise ValueError(
            f"an earlier line names {line.name}, too: mpirun refuses slots for a host that has "
            "several lines; write one line with all its slots"
        )
    if line.slots is None and is_new and line.most is not None:
        host.count = line.most
    else:
        host.count += line.slots or line.ranks or 1
    host.is_known = not is_new or (line.slots or line.ranks or line.most) is not None
    if line.most is not None and host.count > line.most:
        raise ValueError(f"max_slots is less than the {host.count} slots of {line.name}")


def placement(hosts: Sequence[Host], ranks: int | None) -> list[str]:
    """The host of each rank: hosts are filled one after the other, as by mpirun's default.

    Raises HydraError if there are more ranks than slots, or a needed host has an unknown number of
    slots.
    """
    places: list[str] = []
    for host in hosts:
        if ranks is not None and len(places) >= ranks:
            break
        if host.slots is None:
            raise HydraError(
                f"the host file gives no number of slots for {host.name}: Open MPI starts a rank "
                f"on each core, MPICH a single rank; write `{host.name} slots=N` (Open MPI) or "
                f"`{host.name}:N` (MPICH)"
            )
        places += [host.name] * host.slots
    if ranks is not None and ranks > len(places):
        raise HydraError(f"{ranks} ranks do not fit into the {len(places)} slots of the hosts")
    return places[:ranks]


def _all_to_all(n: int) -> Iterator[RankPair]:
    return ((a, b) for a in range(n) for b in range(n) if a != b)


def _ring(n: int) -> Iterator[RankPair]:
    return ((rank, (rank + 1) % n) for rank in range(n) if n > 1)


def _root(n: int) -> Iterator[RankPair]:
    for rank in range(1, n):
        yield 0, rank
        yield rank, 0


def _stencil(n: int) -> Iterator[RankPair]:
    """Neighbours in a grid as square as ``n`` allows, numbered by rows, without wrapping around."""
    columns = n // max(d for d in range(1, math.isqrt(n) + 1) if n % d == 0) if n else 1
    for rank in range(n):
        if (rank + 1) % columns:
            yield rank, rank + 1
            yield rank + 1, rank
        if rank + columns < n:
            yield rank, rank + columns
            yield rank + columns, rank


PATTERNS: Final[Mapping[str, Callable[[int], Iterator[RankPair]]]] = {
    "all-to-all": _all_to_all,
    "ring": _ring,
    "root": _root,
    "stencil": _stencil,
}


def host_traffic(pattern: str, places: Sequence[str], mbps: float) -> dict[HostPair, float]:
    """Mbps from host to host, if each message path of ``pattern`` between ranks has ``mbps``."""
    total: dict[HostPair, float] = defaultdict(float)
    for src, dst in PATTERNS[pattern](len(places)):
        total[places[src], places[dst]] += mbps
    return dict(total)


def between_racks(
    traffic: Mapping[HostPair, float], rack_of: Mapping[str, str]
) -> dict[HostPair, float]:
    """Mbps to reserve for each two hosts in different racks, the larger of both directions.

    Reservations hold both directions; inside a rack none is needed. Raises HydraError for hosts in
    no rack.
    """
    check_known((host for pair in traffic for host in pair), rack_of)
    wanted: dict[HostPair, float] = {}
    for (src, dst), mbps in traffic.items():
        if rack_of[src] != rack_of[dst]:
            pair = min(src, dst), max(src, dst)
            wanted[pair] = max(wanted.get(pair, 0.0), mbps)
    return wanted


def check_known(hosts: Iterable[str], rack_of: Mapping[str, str]) -> None:
    """Raise HydraError for hosts in no rack."""
    strangers = sorted(set(hosts) - rack_of.keys())
    if strangers:
        raise HydraError(
            f"the controller knows no server {', '.join(strangers[:5])}: hosts go by names of "
            "servers in the configuration"
        )
