"""Traffic of an MPI job: places of its ranks, and pairs that talk."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hydra.errors import HydraError

_SLOTS: Final = re.compile(r"(?<![\w-])slots\s*=\s*(\d+)")

RankPair = tuple[int, int]
HostPair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    slots: int
    """Number of ranks that run on it."""


def read_hosts(text: str, source: str) -> list[Host]:
    """The hosts of a file for Open MPI (``NAME slots=N``) or MPICH (``NAME:N``).

    A host without a number has one slot; one that comes again adds to its slots. Raises HydraError.
    """
    slots: dict[str, int] = defaultdict(int)
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split(None, 1)
        if not words:
            continue
        name, colon, count = words[0].partition(":")
        stated = _SLOTS.search(words[1]) if len(words) > 1 else None
        given = count if colon else "1" if stated is None else stated[1]
        if not name or not given.isdecimal() or int(given) == 0:
            raise HydraError(f"{source}:{number}: {line.strip()!r} is no host with its slots")
        slots[name] += int(given)
    if not slots:
        raise HydraError(f"{source} names no hosts")
    return [Host(name, count) for name, count in slots.items()]


def placement(hosts: Sequence[Host], ranks: int | None) -> list[str]:
    """The host of each rank: hosts are filled one after the other, as by mpirun's default.

    Raises HydraError for more ranks than there are slots.
    """
    places = [host.name for host in hosts for _ in range(host.slots)]
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
    strangers = sorted({host for pair in traffic for host in pair} - rack_of.keys())
    if strangers:
        raise HydraError(
            f"the controller knows no server {', '.join(strangers[:5])}: hosts go by the names of "
            "the servers in its configuration"
        )
    wanted: dict[HostPair, float] = {}
    for (src, dst), mbps in traffic.items():
        if rack_of[src] != rack_of[dst]:
            pair = min(src, dst), max(src, dst)
            wanted[pair] = max(wanted.get(pair, 0.0), mbps)
    return wanted
