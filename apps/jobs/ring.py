"""Order of an MPI job's hosts for ring collectives over circuits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from apps.jobs.mpi import Host, check_known
from apps.jobs.rack_paths import RackPath
from hydra.errors import HydraError
from topology.ring_order import RingCost, ring_cost, ring_order


@dataclass(frozen=True, slots=True)
class Ring:
    """Hosts in the order of their ranks; the last rank is beside the first."""

    hosts: tuple[Host, ...]
    cost: RingCost
    given: RingCost
    """Cost of the hosts in the given order."""
    fewest: int
    """No order has fewer electrical steps."""

    @property
    def is_proven(self) -> bool:
        """True if no order has fewer electrical steps than this order."""
        return self.cost.electrical == self.fewest


def order_ring(
    hosts: Sequence[Host], rack_of: Mapping[str, str], paths: Iterable[RackPath]
) -> Ring:
    """The hosts in a ring with the fewest steps between racks without a path of circuits.

    The first host stays first, and the hosts of a rack keep their order. The given order is
    returned if no better order is found. Raises HydraError without hosts, and for hosts in no rack.
    """
    if not hosts:
        raise HydraError("there are no hosts to order: name at least one")
    check_known((host.name for host in hosts), rack_of)
    racks = list(dict.fromkeys(rack_of[host.name] for host in hosts))
    number = {rack: at for at, rack in enumerate(racks)}
    hops = np.zeros((len(racks), len(racks)), dtype=np.int64)
    for path in paths:
        if path.src in number and path.dst in number:
            pair = number[path.src], number[path.dst]
            hops[pair] = min(path.hops, hops[pair] or path.hops)
    places = [number[rack_of[host.name]] for host in hosts]
    given = ring_cost(hops, places)
    found = ring_order(hops, np.bincount(places))
    if found.cost >= given:
        return Ring(tuple(hosts), given, given, min(found.fewest, given.electrical))
    members: dict[int, list[Host]] = defaultdict(list)
    for place, host in zip(places, hosts, strict=True):
        members[place].append(host)
    order = [members[rack].pop(0) for rack in _rotated(found.racks, places[0])]
    return Ring(tuple(order), found.cost, given, found.fewest)


def _rotated(racks: Sequence[int], first: int) -> Sequence[int]:
    """The ring from the beginning of a visit to the rack ``first``."""
    start = next(i for i, rack in enumerate(racks) if rack == first != racks[i - 1])
    return [*racks[start:], *racks[:start]]


def _slots(host: Host) -> int:
    return 1 if host.slots is None else host.slots


def _host_file(hosts: Iterable[Host]) -> Iterator[str]:
    """Open MPI's: one host a line."""
    for host in hosts:
        yield host.name if host.slots is None else f"{host.name} slots={host.slots}"


def _rank_file(hosts: Iterable[Host]) -> Iterator[str]:
    """Open MPI's: host and core of each rank, mpirun(1)."""
    places = ((host.name, core) for host in hosts for core in range(_slots(host)))
    for rank, (name, core) in enumerate(places):
        yield f"rank {rank}={name} slot={core}"


def _slurm(hosts: Iterable[Host]) -> Iterator[str]:
    """Slurm's SLURM_HOSTFILE for ``--distribution=arbitrary``: the host of each task, srun(1)."""
    for host in hosts:
        yield from [host.name] * _slots(host)


FORMATS: Final[Mapping[str, Callable[[Iterable[Host]], Iterator[str]]]] = {
    "hostfile": _host_file,
    "rankfile": _rank_file,
    "slurm": _slurm,
}
"""Lines of a file, by format."""
