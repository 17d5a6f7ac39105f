"""Schedules that do not look at demand: round robin, RotorNet, Opera."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, gcd

from hydra.errors import PlanError
from hydra.model import Fabric, Path, PlaneId, PortId, RackId, Topology
from hydra.policy import Rotation

_Matching = tuple[tuple[int, int], ...]
"""Pairs of racks, each rack in one pair at most."""
_OPERA_PLANES = 3
"""Least planes for Opera: while one changes, two more have to join all racks."""


def rotation_topologies(rotation: Rotation, fabric: Fabric) -> tuple[Topology, ...]:
    """The topology of each slot of a period, for duplex circuits.

    If the planes can't have equal shares of the matchings, planes with fewer show their first
    matching twice. Each circuit is the path of its two racks. A rack with several ports on a plane
    uses the first.

    Raises PlanError for less than two racks, a rack without a port on a plane, and if no order of
    the matchings makes Opera's planes join all racks during each change.
    """
    racks = [rack.id for rack in fabric.racks if not rack.spine]
    if len(racks) < 2:
        raise PlanError(
            f"{rotation.value} joins racks in turn, and fabric {fabric.name} has a single rack"
        )
    ports = _first_ports(rotation, fabric, racks)
    n_planes = len(fabric.planes)
    matchings = _tournament(len(racks))
    if rotation is Rotation.ROUND_ROBIN:
        slots = _together(matchings, n_planes)
    elif rotation is Rotation.ROTORNET:
        slots = list(zip(*_shares(matchings, n_planes), strict=True))
    else:
        slots = _one_by_one(matchings, n_planes, len(racks))
    return tuple(_topology(fabric, slot, racks, ports) for slot in slots)


def _first_ports(
    rotation: Rotation, fabric: Fabric, racks: Sequence[RackId]
) -> dict[tuple[RackId, PlaneId], PortId]:
    ports: dict[tuple[RackId, PlaneId], PortId] = {}
    for rack in racks:
        for port in fabric.ports_of(rack):
            ports.setdefault((rack, port.plane), port.id)
        for plane in fabric.planes:
            if (rack, plane.id) not in ports:
                raise PlanError(
                    f"{rotation.value} joins all racks on all planes, and "
                    f"{fabric.racks[rack].name} has no port on {plane.name}: list slots instead"
                )
    return ports


def _tournament(n: int) -> list[_Matching]:
    """A 1-factorisation of the complete graph: n teams on a circle, around a fixed team.

    If n is odd, the fixed team is a bye.
    """
    rounds = n - 1 + n % 2
    matchings = []
    for turn in range(rounds):
        pairs = [((turn + k) % rounds, (turn - k) % rounds) for k in range(1, (rounds + 1) // 2)]
        if n % 2 == 0:
            pairs.append((turn, n - 1))
        matchings.append(tuple(sorted((min(pair), max(pair)) for pair in pairs)))
    return matchings


def _together(matchings: Sequence[_Matching], n_planes: int) -> list[tuple[_Matching, ...]]:
    """All planes show consecutive matchings, and go on by as many."""
    count, shown = len(matchings), min(n_planes, len(matchings))
    return [
        tuple(matchings[(slot * shown + plane) % count] for plane in range(shown))
        for slot in range(count // gcd(count, shown))
    ]


def _shares(matchings: Sequence[_Matching], n_planes: int) -> list[list[_Matching]]:
    """Disjoint shares of the matchings; shorter shares are filled up with their first matching."""
    shares = [list(matchings[plane::n_planes]) for plane in range(min(n_planes, len(matchings)))]
    longest = ceil(len(matchings) / n_planes)
    return [share + share[:1] * (longest - len(share)) for share in shares]


def _one_by_one(
    matchings: Sequence[_Matching], n_planes: int, n_racks: int
) -> list[tuple[_Matching, ...]]:
    """Planes change in turn. Matchings are taken in steps of 1, 2, …, until the others join all."""
    if n_planes < _OPERA_PLANES:
        raise PlanError(
            f"opera needs {_OPERA_PLANES} planes, so that the other planes join all racks while a "
            f"plane changes, and the fabric has {n_planes}: choose rotornet or round-robin"
        )
    count = len(matchings)
    for step in (step for step in range(1, count + 1) if gcd(step, count) == 1):
        shares = _shares([matchings[place * step % count] for place in range(count)], n_planes)
        if len(shares[0]) == 1:
            return [tuple(share[0] for share in shares)]  # nothing changes
        turns = list(_turns(shares))
        if all(_joins_all(*turn, n_racks) for turn in turns):
            return [slot for slot, _ in turns]
    raise PlanError(
        f"opera finds no order of {count} matchings on {n_planes} planes in which the other planes "
        "join all racks while a plane changes: choose rotornet or round-robin"
    )


def _turns(shares: Sequence[Sequence[_Matching]]) -> Iterator[tuple[tuple[_Matching, ...], int]]:
    """The matchings on the planes after each change, and the plane that changes to them."""
    rounds = len(shares[0])
    for turn in range(rounds):
        for changing in range(len(shares)):
            yield (
                tuple(
                    share[(turn + (plane <= changing)) % rounds]
                    for plane, share in enumerate(shares)
                ),
                changing,
            )


def _joins_all(slot: Sequence[_Matching], changing: int, n_racks: int) -> bool:
    """True if all racks are connected over the planes besides ``changing``."""
    near: list[list[int]] = [[] for _ in range(n_racks)]
    for plane, matching in enumerate(slot):
        if plane != changing:
            for a, b in matching:
                near[a].append(b)
                near[b].append(a)
    seen, waiting = {0}, [0]
    while waiting:
        fresh = set(near[waiting.pop()]) - seen
        seen |= fresh
        waiting += fresh
    return len(seen) == n_racks


def _topology(
    fabric: Fabric,
    slot: Sequence[_Matching],
    racks: Sequence[RackId],
    ports: dict[tuple[RackId, PlaneId], PortId],
) -> Topology:
    paths = [
        Path(
            racks[a],
            racks[b],
            (fabric.circuit(ports[racks[a], plane.id], ports[racks[b], plane.id]),),
        )
        for plane, matching in zip(fabric.planes, slot, strict=False)
        for a, b in matching
    ]
    circuits = frozenset(circuit for path in paths for circuit in path.circuits)
    return Topology(circuits, tuple(sorted(paths)))
