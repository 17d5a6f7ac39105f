"""The rule of admission, compared with an enumeration of every path at every moment."""

import json
import math
import random
from dataclasses import replace
from itertools import pairwise, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.model import Circuit, Fabric, Path, PlaneId, PortId, RackId
from hydra.reservations.booking import ROUNDING_MBPS, Booking, Need, peak_mbps
from hydra.reservations.calendar import Calendar
from hydra.reservations.limits import AdmissionLimits
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric

RATES = (100.0, 40.0)


def fabric_of(
    racks: int, planes: int, missing: frozenset[int] = frozenset(), per_plane: int = 1
) -> Fabric:
    """Every rack on every plane, except for some ports; the planes differ in rate."""
    fabric = small_fabric(racks, planes, per_plane)
    left = [port for port in fabric.ports if port.id not in missing]
    ports = [
        replace(port, id=PortId(number), rate_mbps=RATES[port.plane % 2])
        for number, port in enumerate(left)
    ]
    return replace(fabric, ports=tuple(ports))


def all_paths(fabric: Fabric, src: int, dst: int, max_hops: int):
    """Every path without a loop, over every choice of ports."""
    others = [rack for rack in range(len(fabric.racks)) if rack not in (src, dst)]
    for hops in range(1, max_hops + 1):
        for relays in permutations(others, hops - 1):
            racks = [src, *relays, dst]
            legs = [circuits_between(fabric, a, b) for a, b in pairwise(racks)]
            for circuits in product(*legs):
                ends = [end for c in circuits for end in (c.a, c.b)]
                if len(set(ends)) == len(ends):
                    yield Path(RackId(src), RackId(dst), tuple(circuits))


def circuits_between(fabric: Fabric, one: int, other: int) -> list[Circuit]:
    return [
        Circuit(near.plane, min(near.id, far.id), max(near.id, far.id))
        for near in fabric.ports_of(RackId(one))
        for far in fabric.ports_of(RackId(other))
        if near.plane == far.plane
    ]


def moments(bookings, start: float, end: float) -> list[float]:
    """A moment in each part of [start, end) without changes."""
    return [start, *(b.start_unix_s for b in bookings if start < b.start_unix_s < end)]


def traffic(fabric: Fabric, booking: Booking):
    """The server pairs that distinguish the booking: all pairs, without bandwidth."""
    named = booking.servers if booking.mbps else frozenset()
    here, there = (
        [server.name for server in fabric.racks[rack].servers]
        for rack in (booking.path.src, booking.path.dst)
    )
    return {
        (a, b)
        for a in (named.intersection(here) or here)
        for b in (named.intersection(there) or there)
    }


def over_committed(fabric: Fabric, bookings, paths_per_pair: int = 16) -> str:
    """Double bookings at some moment; empty if none."""
    for now in {b.start_unix_s for b in bookings}:
        present = [b for b in bookings if b.start_unix_s <= now < b.end_unix_s]
        user: dict[PortId, Circuit] = {}
        load: dict[Circuit, float] = {}
        users: dict[Circuit, list[Booking]] = {}
        path_of: dict[tuple[str, str], Path] = {}
        paths: dict[tuple[int, int], set[Path]] = {}
        for booking in present:
            pair = booking.path.src, booking.path.dst
            paths.setdefault(pair, set()).add(booking.path)
            if len(paths[pair]) > paths_per_pair:
                return f"too many paths for {pair} at {now}"
            for ends in traffic(fabric, booking):
                if path_of.setdefault(ends, booking.path) != booking.path:
                    return f"two paths for {ends} at {now}"
            for circuit in booking.path.circuits:
                load[circuit] = load.get(circuit, 0.0) + booking.mbps
                users.setdefault(circuit, []).append(booking)
                for end in (circuit.a, circuit.b):
                    if user.setdefault(end, circuit) != circuit:
                        return f"port {end} has two circuits at {now}"
        for circuit, mbps in load.items():
            if mbps > fabric.rate_of(circuit) + 10 * ROUNDING_MBPS:
                return f"{circuit} carries {mbps} at {now}"
        for circuit, its in users.items():
            if len(its) > 1 and any(booking.exclusive for booking in its):
                return f"{circuit} is somebody's own and has {len(its)} users at {now}"
    return ""


