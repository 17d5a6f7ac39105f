"""Explanation of the present connection of two racks: circuits, demand, decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.decisions.builders import Builder
from hydra.decisions.decision import Action, Decision, SeenDemand
from hydra.faults.quarantine import Quarantined, in_words
from hydra.history import Happening
from hydra.lifecycle import ReservationState
from hydra.model import Circuit, DemandMatrix, Fabric, NetworkState, Path, RackId, VlanId
from hydra.policy import DemandBasis, Mode, Policy, Sharing
from hydra.reconfiguration.plan import pair_of
from hydra.reservations.admission import moment
from hydra.reservations.reservation import Reservation

_MOST_DECISIONS: Final = 5
MOST_HAPPENINGS: Final = 8
"""Largest number of reported history lines."""
_MOST_PORTS: Final = 6


@dataclass(frozen=True, slots=True)
class Explanation:
    """Facts about two racks, and their explanation in words."""

    a: RackId
    b: RackId
    circuits: tuple[Circuit, ...]
    """Circuits directly between the two racks."""
    paths: Mapping[Path, VlanId]
    """Paths of the traffic; empty: the traffic takes the electrical network."""
    users: tuple[Path, ...]
    """Every path over any of ``circuits``."""
    demand: tuple[SeenDemand, SeenDemand]
    """Present demand from a to b, and back."""
    reservations: tuple[str, ...]
    """Unfinished reservations between the two racks, including future reservations."""
    decisions: tuple[Decision, ...]
    """Decisions about a circuit between the two racks; newest first."""
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts for an explanation."""

    fabric: Fabric
    policy: Policy
    state: NetworkState
    rates_mbps: DemandMatrix
    estimated_mbps: DemandMatrix
    reservations: Sequence[Reservation]
    decisions: Sequence[Decision]
    """Newest first."""
    builders: Mapping[Circuit, Builder] = field(default_factory=dict)
    """Remembered reconfigurations that made circuits."""
    constrained: NDArray[np.bool_] | None = None
    predicted_mbps: DemandMatrix | None = None
    spilled: DemandMatrix | None = None
    expected_mbps: DemandMatrix | None = None
    """All four as in :class:`hydra.service.DemandReport`."""
    changes: Sequence[str] = ()
    """Unfinished staged changes, and their remaining work for the two racks, in words."""
    happened: Sequence[Happening] = ()
    """The latest history lines about the two racks, newest first."""
    quarantine: Sequence[Quarantined] = ()
    """Ports in quarantine or on trial."""
    now_unix_s: float = 0.0
    measured: bool = True
    """False: no traffic has been measured yet."""
    exclusions: Sequence[str] = ()
    """Devices of the two racks and of planes that planning excludes, in words."""

    @property
    def planned_mbps(self) -> DemandMatrix:
        """As in :class:`hydra.service.DemandReport`."""
        return self.estimated_mbps if self.predicted_mbps is None else self.predicted_mbps


def explain(evidence: Evidence, a: RackId, b: RackId) -> Explanation:
    """The explanation for two different racks."""
    topology = evidence.state.topology
    ends = {a, b}
    circuits = tuple(sorted(_between(evidence.fabric, topology.circuits, ends)))
    low, high = min(a, b), max(a, b)
    vlans = evidence.state.vlans
    paths = {p: vlans[p] for p in topology.paths if pair_of(p) == (low, high)}
    users = tuple(p for p in topology.paths if not set(circuits).isdisjoint(p.circuits))
    reserved = tuple(
        reservation.id
        for reservation in evidence.reservations
        if reservation.is_booked and {reservation.src_rack, reservation.dst_rack} == ends
    )
    concerning = tuple(
        decision
        for decision in evidence.decisions
        if decision.concerns(_touched(evidence.fabric, decision, ends))
    )
    found = Explanation(
        a,
        b,
        circuits,
        paths,
        users,
        (_demand(evidence, a, b), _demand(evidence, b, a)),
        reserved,
        concerning[:_MOST_DECISIONS],
        lines=(),
    )
    return replace(found, lines=tuple(_Words(evidence, found)))


def _between(fabric: Fabric, circuits: Iterable[Circuit], ends: set[RackId]) -> list[Circuit]:
    """Circuits directly between the two racks, in any direction."""
    return [circuit for circuit in circuits if set(fabric.racks_of(circuit)) == ends]


