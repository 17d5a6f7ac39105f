"""Plans made from files, without a controller, for ``hydra plan --fabric``."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import numpy as np

from apps.planning.engine import check_spines
from apps.process.configuration import load_configuration
from apps.process.files import is_there
from hydra.errors import PlanError
from hydra.model import (
    DatapathId,
    DemandMatrix,
    Fabric,
    NetworkState,
    OpticalPort,
    Plane,
    PlaneId,
    PortId,
    Rack,
    RackId,
    Tor,
    VlanId,
    VlanRange,
)
from hydra.policy import Policy
from topology.algorithms import Entry, Product, entry, objection
from topology.bounds import plan_bound
from topology.carried import carried_mbps, rack_pairs
from topology.checks import check_topology
from topology.direct import ForbiddenJoin
from topology.lightpaths import ring_topology
from topology.makespan import least_window_s, shortest_window_s
from topology.marks import marks_of
from topology.plan_checks import check_result, count_load
from topology.problem import Budget, FabricArrays, PlanResult, Reserved, Timing

_PLAIN: Final = re.compile(
    r"(?P<racks>[0-9]{1,99})x(?P<planes>[0-9]{1,99})(?:@(?P<mbps>[0-9.eE+]+))?"
)
_PLAIN_RATE_MBPS: Final = 10_000.0
_PLAIN_SWITCHING_MS: Final = 25.0
_LARGEST: Final = 4096
_PLAIN_VLANS: Final = VlanRange(VlanId(2), VlanId(4094))


def read_fabric(text: str) -> tuple[Fabric, Policy]:
    """The fabric of a configuration file, or of ``RACKSxPLANES[@MBPS]``: all racks on all planes.

    Raises ConfigError for a bad file, PlanError for a bad size.
    """
    match = _PLAIN.fullmatch(text)
    if match is None or is_there(text):
        loaded = load_configuration(Path(text))
        return loaded.fabric, loaded.policy
    try:
        mbps = float(match["mbps"] or _PLAIN_RATE_MBPS)
    except ValueError:
        raise PlanError(f"{text}: {match['mbps']!r} is not a rate in Mbps") from None
    return plain_fabric(int(match["racks"]), int(match["planes"]), mbps), Policy()


def plain_fabric(n_racks: int, n_planes: int, rate_mbps: float) -> Fabric:
    """Racks without servers, each with one port on every plane; for planning only.

    Raises PlanError for a bad size or rate.
    """
    if not (1 <= n_racks <= _LARGEST and 0 <= n_planes <= _LARGEST):
        raise PlanError(
            f"{n_racks} racks on {n_planes} planes: 1 to {_LARGEST} racks and up to {_LARGEST} "
            "planes can be planned for"
        )
    if not 0 < rate_mbps < float("inf"):
        raise PlanError(f"a rate of {rate_mbps} Mbps: the rate must be positive and finite")
    return Fabric(
        name=f"{n_racks}x{n_planes}",
        racks=tuple(_plain_rack(rack) for rack in range(n_racks)),
        planes=tuple(_plain_plane(plane, n_racks, rate_mbps) for plane in range(n_planes)),
        ports=tuple(
            OpticalPort(
                id=PortId(rack * n_planes + plane),
                rack=RackId(rack),
                plane=PlaneId(plane),
                tor_port=f"o{plane + 1}",
                ingress=rack + 1,
                egress=n_racks + rack + 1,
                rate_mbps=rate_mbps,
            )
            for rack in range(n_racks)
            for plane in range(n_planes)
        ),
        circuit_vlans=_PLAIN_VLANS,
        parking_vlan=VlanId(1),
        electrical_rate_mbps=rate_mbps,
        server_rate_mbps=rate_mbps,
    )


def _plain_rack(rack: int) -> Rack:
    tor = Tor("", "", "", DatapathId(rack + 1), VlanId(1))
    return Rack(RackId(rack), f"r{rack + 1}", prefixes=(), tor=tor, servers=())


def _plain_plane(plane: int, ports: int, rate_mbps: float) -> Plane:
    return Plane(
        PlaneId(plane),
        f"p{plane + 1}",
        "",
        "",
        ports,
        switching_ms=_PLAIN_SWITCHING_MS,
        rate_mbps=rate_mbps,
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Parts of the network that a plan may touch and reach; None: everything."""

    max_hops: int
    racks: frozenset[RackId] | None = None
    planes: frozenset[PlaneId] | None = None
    use_planes: frozenset[PlaneId] | None = None
    weighted: bool = False
    paths_per_pair: int | Literal["auto"] = "auto"
    disturbance_mbps: float = 0.0
    window_s: float = 1.0
    seconds: float = float("inf")
    """Time for planning: an algorithm that tries several plans returns the best found in time."""