def fits(fabric: Fabric, bookings, candidate: Booking, paths_per_pair: int) -> bool:
    start, end = candidate.start_unix_s, candidate.end_unix_s
    near = [b for b in bookings if b.overlaps(start, end)]
    return not over_committed(
        fabric,
        [*near, *(_at(candidate, now) for now in moments(near, start, end))],
        paths_per_pair,
    )


def _at(booking: Booking, now: float) -> Booking:
    """A part of ``booking`` that begins at ``now``: checks are made where a booking begins."""
    end = math.nextafter(now, math.inf)
    return replace(booking, id=f"{booking.id}@{now}", start_unix_s=now, end_unix_s=end)


def play(seed: int, requests: int = 14) -> tuple[int, int]:
    """A random calendar; (admitted, refused)."""
    rng = random.Random(seed)
    racks, planes, per_plane = rng.choice([(3, 1, 1), (3, 2, 1), (3, 1, 2), (4, 1, 1), (4, 2, 1)])
    ports = racks * planes * per_plane
    missing = frozenset(rng.sample(range(ports), rng.choice([0, 0, 1])))
    fabric = fabric_of(racks, planes, missing, per_plane)
    blocked = frozenset(p.id for p in fabric.ports if rng.random() < 0.05)
    most = rng.choice([1, 2, 16])
    limits = AdmissionLimits(rng.choice([1, 2, 3]), blocked, paths_per_pair=most)
    calendar = Calendar(fabric)
    counts = [0, 0]
    for number in range(requests):
        if rng.random() < 0.15 and len(calendar):
            calendar.remove(rng.choice(list(calendar)).id)
        src, dst = sorted(rng.sample(range(racks), 2))
        start = float(rng.randrange(12))
        end = rng.choice([start + rng.randrange(1, 8), math.inf])
        mbps = rng.choice([0.0, 10.0, 30.0, 40.0, 70.0, 100.0])
        ends = [rng.choice([None, *fabric.racks[rack].servers]) for rack in (src, dst)]
        servers = frozenset(end.name for end in ends if end is not None)
        need = Need(mbps, mbps > 0 and rng.random() < 0.15, servers)
        found = calendar.window(start, end, limits).find((RackId(src), RackId(dst)), need)
        before = list(calendar)
        if found is not None:
            assert found.hops <= limits.max_hops
            assert not any({c.a, c.b} & blocked for c in found.circuits)
            calendar.add(Booking(f"{number}", found, mbps, start, end, servers, need.exclusive))
            assert over_committed(fabric, list(calendar), most) == "", f"seed {seed}"
        else:
            for path in all_paths(fabric, src, dst, limits.max_hops):
                if any({c.a, c.b} & blocked for c in path.circuits):
                    continue
                candidate = Booking("x", path, mbps, start, end, servers, need.exclusive)
                assert not fits(fabric, before, candidate, most), f"seed {seed}: {path} would do"
        counts[found is None] += 1
    return counts[0], counts[1]


@given(seed=st.integers(0, 2**32))
def test_never_over_committed_and_never_refused_what_fits(seed):
    play(seed)


def test_the_random_calendars_are_full_enough_to_refuse():
    outcomes = [play(seed) for seed in range(60)]
    admitted, refused = (sum(column) for column in zip(*outcomes, strict=True))
    assert admitted > 200
    assert refused > 100