def _touched(fabric: Fabric, decision: Decision, ends: set[RackId]) -> list[Circuit]:
    proposal = decision.proposal
    if proposal is None:
        return []
    return _between(fabric, proposal.connect | proposal.disconnect, ends)


def _demand(evidence: Evidence, src: RackId, dst: RackId) -> SeenDemand:
    rate, estimated = evidence.rates_mbps[src, dst], evidence.estimated_mbps[src, dst]
    expected = estimated if evidence.expected_mbps is None else evidence.expected_mbps[src, dst]
    return SeenDemand(
        src,
        dst,
        rate_mbps=float(rate),
        estimated_mbps=float(estimated),
        expected_mbps=float(expected),
    )


def _counted_on(demand: SeenDemand) -> str:
    """The demand that plans count on, if less than the possible demand."""
    expected, estimated = f"{demand.expected_mbps:.1f}", f"{demand.estimated_mbps:.1f}"
    return "" if expected == estimated else f" (plans count on {expected})"


@dataclass(frozen=True, slots=True)
class _Words:
    evidence: Evidence
    found: Explanation

    def __iter__(self) -> Iterator[str]:
        yield from self._circuits_and_paths()
        yield from self._exclusions()
        yield from self.evidence.changes
        yield from self._demands()
        yield from self._decisions()
        for happening in self.evidence.happened:
            yield f"{moment(happening.unix_s)} {happening.text}"

    def _rack(self, rack: RackId) -> str:
        return self.evidence.fabric.racks[rack].name

    def _circuit(self, circuit: Circuit) -> str:
        return self.evidence.fabric.circuit_name(circuit)

    def _way(self, path: Path) -> str:
        """``r1 =p2= r3 =p1= r4``, hop by hop."""
        at, way = path.src, self._rack(path.src)
        for circuit in path.circuits:
            a, b = self.evidence.fabric.racks_of(circuit)
            at = b if a == at else a
            way += f" ={self.evidence.fabric.planes[circuit.plane].name}= {self._rack(at)}"
        return way

    def _circuits(self, circuits: Iterable[Circuit]) -> str:
        return ", ".join(self._circuit(circuit) for circuit in sorted(circuits))

    def _circuits_and_paths(self) -> Iterator[str]:
        found = self.found
        if self.evidence.fabric.one_way:
            for src, dst in ((found.a, found.b), (found.b, found.a)):
                yield from self._one_way_circuits(src, dst)
        else:
            yield from self._duplex_circuits()
        policy = self.evidence.policy
        if policy.mode is Mode.PERIODIC and policy.sharing is Sharing.SLOTTED:
            yield "circuits are shared by a schedule: `hydra schedule` lists the pairs by time"

    def _duplex_circuits(self) -> Iterator[str]:
        """Circuits and paths of two racks, for duplex circuits."""
        found = self.found
        pair = f"{self._rack(found.a)} and {self._rack(found.b)}"
        if found.circuits:
            users = ", ".join(f"{self._rack(p.src)} - {self._rack(p.dst)}" for p in found.users)
            yield f"{self._circuits(found.circuits)} stands, and carries: {users or 'nothing'}"
            yield from self._builders(found.circuits)
        else:
            yield f"no circuit joins {pair} directly"
        if not found.paths:
            yield f"traffic between {pair} takes the electrical network"
        if len(found.paths) > 1:
            yield f"traffic between {pair} is spread over {len(found.paths)} paths"
        for path in found.paths:
            if not set(path.circuits) <= set(found.circuits):
                yield f"traffic between {pair} takes {path.hops} hops: {self._way(path)}"

    def _one_way_circuits(self, src: RackId, dst: RackId) -> Iterator[str]:
        """One-way circuits from ``src`` to ``dst``, and their use."""
        fabric, found = self.evidence.fabric, self.found
        direction = f"from {self._rack(src)} to {self._rack(dst)}"
        circuits = [circuit for circuit in found.circuits if fabric.racks_of(circuit) == (src, dst)]
        paths = [path for path in found.paths if (path.src, path.dst) == (src, dst)]
        if circuits:
            carries = f"traffic {direction}" if paths else "nothing"
            yield f"{self._circuits(circuits)} stands, and carries: {carries}"
            yield from self._builders(circuits)
        else:
            yield f"no circuit leads {direction}"
        if not paths:
            yield f"traffic {direction} takes the electrical network"
        if len(paths) > 1:
            yield f"traffic {direction} is spread over {len(paths)} paths"
        if circuits and not self.evidence.planned_mbps[src, dst]:
            yield from self._reasons_of_idle(circuits)

    def _reasons_of_idle(self, circuits: Iterable[Circuit]) -> Iterator[str]:
        """Reasons why a ring needs circuits without demand."""
        fabric = self.evidence.fabric
        following = {circuit.a: circuit for circuit in self.evidence.state.topology.circuits}
        for circuit in circuits:
            port = fabric.ports[circuit.b]
            yield (
                f"no demand is planned on {self._circuit(circuit)}: the circuit may only close "
                f"a ring, and lights {self._rack(port.rack)}:{port.tor_port}, which sends on "
                f"{self._circuit(following[circuit.b])}"
            )

    def _builders(self, circuits: Iterable[Circuit]) -> Iterator[str]:
        for circuit in circuits:
            builder = self.evidence.builders.get(circuit)
            if builder is None:
                yield f"the reconfiguration that set up {self._circuit(circuit)} is not recorded"
            else:
                yield (
                    f"{self._circuit(circuit)} was set up by reconfiguration "
                    f"{builder.reconfiguration} of {moment(builder.unix_s)}, asked for by: "
                    f"{builder.trigger}"
                )

    def _exclusions(self) -> Iterator[str]:
        """Excluded devices; quarantined ports that failed the two racks, and other ports of the two
        racks.
        """
        yield from self.evidence.exclusions
        fabric, ends = self.evidence.fabric, {self.found.a, self.found.b}
        pair = min(ends), max(ends)
        failed = [
            quarantined for quarantined in self.evidence.quarantine if pair in quarantined.pairs
        ]
        others = [
            quarantined
            for quarantined in self.evidence.quarantine
            if pair not in quarantined.pairs and fabric.ports[quarantined.port].rack in ends
        ]
        both = [*failed, *others]
        for quarantined in both[:_MOST_PORTS]:
            yield in_words(fabric, quarantined, self.evidence.now_unix_s)
        if (more := len(both) - _MOST_PORTS) > 0:
            yield f"and {more} more ports of the two racks: see `hydra quarantine`"

    def _demands(self) -> Iterator[str]:
        if self.evidence.measured:
            yield (
                "rates of traffic are averages over "
                f"{self.evidence.policy.demand_window_s:g} s (policy.demand_window_s)"
            )
            for demand in self.found.demand:
                yield from self._demand_of(demand)
        else:
            yield "no traffic has been measured yet: the demand of the two racks is not known"
        for reservation in self.evidence.reservations:
            if reservation.id in self.found.reservations:
                yield self._reserved(reservation)

    def _demand_of(self, demand: SeenDemand) -> Iterator[str]:
        threshold_mbps = self.evidence.policy.elephant_mbps
        direction = f"{self._rack(demand.src)} to {self._rack(demand.dst)}"
        if demand.estimated_mbps:
            directions = {way for path in self.found.paths for way in path.directions}
            way = "by circuits" if (demand.src, demand.dst) in directions else "electrically"
            guess = _counted_on(demand) if self.evidence.predicted_mbps is None else ""
            yield (
                f"{direction} wants {demand.estimated_mbps:.1f} Mb/s, {self._known(demand)}"
                f"{guess}; gets {demand.rate_mbps:.1f} Mb/s {way}"
                f"{self._prediction(demand)}"
            )
            yield from self._spilled_flows(demand)
        elif demand.rate_mbps >= threshold_mbps:
            yield (
                f"{direction} sends {demand.rate_mbps:.1f} Mb/s, and no waiting traffic is reported"
                f"{self._prediction(demand)}"
            )
        elif self.evidence.planned_mbps[demand.src, demand.dst]:
            yield f"{direction} sends {demand.rate_mbps:.1f} Mb/s{self._prediction(demand)}"
        else:
            yield (
                f"{direction} sends {demand.rate_mbps:.1f} Mb/s: mice, left out of plans "
                f"(elephants begin at {threshold_mbps:g} Mb/s)"
            )

    def _reserved(self, reservation: Reservation) -> str:
        """Effect of a reservation between the two racks on the present path."""
        between = f"reservation {reservation.id} is between the two racks"
        if reservation.state is ReservationState.ACTIVE:
            if not reservation.is_protected:
                return f"{between}: the reserved path stays in place"
            standby = "is missing" if reservation.protection is None else "stays in place, too"
            return f"{between}: the reserved path stays in place; the path on standby {standby}"
        if reservation.state is ReservationState.ACTIVATING:
            return f"{between}, and the reserved path is being set up"
        begins = f"begins {moment(reservation.starts_unix_s)}, and has no path yet"
        return f"{between}, {reservation.state.value}: the reservation {begins}"

    def _known(self, demand: SeenDemand) -> str:
        """Source of the demand of a pair."""
        match self.evidence.policy.demand:
            case DemandBasis.RATE:
                return "by the present rate"
            case DemandBasis.BACKLOG:
                return "to send the waiting traffic"
        constrained = self.evidence.constrained
        if constrained is not None and constrained[demand.src, demand.dst]:
            return "by estimate: the pair is constrained, a link of the path is full"
        return "measured"

    def _spilled_flows(self, demand: SeenDemand) -> Iterator[str]:
        spilled = self.evidence.spilled
        if spilled is not None and (share := spilled[demand.src, demand.dst]):
            direction = f"{self._rack(demand.src)} to {self._rack(demand.dst)}"
            yield (
                f"1 in {round(1 / share)} flows from {direction} is electrical: the circuits are "
                f"full (policy.spill)"
            )

    def _prediction(self, demand: SeenDemand) -> str:
        predicted_mbps = self.evidence.predicted_mbps
        if predicted_mbps is None:
            return ""
        policy, predicted_demand_mbps = (
            self.evidence.policy,
            float(predicted_mbps[demand.src, demand.dst]),
        )
        part = demand.expected_mbps / demand.estimated_mbps if demand.estimated_mbps else 1.0
        planned = replace(
            demand, estimated_mbps=predicted_demand_mbps, expected_mbps=predicted_demand_mbps * part
        )
        return (
            f"; {policy.prediction.value} foretells {predicted_demand_mbps:.1f} for "
            f"the next {policy.prediction_horizon_s:g} s{_counted_on(planned)}"
        )

    def _decisions(self) -> Iterator[str]:
        if self.found.decisions:
            for decision in self.found.decisions:
                yield from self._decision(decision)
            return
        if not self.evidence.decisions:
            how = (
                "" if self.evidence.policy.mode is Mode.PERIODIC else ": policy.mode is on-request"
            )
            yield f"no decision has been made from measured demand{how}"
            return
        latest = self.evidence.decisions[0]
        yield f"{latest.words}; no recorded proposal changes a circuit between the two racks"
        seen = latest.seen(self.found.a, self.found.b) or latest.seen(self.found.b, self.found.a)
        if seen is None and latest.demand:
            yield "the demand of the two racks was not among the largest recorded demands"

    def _decision(self, decision: Decision) -> Iterator[str]:
        yield f"{decision.words} (asked by: {decision.trigger})"
        proposal = decision.proposal
        if proposal is None:
            return
        ends = {self.found.a, self.found.b}
        fabric = self.evidence.fabric
        did = decision.action is Action.CHANGE
        for verb, circuits in (
            ("set up" if did else "would set up", proposal.connect),
            ("took down" if did else "would take down", proposal.disconnect),
        ):
            concerned = _between(fabric, circuits, ends)
            if concerned:
                yield f"  the decision {verb} {self._circuits(concerned)}"
        for src, dst in ((self.found.a, self.found.b), (self.found.b, self.found.a)):
            seen = decision.seen(src, dst)
            if seen is not None:
                yield (
                    f"  demand seen: {self._rack(src)} to {self._rack(dst)}: {seen.rate_mbps:.1f} "
                    f"Mb/s sent, {seen.estimated_mbps:.1f} Mb/s planned for{_counted_on(seen)}"
                )
        yield (
            f"  before the decision, {decision.served_now_mbps:.1f} of {decision.demand_mbps:.1f} "
            f"Mb/s were served; with the plan of {proposal.algorithm}, {proposal.served_mbps:.1f}"
        )
        if decision.reconfiguration is not None:
            yield f"  carried out by reconfiguration {decision.reconfiguration}"
