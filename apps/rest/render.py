"""From the core's types to what the REST API shows: numbers become names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

import numpy as np

from apps.rest import models
from hydra.access import Caller
from hydra.config.reload import in_force
from hydra.decisions.decision import Decision, SeenDemand
from hydra.decisions.explanation import Explanation
from hydra.demand.load import Load, Series
from hydra.events import DeviceAlarm, Event, Progress
from hydra.faults.conditions import Condition
from hydra.history import Happening
from hydra.model import (
    Circuit,
    CrossConnect,
    Fabric,
    NetworkState,
    OpticalPort,
    Path,
    PortId,
    RackId,
    VlanId,
)
from hydra.policy import Policy, Taken
from hydra.port_labels import wired_name, wired_to
from hydra.reconfiguration.plan import Pair
from hydra.reservations.bundle import Bundle
from hydra.reservations.reservation import GONE, Reservation
from hydra.roles import Task
from hydra.service import (
    Delivery,
    DemandReport,
    GroupOutcome,
    PlanReport,
    QuarantinedPort,
    Reconfiguration,
    ReservationPreview,
)


def circuit(fabric: Fabric, circuit: Circuit) -> models.Circuit:
    return models.Circuit(
        plane=fabric.planes[circuit.plane].name,
        a=_end(fabric, fabric.ports[circuit.a]),
        b=_end(fabric, fabric.ports[circuit.b]),
        rate_mbps=fabric.rate_of(circuit),
        one_way=circuit.one_way,
    )


def circuits(fabric: Fabric, many: Iterable[Circuit]) -> list[models.Circuit]:
    return [circuit(fabric, one) for one in sorted(many)]


def _end(fabric: Fabric, port: OpticalPort) -> models.CircuitEnd:
    return models.CircuitEnd(rack=fabric.racks[port.rack].name, port=port.tor_port)


def path(fabric: Fabric, path: Path, vlan: VlanId | None, src: RackId | None = None) -> models.Path:
    """``path`` as it is met when walked from rack ``src`` (default: its own order)."""
    start = path.src if src is None else src
    along = path.circuits if start == path.src else tuple(reversed(path.circuits))
    hops: list[models.Hop] = []
    at = start
    for one in along:
        near, far = fabric.ports[one.a], fabric.ports[one.b]
        if near.rack != at:
            near, far = far, near
        hops.append(
            models.Hop(
                plane=fabric.planes[one.plane].name,
                from_rack=fabric.racks[near.rack].name,
                from_port=near.tor_port,
                to_rack=fabric.racks[far.rack].name,
                to_port=far.tor_port,
                rate_mbps=fabric.rate_of(one),
            )
        )
        at = far.rack
    end = path.dst if start == path.src else path.src
    return models.Path(
        src=fabric.racks[start].name,
        dst=fabric.racks[end].name,
        vlan=vlan,
        hops=hops,
        one_way=path.one_way,
    )


def _paths(
    fabric: Fabric, paths: Sequence[Path], vlans: Mapping[Path, VlanId]
) -> list[models.Path]:
    return [path(fabric, one, vlans.get(one)) for one in paths]


def live_circuit(
    fabric: Fabric, one: Circuit, rates_mbps: Mapping[PortId, float]
) -> models.LiveCircuit:
    return models.LiveCircuit(
        **circuit(fabric, one).model_dump(),
        a_to_b_mbps=rates_mbps.get(one.a),
        b_to_a_mbps=None if one.one_way else rates_mbps.get(one.b),
    )


def topology(
    fabric: Fabric, state: NetworkState, rates_mbps: Mapping[PortId, float]
) -> models.Topology:
    return models.Topology(
        fabric=fabric.name,
        epoch=state.epoch,
        racks=[rack.name for rack in fabric.racks],
        planes=list(map(models.Plane.model_validate, fabric.planes)),
        electrical_rate_mbps=fabric.electrical_rate_mbps,
        circuits=[live_circuit(fabric, one, rates_mbps) for one in sorted(state.topology.circuits)],
        paths=_paths(fabric, state.topology.paths, state.vlans),
        resting_vlans=sorted(state.resting),
    )


def load(fabric: Fabric, found: Load) -> models.Load:
    return models.Load(
        interval_s=found.interval_s,
        unix_s=[round(at, 3) for at in found.unix_s.tolist()],
        circuits=[
            models.CircuitLoad(
                **circuit(fabric, one.circuit).model_dump(),
                a_to_b_mbps=_series(one.a_to_b_mbps),
                b_to_a_mbps=None if one.b_to_a_mbps is None else _series(one.b_to_a_mbps),
            )
            for one in found.circuits
        ],
        pairs=[
            models.PairLoad(
                src=fabric.racks[one.src].name,
                dst=fabric.racks[one.dst].name,
                mbps=_series(one.mbps),
            )
            for one in found.pairs
        ],
    )


def _series(samples_mbps: Series) -> list[float | None]:
    """Samples to a kb/s, and None where there is none."""
    return [None if math.isnan(mbps) else round(mbps, 3) for mbps in samples_mbps.tolist()]


def demand(fabric: Fabric, report: DemandReport, policy: Policy) -> models.Demand:
    nobody = np.zeros_like(report.rate_mbps)
    backlog_mbps = nobody if report.backlog_mbps is None else report.backlog_mbps
    held_back = nobody if report.constrained is None else report.constrained
    spilled = nobody if report.spilled is None else report.spilled
    error_mbps, planned_mbps = report.error_mbps, report.planned_mbps
    expected_mbps = report.estimated_mbps if report.expected_mbps is None else report.expected_mbps
    wanted = (report.estimated_mbps > 0) | (planned_mbps > 0)
    pairs = np.argwhere((report.rate_mbps > 0) | wanted)
    return models.Demand(
        source=report.source,
        basis=report.basis,
        window_s=policy.demand_window_s,
        age_s=report.age_s,
        stale=list(report.stale),
        troubles=dict(report.troubles),
        prediction=policy.prediction,
        prediction_error=report.error_share,
        entries=[
            models.MeasuredDemand(
                src=fabric.racks[src].name,
                dst=fabric.racks[dst].name,
                rate_mbps=float(report.rate_mbps[src, dst]),
                estimated_mbps=float(report.estimated_mbps[src, dst]),
                expected_mbps=float(expected_mbps[src, dst]),
                backlog_mbps=float(backlog_mbps[src, dst]),
                constrained=bool(held_back[src, dst]),
                electrical_share=float(spilled[src, dst]),
                planned_mbps=float(planned_mbps[src, dst]),
                error_mbps=None if error_mbps is None else float(error_mbps[src, dst]),
            )
            for src, dst in pairs
        ],
    )


def reservation(fabric: Fabric, one: Reservation) -> models.Reservation:
    return models.Reservation(
        id=one.id,
        state=one.state,
        src=one.src,
        dst=one.dst,
        src_rack=_rack_name(fabric, one.src_rack),
        dst_rack=_rack_name(fabric, one.dst_rack),
        bandwidth_mbps=one.bandwidth_mbps,
        wanted_mbps=one.wanted_mbps,
        minimum_mbps=one.minimum_mbps,
        priority=one.priority,
        service=one.service,
        duration_s=one.duration_s,
        created_unix_s=one.created_unix_s,
        start_unix_s=one.starts_unix_s,
        expires_unix_s=one.expires_unix_s,
        held_until_unix_s=one.held_until_unix_s,
        group=one.group,
        booked=None if one.booked is None else path(fabric, one.booked, None, one.src_rack),
        path=None if one.path is None else path(fabric, one.path, one.vlan, one.src_rack),
        bundle=one.bundle,
        parts=[_part(fabric, part) for part in one.parts] if isinstance(one, Bundle) else [],
        reason=one.reason,
        since_unix_s=one.since_unix_s,
    )


def _part(fabric: Fabric, one: Reservation) -> models.Part:
    document = reservation(fabric, one)
    return models.Part(
        id=one.id,
        state=one.state,
        src=one.src,
        dst=one.dst,
        bandwidth_mbps=one.bandwidth_mbps,
        booked=document.booked,
        path=document.path,
    )


def _rack_name(fabric: Fabric, rack: RackId) -> str:
    return "" if rack == GONE else fabric.racks[rack].name


def delivery(one: Delivery) -> models.Delivery:
    return models.Delivery(
        reservation=one.reservation.id,
        state=one.reservation.state,
        promised_mbps=one.reservation.promised_mbps,
        there_mbps=one.there_mbps,
        back_mbps=one.back_mbps,
        unheld=list(one.unheld),
    )


def preview(fabric: Fabric, one: ReservationPreview) -> models.ReservationPreview:
    document = reservation(fabric, one.reservation)
    return models.ReservationPreview(
        state=document.state,
        bandwidth_mbps=document.bandwidth_mbps,
        booked=document.booked,
        parts=document.parts,
        start_unix_s=document.start_unix_s,
        expires_unix_s=document.expires_unix_s,
        connect=circuits(fabric, one.connect),
        disconnect=circuits(fabric, one.disconnect),
        at_risk=list(one.at_risk),
    )


def group(fabric: Fabric, identifier: str, members: Iterable[Reservation]) -> models.Group:
    return models.Group(id=identifier, reservations=[reservation(fabric, one) for one in members])


def created_group(
    fabric: Fabric, outcome: GroupOutcome, members: Iterable[Reservation]
) -> models.CreatedGroup:
    return models.CreatedGroup(
        id=outcome.group,
        reservations=[reservation(fabric, one) for one in members],
        refused=[
            models.RefusedEntry(
                src=one.request.src,
                dst=one.request.dst,
                bandwidth_mbps=one.request.bandwidth_mbps,
                detail=str(one.error),
                alternatives=list(map(models.Alternative.model_validate, one.error.alternatives)),
            )
            for one in outcome.refused
        ],
    )


def event(fabric: Fabric, one: Event, caller: Caller) -> models.Event | None:
    """None if ``caller`` is a tenant whose reservations it is not about.

    Why a circuit moves is not for tenants: it may be another's reservation, or an operator's wish.
    """
    mine = [reservation.id for reservation in one.served if caller.sees(reservation)]
    about = mine if one.reservation is None else caller.sees(one.reservation)
    if caller.tenant is not None and not about:
        return None
    return models.Event(
        kind=one.kind,
        unix_s=one.unix_s,
        reservation=None if one.reservation is None else reservation(fabric, one.reservation),
        circuit=None if one.circuit is None else circuit(fabric, one.circuit),
        reservations=mine,
        reconfiguration=_progress(one.progress),
        alarm=_device_alarm(one.alarm),
        reason=one.reason if caller.tenant is None or one.reservation is not None else "",
    )


def _device_alarm(one: DeviceAlarm | None) -> models.DeviceAlarm | None:
    return None if one is None else models.DeviceAlarm(device=one.device, **asdict(one.alarm))


def _progress(one: Progress | None) -> models.Progress | None:
    return None if one is None else models.Progress.model_validate(one)


def plan(fabric: Fabric, report: PlanReport) -> models.Plan:
    steps = report.plan
    return models.Plan(
        current_epoch=steps.current.epoch,
        paths=_paths(fabric, steps.target.topology.paths, steps.target.vlans),
        connect=circuits(fabric, steps.connect),
        disconnect=circuits(fabric, steps.disconnect),
        affected_pairs=rack_pairs(fabric, sorted(steps.affected)),
        retagged_ports=steps.retagged_ports,
        rules=report.rules,
        served_mbps=report.served_mbps,
        demand_mbps=report.demand_mbps,
        on_circuits=(
            None
            if report.on_circuits is None
            else models.CircuitShares.model_validate(report.on_circuits)
        ),
        verdict=models.Verdict.model_validate(report.verdict),
        planning_ms=report.planning_ms,
        at_risk=list(report.at_risk),
        stages=[
            models.Stage(
                pairs=rack_pairs(fabric, sorted(stage.pairs)),
                diverted_mbps=stage.diverted_mbps,
                beyond=[
                    models.RackLoad(rack=fabric.racks[rack].name, mbps=mbps)
                    for rack, mbps in sorted(stage.beyond.items())
                ],
                detoured=rack_pairs(fabric, sorted(stage.detoured)),
                last=stage.last,
            )
            for stage in report.stages
        ],
    )


def rack_pairs(fabric: Fabric, pairs: Iterable[Pair]) -> list[models.RackPair]:
    racks = fabric.racks
    return [models.RackPair(src=racks[src].name, dst=racks[dst].name) for src, dst in pairs]


def reconfiguration(fabric: Fabric, one: Reconfiguration) -> models.Reconfiguration:
    return models.Reconfiguration(
        id=one.id,
        state=one.state,
        trigger=one.trigger,
        epoch=one.epoch,
        created_unix_s=one.created_unix_s,
        started_unix_s=one.started_unix_s,
        timeline=list(map(models.Step.model_validate, one.timeline)),
        rules_pushed=one.rules_pushed,
        ports_retagged=one.ports_retagged,
        connected=circuits(fabric, one.connected),
        disconnected=circuits(fabric, one.disconnected),
        failures=[
            models.CircuitFailure(circuit=circuit(fabric, each.circuit), **asdict(each.failure))
            for each in one.failures
        ],
        troubles=list(map(models.Failure.model_validate, one.troubles)),
        unconfirmed=list(one.unconfirmed),
        reason=one.reason,
        stages_done=one.stages_done,
        stages_expected=one.stages_expected,
        paused=one.paused,
    )


def quarantined(fabric: Fabric, one: QuarantinedPort) -> models.QuarantinedPort:
    port = fabric.ports[one.entry.port]
    return models.QuarantinedPort(
        rack=fabric.racks[port.rack].name,
        port=port.tor_port,
        plane=fabric.planes[port.plane].name,
        reason=one.entry.reason,
        since_unix_s=one.entry.since_unix_s,
        until_unix_s=one.entry.until_unix_s,
        on_trial=one.on_trial,
    )


_LISTED: Final = 20
"""Most subjects, pairs and reservations of a condition that are listed."""


def conditions(fabric: Fabric, many: Sequence[Condition]) -> models.Conditions:
    return models.Conditions(
        healthy=not many,
        conditions=[
            models.Condition(
                kind=one.kind,
                what=one.what,
                since_unix_s=one.since_unix_s,
                done=one.done,
                to_do=one.to_do,
                command=one.command,
                subjects=list(one.subjects[:_LISTED]),
                subjects_total=len(one.subjects),
                pairs=rack_pairs(fabric, one.pairs[:_LISTED]),
                pairs_total=len(one.pairs),
                reservations=list(one.reservations[:_LISTED]),
                reservations_total=len(one.reservations),
            )
            for one in many
        ],
    )


def history(lines: Sequence[Happening], most: int) -> models.History:
    """``lines`` are one more than ``most`` if there is another page."""
    shown = lines[:most]
    return models.History(
        happenings=[
            models.Happening(
                unix_s=one.unix_s,
                kind=one.kind,
                text=one.text,
                pairs=[models.RackPair(src=a, dst=b) for a, b in one.pairs[:_LISTED]],
            )
            for one in shown
        ],
        next_before_unix_s=shown[-1].unix_s if len(lines) > most else None,
    )


def task(fabric: Fabric, plane: str, asked: Task) -> models.Task:
    wired = wired_to(fabric, fabric.plane_by_name[plane].id)

    def end(port: int) -> str | None:
        return wired_name(fabric, wired.get(port))

    def pairs(many: Iterable[CrossConnect]) -> list[models.PluggedPair]:
        return [
            models.PluggedPair(
                ingress=one.ingress,
                egress=one.egress,
                ingress_wired_to=end(one.ingress),
                egress_wired_to=end(one.egress),
            )
            for one in many
        ]

    return models.Task(
        id=asked.id,
        state=asked.state,
        disconnect=pairs(asked.disconnect),
        connect=pairs(asked.connect),
        created_unix_s=asked.created_unix_s,
        settled_unix_s=asked.settled_unix_s,
        note=asked.note,
    )


def decision(fabric: Fabric, one: Decision) -> models.Decision:
    proposal = one.proposal
    return models.Decision(
        unix_s=one.unix_s,
        trigger=one.trigger,
        action=one.action,
        reason=one.reason,
        standing=circuits(fabric, one.standing),
        served_now_mbps=one.served_now_mbps,
        demand_mbps=one.demand_mbps,
        demand=_seen(fabric, one.demand),
        proposal=None
        if proposal is None
        else models.Proposal(
            algorithm=proposal.algorithm,
            connect=circuits(fabric, proposal.connect),
            disconnect=circuits(fabric, proposal.disconnect),
            served_mbps=proposal.served_mbps,
            verdict=models.Verdict.model_validate(proposal.verdict),
        ),
        reconfiguration=one.reconfiguration,
    )


def _seen(fabric: Fabric, many: Iterable[SeenDemand]) -> list[models.SeenDemand]:
    return [
        models.SeenDemand(
            src=fabric.racks[one.src].name,
            dst=fabric.racks[one.dst].name,
            rate_mbps=one.rate_mbps,
            estimated_mbps=one.estimated_mbps,
            expected_mbps=one.expected_mbps,
        )
        for one in many
    ]


def explanation(fabric: Fabric, found: Explanation) -> models.Explanation:
    return models.Explanation(
        circuits=circuits(fabric, found.circuits),
        paths=[path(fabric, one, vlan) for one, vlan in found.paths.items()],
        users=rack_pairs(fabric, [(one.src, one.dst) for one in found.users]),
        demand=_seen(fabric, found.demand),
        reservations=list(found.reservations),
        decisions=[decision(fabric, one) for one in found.decisions],
        lines=list(found.lines),
    )


def policy(policy: Policy) -> models.PolicyInForce:
    return models.PolicyInForce(
        values=[
            models.PolicyValue(
                key=key,
                value=value,
                at_once=taken is not Taken.AT_START,
                by_request=taken is Taken.AT_ONCE,
            )
            for key, value, taken in in_force(policy)
        ]
    )