def test_a_checker_that_can_object():
    fabric = fabric_of(3, 1)
    one, other = (next(all_paths(fabric, 0, dst, 1)) for dst in (1, 2))
    first = Booking("a", one, 60.0, 0.0, 10.0)
    assert "two circuits" in over_committed(fabric, [first, Booking("b", other, 1.0, 9.0, 12.0)])
    assert "carries 120" in over_committed(fabric, [first, Booking("b", one, 60.0, 5.0, 12.0)])
    assert over_committed(fabric, [first, Booking("b", other, 60.0, 10.0, 12.0)]) == ""
    wide = fabric_of(3, 2)
    first, second = (
        Booking(name, path, 30.0, 0.0, 9.0, frozenset({name}))
        for name, path in zip(("h11", "h12"), all_paths(wide, 0, 1, 1), strict=True)
    )
    assert over_committed(wide, [first, second]) == ""
    assert "two paths" in over_committed(wide, [first, replace(second, servers=frozenset())])
    assert "too many" in over_committed(wide, [first, second], 1)


@pytest.mark.parametrize(
    ("spans", "peak"),
    [
        ([], 0.0),
        ([(0, 5, 10.0), (5, 9, 20.0)], 20.0),
        ([(0, 6, 10.0), (5, 9, 20.0)], 30.0),
        ([(0, 1, 50.0), (9, 12, 50.0)], 0.0),
        ([(0, math.inf, 10.0), (2, 3, 1.0), (3, 4, 1.0)], 11.0),
    ],
)
def test_the_peak_of_what_overlaps(spans, peak):
    path = Path(RackId(0), RackId(1), (Circuit(PlaneId(0), PortId(0), PortId(1)),))
    bookings = [
        Booking(str(number), path, mbps, float(start), float(end))
        for number, (start, end, mbps) in enumerate(spans)
    ]
    assert peak_mbps(bookings, 2.0, 9.0) == peak


def test_of_several_standing_paths_the_shortest_that_fits_is_taken():
    fabric = small_fabric(racks=3, planes=4, servers=1)
    direct = [path_of(fabric, 0, 1, circuit_between(fabric, 0, 1, plane)) for plane in (0, 1)]
    around = path_of(
        fabric, 0, 1, circuit_between(fabric, 0, 2, 2), circuit_between(fabric, 1, 2, 3)
    )
    calendar = Calendar(fabric)
    limits = AdmissionLimits(standing=(around, *direct))
    window = calendar.window(0.0, 9.0, limits)
    assert window.find((RackId(0), RackId(1)), Need(10.0)) == direct[0]
    assert all(window.takes(path, Need(10.0)) for path in direct)
    blocked = AdmissionLimits(standing=tuple(direct), blocked=frozenset({direct[0].circuits[0].a}))
    assert calendar.window(0.0, 9.0, blocked).find((RackId(0), RackId(1)), Need(10.0)) == direct[1]


def test_standing_paths_are_shared_rather_than_cut():
    fabric = fabric_of(3, 2)
    calendar = Calendar(fabric)
    path = next(all_paths(fabric, 0, 2, 1))
    window = calendar.window(0.0, 9.0, AdmissionLimits(standing=(path,)))
    assert window.find((path.src, path.dst), Need(40.0)) == path
    beside = window.find((RackId(0), RackId(1)), Need(30.0))
    assert {c.plane for c in beside.circuits} == {PlaneId(1)}
    assert json.dumps(window.levels_mbps()) == "[40.0, 100.0]"


def test_ends_of_bookings_come_in_order_and_once():
    fabric = small_fabric(racks=4, planes=1)
    calendar, path = Calendar(fabric), path_of(fabric, 0, 1)
    for number, end_unix_s in enumerate((30.0, 10.0, 20.0, 30.0)):
        calendar.add(Booking(str(number), path, 1.0, 0.0, end_unix_s, frozenset()))
    ports = [port.id for port in fabric.ports_of(RackId(0))]
    assert calendar.ends_after(0.0, ports, (), 24) == [10.0, 20.0, 30.0]
    assert calendar.ends_after(10.0, ports, (), 24) == [20.0, 30.0]