@dataclass(frozen=True, slots=True)
class Makespan:
    """Shortest window for a volume."""

    window_s: float | None
    """Shortest window in which the algorithm's schedule carries everything; None: none found."""
    least_s: float
    """Lower bound of the window, for any schedule."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an algorithm for a demand."""

    algorithm: str
    entry: Entry
    refused: str = ""
    """Reason why there is no result."""
    result: PlanResult | None = None
    """Result; for one-way light paths on a fabric of one-way circuits, the rings made from the
    paths.
    """
    state: NetworkState | None = None
    """The result with VLANs, if the result consists of circuits."""
    planning_ms: float = 0.0
    vlans_ms: float = 0.0
    vlan_problem: str = ""
    """Reason why this fabric's range of VLANs is too small for the paths."""
    problems: tuple[str, ...] | None = None
    """Problems found by the independent checks; None: not checked."""
    makespan: Makespan | None = None
    """Times needed for the demand of a window; None: not computed."""

    @property
    def plan(self) -> PlanResult:
        """The result. Raises PlanError if there is none."""
        if self.result is None:
            raise PlanError(f"{self.algorithm} can't plan for this fabric: {self.refused}")
        return self.result


@dataclass(frozen=True)
class Study:
    """A demand on a fabric, with the standing circuits."""

    fabric: Fabric
    demand: DemandMatrix
    limits: Limits
    current: NetworkState = field(default_factory=NetworkState)

    @cached_property
    def arrays(self) -> FabricArrays:
        return FabricArrays.of(self.fabric)

    def run(self, name: str, *, check: bool) -> Outcome:
        """Plan with an algorithm. Raises PlanError, UnknownName."""
        return self.run_entry(name, entry(name), check=check)

    def run_entry(self, name: str, chosen: Entry, *, check: bool = True) -> Outcome:
        """Plan with an algorithm, perhaps from outside the project. Raises PlanError."""
        check_spines(self.fabric, self.demand)
        refused = self._objection(name, chosen)
        if refused is not None:
            return Outcome(name, chosen, refused=refused)
        budget = self._budget()
        started_s = time.perf_counter()
        now = self.current.topology
        try:
            planned = chosen.plan(self.arrays, self.demand, now, Reserved(), budget)
        except ForbiddenJoin as error:
            raise error.named(name, self.fabric) from error
        result = self._in_rings(planned, budget) if self._are_rings(chosen) else planned
        planned_s = time.perf_counter()
        state, vlan_problem = self._with_vlans(chosen, result)
        allocated_s = time.perf_counter()
        return Outcome(
            name,
            chosen,
            result=result,
            state=state,
            planning_ms=(planned_s - started_s) * 1000,
            vlans_ms=(allocated_s - planned_s) * 1000,
            vlan_problem=vlan_problem,
            problems=self._check(budget, planned, result, state) if check else None,
        )

    def _objection(self, name: str, chosen: Entry) -> str | None:
        """Reason why the fabric can't have the algorithm's product, in words; None if possible."""
        if self.fabric.one_way and chosen.product is Product.CIRCUITS:
            return objection(name, self.arrays, one_way=True)
        return chosen.objection(self.arrays)

    def _are_rings(self, chosen: Entry) -> bool:
        """True if the light paths could stand in this fabric, as circuits."""
        return self.fabric.one_way and chosen.product is Product.ONE_WAY

    def _in_rings(self, planned: PlanResult, budget: Budget) -> PlanResult:
        topology = ring_topology(self.arrays, planned, self.current.topology, budget)
        joined = np.zeros(self.demand.shape, dtype=bool)
        for path in topology.paths:
            joined[path.src, path.dst] = True
        carried = carried_mbps(self.arrays, self.demand, topology, Reserved())
        total_mbps = float(self.demand.sum())
        return PlanResult(
            topology,
            unserved=rack_pairs((self.demand > 0) & ~joined),
            served_share=float(carried.sum()) / total_mbps if total_mbps else 1.0,
            mean_hops=1.0 if topology.paths else 0.0,
            gap=planned.gap,
        )

    def with_makespan(self, outcome: Outcome) -> Outcome:
        """The outcome; for a schedule, with the shortest window for the window's demand."""
        if outcome.result is None or outcome.entry.product is not Product.SCHEDULE:
            return outcome
        budget = self._budget()
        volume_mbit = self.demand * self.limits.window_s
        return replace(
            outcome,
            makespan=Makespan(
                shortest_window_s(
                    outcome.entry.plan, self.arrays, volume_mbit, budget, budget.expired
                ),
                least_window_s(self.arrays, volume_mbit, budget.timing.switching_s),
            ),
        )

    def bound(self, product: Product) -> float | None:
        """Share of the demand that no plan of the given kind can exceed; None: not computed."""
        return plan_bound(
            self.arrays,
            self.demand,
            self.limits.max_hops,
            one_way=product is not Product.CIRCUITS,
            whole_fabric=self.limits.racks is None and self.limits.planes is None,
        )

    @property
    def _paths_per_pair(self) -> int | None:
        return self.fabric.paths_per_pair(self.limits.paths_per_pair)

    def _budget(self) -> Budget:
        limits = self.limits
        switching_s = max((p.switching_ms for p in self.fabric.planes), default=0.0) / 1000
        deadline_s = time.monotonic() + limits.seconds
        return Budget(
            limits.max_hops,
            racks=limits.racks,
            planes=limits.planes,
            blocked_ports=frozenset(
                port.id
                for port in self.fabric.ports
                if limits.use_planes is not None and port.plane not in limits.use_planes
            ),
            boolean=not limits.weighted,
            paths_per_pair=self._paths_per_pair,
            disturbance_mbps=limits.disturbance_mbps,
            timing=Timing(window_s=limits.window_s, switching_s=switching_s),
            expired=lambda: time.monotonic() > deadline_s,
        )

    def _with_vlans(self, chosen: Entry, result: PlanResult) -> tuple[NetworkState | None, str]:
        if chosen.product is not Product.CIRCUITS and not self._are_rings(chosen):
            return None, ""
        if result.topology == self.current.topology:
            return self.current, ""
        try:
            return marks_of(self.fabric).state(self.current, result.topology), ""
        except PlanError as error:
            return None, str(error)

    def _check(
        self,
        budget: Budget,
        planned: PlanResult,
        result: PlanResult,
        state: NetworkState | None,
    ) -> tuple[str, ...]:
        now = self.current
        problems = check_result(self.arrays, self.demand, now.topology, Reserved(), budget, planned)
        if result is not planned:
            problems += self._ring_problems(result)
        if state is not None:
            marks = marks_of(self.fabric)
            order = marks.order(now, state)
            problems += marks.problems(state)
            problems += marks.transit_problems(
                now, state, order.disconnect_first, order.connect_last
            )
        return tuple(problems)

    def _ring_problems(self, result: PlanResult) -> list[str]:
        problems = check_topology(
            self.arrays, result.topology, max_hops=1, paths_per_pair=self._budget().most_paths
        )
        load = count_load(self.arrays, self.demand, result.topology, Reserved())
        claimed_mbps = result.served_share * float(self.demand.sum())
        carried_mbps = sum(load.carried_mbps.values())
        if not np.isclose(claimed_mbps, carried_mbps):
            problems.append(
                f"{claimed_mbps:,.3f} Mb/s are claimed served on rings, not {carried_mbps:,.3f}"
            )
        return problems
