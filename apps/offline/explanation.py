"""Reasons why a plan joins two racks as it does, or not at all, for ``hydra plan --explain``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from apps.offline.study import Outcome, Study
from hydra.model import Circuit, OpticalPort, Path, RackId
from hydra.policy import MOST_PATHS_PER_PAIR
from hydra.reconfiguration.plan import Pair, pair_of
from topology.plan_checks import Load, count_load
from topology.problem import RATE_TOLERANCE_MBPS, PlanResult, Reserved

_LISTED = 6


def explain(study: Study, outcome: Outcome, src: RackId, dst: RackId) -> list[str]:
    """The reasons, one per line, with figures."""
    if outcome.result is None:
        return [f"{outcome.algorithm} made no plan: {outcome.refused}"]
    low, high = min(src, dst), max(src, dst)
    why = _Why(study, outcome, outcome.result, low, high)
    if outcome.result.slots:
        return list(why.slots())
    return list(why.ways() if study.fabric.one_way else why.path())


class _Why:
    def __init__(
        self,
        study: Study,
        outcome: Outcome,
        result: PlanResult,
        src: RackId,
        dst: RackId,
    ) -> None:
        self._study = study
        self._fabric = study.fabric
        self._topology = result.topology
        self._slots = result.slots
        self._state = outcome.state
        self._algorithm = outcome.algorithm
        self._one_path = outcome.entry.one_path
        self._src, self._dst = src, dst
        both = np.maximum(study.demand, study.demand.T)
        self._wanted = np.triu(both)
        self._want = float(both[src, dst])

    def path(self) -> Iterator[str]:
        yield self._demand()
        load = count_load(self._study.arrays, self._study.demand, self._topology, Reserved())
        paths = [p for p in self._topology.paths if pair_of(p) == (self._src, self._dst)]
        if len(paths) > 1:
            carried = load.carried_mbps[self._src, self._dst]
            yield f"joined by {len(paths)} paths; {carried:,.1f} Mb/s of the demand fit"
        if paths:
            for path in paths:
                yield from self._joined(path, load, alone=len(paths) == 1)
            if min(path.hops for path in paths) > 1:
                yield from self._why_not_direct()
        elif self._want:
            yield from self._not_joined(load)
        else:
            yield "no demand, no path"
        yield from self._idle(load)

    def slots(self) -> Iterator[str]:
        """Lines on the time for which each direction is lit in a window."""
        timing_s = self._study.limits.window_s
        for src, dst in ((self._src, self._dst), (self._dst, self._src)):
            want = float(self._study.demand[src, dst])
            lit = [
                (slot.duration_s, self._fabric.planes[light.plane].name)
                for slot in self._slots
                for light in slot.lightpaths
                if self._fabric.ports[light.sender].rack == src
                and self._fabric.ports[light.receiver].rack == dst
            ]
            yield (
                f"{self._rack(src)} wants {want:,.1f} Mb/s of {self._rack(dst)}: lit in "
                f"{len(lit)} of {len(self._slots)} slots, "
                + (
                    f"{sum(s for s, _ in lit) * 1000:.1f} ms of every {timing_s * 1000:g} ms, on "
                    + ", ".join(sorted({name for _, name in lit}))
                    if lit
                    else "never"
                )
            )

    def ways(self) -> Iterator[str]:
        """The one-way circuits of each direction."""
        load = count_load(self._study.arrays, self._study.demand, self._topology, Reserved())
        for src, dst in ((self._src, self._dst), (self._dst, self._src)):
            want = float(self._study.demand[src, dst])
            paths = [path for path in self._topology.paths if (path.src, path.dst) == (src, dst)]
            there = f"{self._rack(src)} to {self._rack(dst)} {want:,.1f} Mb/s"
            if paths:
                many = f"{len(paths)} circuit{'s' if len(paths) > 1 else ''}"
                yield f"{there}: {many}; {load.carried_mbps[src, dst]:,.1f} Mb/s of the demand fit"
                for path in paths:
                    yield from self._leads(path, load, wanted=want > 0)
            elif want:
                yield f"{there}: no circuit: the traffic stays electrical"
                barred = self._barred()
                yield from [f"  {barred}"] if barred else self._why_no_way(src, dst)
            else:
                yield f"{there}: no circuit"

    def _leads(self, path: Path, load: Load, *, wanted: bool) -> Iterator[str]:
        (circuit,) = path.circuits
        yield (
            f"  {self._circuit(circuit)}{self._on_vlan(path)}: "
            f"{self._fabric.rate_of(circuit):,.0f} Mb/s, "
            f"{load.remaining_mbps[circuit]:,.1f} Mb/s left"
        )
        if not wanted:
            (on,) = (joined for joined in self._topology.circuits if joined.a == circuit.b)
            yield f"  the circuit closes a ring and lights the sender of {self._circuit(on)}"

    def _why_no_way(self, src: RackId, dst: RackId) -> Iterator[str]:
        """Lines on the transmitters and receivers needed for a further circuit."""
        if not self._planes_with_ports(src) & self._planes_with_ports(dst):
            yield "  the racks have no plane in common"
            return
        demand = self._study.demand
        ends = [self._fabric.racks_of(circuit) for circuit in self._topology.circuits]
        hearing = {b: float(demand[src, b]) for a, b in ends if a == src}
        sending = {a: float(demand[a, dst]) for a, b in ends if b == dst}
        for rack, verb, others in ((src, "sends to", hearing), (dst, "is lit by", sending)):
            used = sum(rack == (a if rack == src else b) for a, b in ends)
            yield (
                f"  {self._rack(rack)}: {used} of {len(self._open_ports(rack))} ports in use; "
                f"the rack {verb} {self._listed(others)} (Mb/s wanted)"
            )

    # -- demand ----------------------------------------------------------------------------------

    def _demand(self) -> str:
        there = float(self._study.demand[self._src, self._dst])
        back = float(self._study.demand[self._dst, self._src])
        src, dst = self._rack(self._src), self._rack(self._dst)
        if not self._want:
            return f"{src} and {dst} want nothing of each other"
        larger = int((self._wanted > self._want).sum())
        pairs = int((self._wanted > 0).sum())
        return (
            f"{src} to {dst} {there:,.1f} Mb/s, back {back:,.1f}: the pair wants the larger, "
            f"and {larger} of {pairs} pairs want more"
        )

    # -- a path ----------------------------------------------------------------------------------

    def _joined(self, path: Path, load: Load, *, alone: bool) -> Iterator[str]:
        way = f"over {path.hops} hop{'s' if path.hops > 1 else ''}{self._on_vlan(path)}"
        fits = f"{load.carried_mbps[path.src, path.dst]:,.1f} Mb/s of the demand fit"
        yield f"joined {way}; {fits}" if alone else way
        sharers = self._pairs_by_circuit()
        for circuit in path.circuits:
            others = len(sharers[circuit] - {(path.src, path.dst)})
            yield (
                f"  {self._circuit(circuit)}: {self._fabric.rate_of(circuit):,.0f} Mb/s, shared "
                f"with {others} other pair{'s' if others != 1 else ''}, "
                f"{load.remaining_mbps[circuit]:,.1f} Mb/s left"
            )

    def _pairs_by_circuit(self) -> dict[Circuit, set[Pair]]:
        sharers: dict[Circuit, set[Pair]] = {}
        for path in self._topology.paths:
            for circuit in path.circuits:
                sharers.setdefault(circuit, set()).add(pair_of(path))
        return sharers

    # -- no path ---------------------------------------------------------------------------------

    def _not_joined(self, load: Load) -> Iterator[str]:
        yield "not joined: the traffic stays electrical"
        barred = self._barred()
        if barred:
            yield barred
            return
        yield from self._why_not_direct()
        yield self._distance(load)

    def _barred(self) -> str:
        """The limit that keeps the two racks apart, in words; empty if there is none."""
        limits = self._study.limits
        ends = (self._src, self._dst)
        outside = [rack for rack in ends if limits.racks is not None and rack not in limits.racks]
        if outside:
            return f"{self._rack(outside[0])} is not among the racks that may change"
        bare = [rack for rack in ends if not self._open_ports(rack)]
        return f"{self._rack(bare[0])} has no port on a plane that may be used" if bare else ""

    def _why_not_direct(self) -> Iterator[str]:
        """Lines on the ports needed for a direct circuit."""
        common = self._planes_with_ports(self._src) & self._planes_with_ports(self._dst)
        if not common:
            yield "no direct circuit: the racks have no plane in common"
            return
        free = sorted(self._free_planes(self._src) & self._free_planes(self._dst))
        if free:
            names = ", ".join(self._fabric.planes[plane].name for plane in free[:_LISTED])
            yield f"both have a free port on {names}: the algorithm had no use for them"
            return
        yield f"no circuit of their own: no plane of {len(common)} in common has free ports at both"
        for rack in (self._src, self._dst):
            yield self._ports_used(rack)

    def _ports_used(self, rack: RackId) -> str:
        ports = self._open_ports(rack)
        used = self._circuit_at()
        partners: dict[RackId, int] = {}
        for port in ports:
            circuit = used.get(port.id)
            if circuit is not None:
                a, b = self._fabric.racks_of(circuit)
                other = b if a == rack else a
                partners[other] = partners.get(other, 0) + 1
        wants = {other: self._wanted[min(rack, other), max(rack, other)] for other in partners}
        return (
            f"  {self._rack(rack)}: {sum(partners.values())} of {len(ports)} ports in use, towards "
            f"{self._listed(wants)} (Mb/s wanted)"
        )

    def _listed(self, wants_mbps: Mapping[RackId, float]) -> str:
        """The largest wants, in words, the largest first."""
        largest = sorted(wants_mbps, key=lambda other: (-wants_mbps[other], other))
        shown = ", ".join(
            f"{self._rack(other)} ({wants_mbps[other]:,.1f})" for other in largest[:_LISTED]
        )
        more = f" and {len(largest) - _LISTED} more" if len(largest) > _LISTED else ""
        return f"{shown or 'nobody'}{more}"

    def _distance(self, load: Load) -> str:
        limit = self._study.limits.max_hops
        over_all = self._hops(self._topology.circuits)
        if over_all is None:
            return "the plan's circuits do not join them, over any number of hops"
        if over_all > limit:
            return f"the plan's circuits join them over {over_all} hops, more than {limit}"
        need = self._want if self._study.limits.weighted else 0.0
        room = self._hops([c for c in self._topology.circuits if load.remaining_mbps[c] > need])
        if room is None or room > limit:
            return f"{over_all} hops would do, but the circuits on the way are full"
        return (
            f"circuits with room join them over {room} hop{'s' if room > 1 else ''}: this "
            "algorithm sends no pair that way"
        )

    def _hops(self, circuits: Collection[Circuit]) -> int | None:
        beside: dict[RackId, set[RackId]] = {}
        for circuit in circuits:
            a, b = self._fabric.racks_of(circuit)
            beside.setdefault(a, set()).add(b)
            beside.setdefault(b, set()).add(a)
        seen, ring, hops = {self._src}, {self._src}, 0
        while ring and self._dst not in ring:
            ring = {other for rack in ring for other in beside.get(rack, ())} - seen
            seen |= ring
            hops += 1
        return hops if ring else None

    # -- what is idle ----------------------------------------------------------------------------

    def _idle(self, load: Load) -> Iterator[str]:
        """Lines on planes and ports without a circuit, and on pairs that could use the ports."""
        free: dict[int, set[RackId]] = {}
        used = self._circuit_at()
        for rack in self._fabric.racks:
            for port in self._open_ports(rack.id):
                if port.id not in used:
                    free.setdefault(port.plane, set()).add(rack.id)
        if not free:
            return
        lit = {circuit.plane for circuit in self._topology.circuits}
        idle = [self._fabric.planes[plane].name for plane in sorted(free) if plane not in lit]
        if idle:
            yield f"no circuit at all on {', '.join(idle)}"
        ports = sum(map(len, free.values()))
        short = [
            (float(self._wanted[a, b]) - load.carried_mbps.get((a, b), 0.0), a, b)
            for a, b in np.argwhere(self._wanted > 0).tolist()
        ]
        short = sorted((entry for entry in short if entry[0] > RATE_TOLERANCE_MBPS), reverse=True)
        if not short:
            yield f"{ports} ports are free: all demand is served without them"
            return
        users = [
            (mbps, a, b, sorted(plane for plane in free if {a, b} <= free[plane]))
            for mbps, a, b in short
        ]
        users = [user for user in users if user[3]]
        users.sort(key=lambda user: user[1:3] != (self._src, self._dst))
        if not users:
            yield (
                f"{ports} ports are free, and useless: no two racks with unmet demand "
                "have free ports on one plane"
            )
        for mbps, a, b, planes in users[:_LISTED]:
            names = ", ".join(self._fabric.planes[plane].name for plane in planes[:_LISTED])
            yield (
                f"{self._rack(RackId(a))} and {self._rack(RackId(b))} want {mbps:,.1f} Mb/s more "
                f"and have free ports on {names}: {self._remedy(RackId(a), RackId(b))}"
            )

    def _remedy(self, src: RackId, dst: RackId) -> str:
        """Option by which two racks with free ports would get a further circuit."""
        count = sum(pair_of(path) == (src, dst) for path in self._topology.paths)
        allowed = self._study.limits.paths_per_pair
        if allowed == "auto":
            allowed = 1 if self._one_path else MOST_PATHS_PER_PAIR
        if self._study.limits.weighted and count == 0:
            return "no circuit carries the whole demand; leave out --weighted"
        if self._study.limits.weighted or count < allowed:
            return f"{self._algorithm} had no use for the ports; --compare shows other algorithms"
        if count < MOST_PATHS_PER_PAIR:
            return f"--paths-per-pair {count + 1} lets them have one more circuit"
        return f"the racks have {count} paths, and a pair may have no more"

    # -- ports -----------------------------------------------------------------------------------

    def _open_ports(self, rack: RackId) -> list[OpticalPort]:
        limits = self._study.limits
        return [
            port
            for port in self._fabric.ports_of(rack)
            if (limits.planes is None or port.plane in limits.planes)
            and (limits.use_planes is None or port.plane in limits.use_planes)
        ]

    def _planes_with_ports(self, rack: RackId) -> set[int]:
        return {port.plane for port in self._open_ports(rack)}

    def _free_planes(self, rack: RackId) -> set[int]:
        used = self._circuit_at()
        return {port.plane for port in self._open_ports(rack) if port.id not in used}

    def _circuit_at(self) -> dict[int, Circuit]:
        return {port: circuit for circuit in self._topology.circuits for port in circuit.ends}

    # -- names -----------------------------------------------------------------------------------

    def _rack(self, rack: RackId) -> str:
        return self._fabric.racks[rack].name

    def _circuit(self, circuit: Circuit) -> str:
        a, b = (self._fabric.ports[port] for port in circuit.ends)
        plane = self._fabric.planes[circuit.plane].name
        way = ">" if circuit.one_way else "="
        return f"{self._rack(a.rack)}:{a.tor_port} ={plane}{way} {self._rack(b.rack)}:{b.tor_port}"

    def _on_vlan(self, path: Path) -> str:
        vlan = None if self._state is None else self._state.vlans.get(path)
        return "" if vlan is None else f" on VLAN {vlan}"
