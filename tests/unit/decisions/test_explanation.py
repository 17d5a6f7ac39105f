from dataclasses import replace

import numpy as np
import pytest

from apps.offline.rehearsal import Rehearsal
from hydra.decisions.builders import Builder
from hydra.decisions.decision import Action, seen_demand
from hydra.decisions.explanation import Evidence, explain
from hydra.demand.elephants import ElephantWatch
from hydra.faults.quarantine import Quarantined
from hydra.lifecycle import ReservationState
from hydra.model import Circuit, NetworkState, Path, RackId, Topology, VlanId
from hydra.policy import DemandBasis, Mode, Policy, Prediction, Sharing, SlotPolicy
from hydra.reservations.reservation import Reservation
from hydra.worth import no_plan
from tests.unit.core.fabrics import small_fabric, with_one_way_circuits

FABRIC = small_fabric(racks=4, planes=1, servers=2)
POLICY = Policy(mode=Mode.PERIODIC)
HOPS = (0, 0), (1, 0), (1, 1), (2, 1)
R1, R2, R3, R4 = (RackId(rack) for rack in range(4))


def rates(**pairs):
    """``r1_r2=40`` is 40 Mbps from r1 to r2."""
    demand = np.zeros((4, 4))
    for names, mbps in pairs.items():
        src, dst = (int(name[1]) - 1 for name in names.split("_"))
        demand[src, dst] = mbps
    return demand


def evidence(*epochs, policy=POLICY, fabric=FABRIC):
    """The demand after a round of the periodic mode; the last demand continues."""
    loop = Rehearsal(fabric, policy, outage_s=0.3)
    decisions = []
    for number, demand in enumerate(epochs):
        loop.see(60.0 * number, demand)
        decisions.append(loop.step(60.0 * number))
    demand = epochs[-1] if epochs else rates()
    elephants = ElephantWatch(policy.elephant_mbps, policy.elephant_release).elephants(demand)
    estimated = loop.planning.rates.estimate(elephants)
    return Evidence(fabric, policy, loop.state, demand, estimated, (), decisions[::-1])


def test_why_a_circuit_stands():
    found = explain(evidence(rates(r1_r2=40)), R1, R2)
    assert [FABRIC.racks_of(circuit) for circuit in found.circuits] == [(R1, R2)]
    assert set(found.paths) == set(found.users)
    assert list(found.lines) == [
        "r1 =p1= r2 stands, and carries: r1 - r2",
        "the reconfiguration that set up r1 =p1= r2 is not recorded",
        "rates of traffic are averages over 3 s (policy.demand_window_s)",
        "r1 to r2 wants 200.0 Mb/s, measured; gets 40.0 Mb/s by circuits",
        "r2 to r1 sends 0.0 Mb/s: mice, left out of plans (elephants begin at 1 Mb/s)",
        "1970-01-01T00:00:00Z change: gains 800.0 Mbit for a cost of 0.0 Mbit "
        "(asked by: rehearsal)",
        "  the decision set up r1 =p1= r2",
        "  demand seen: r1 to r2: 40.0 Mb/s sent, 200.0 Mb/s planned for (plans count on 89.4)",
        "  before the decision, 20.0 of 200.0 Mb/s were served; with the plan of anytime, 100.0",
    ]


@pytest.mark.parametrize(
    ("basis", "wanted_mbps", "line"),
    [
        (
            DemandBasis.ESTIMATE,
            80.0,
            "r3 to r4 wants 80.0 Mb/s, by estimate: the pair is constrained, a link of the path is "
            "full; gets 7.4 Mb/s electrically",
        ),
        (
            DemandBasis.RATE,
            7.4,
            "r3 to r4 wants 7.4 Mb/s, by the present rate; gets 7.4 Mb/s electrically",
        ),
        (
            DemandBasis.BACKLOG,
            12.0,
            "r3 to r4 wants 12.0 Mb/s, to send the waiting traffic; gets 7.4 Mb/s electrically",
        ),
        (DemandBasis.BACKLOG, 0.0, "r3 to r4 sends 7.4 Mb/s, and no waiting traffic is reported"),
    ],
)
def test_how_a_demand_is_known(basis, wanted_mbps, line):
    known = replace(
        evidence(),
        policy=replace(POLICY, demand=basis),
        rates_mbps=rates(r3_r4=7.4),
        estimated_mbps=rates(r3_r4=wanted_mbps),
        constrained=rates(r3_r4=1) > 0,
    )
    assert line in explain(known, R3, R4).lines


def test_what_plans_count_on_is_told_where_it_is_less_than_may_be_wanted():
    known = replace(
        evidence(),
        rates_mbps=rates(r3_r4=7.4, r4_r3=7.0),
        estimated_mbps=rates(r3_r4=20.0, r4_r3=7.35),
        constrained=rates(r3_r4=1) > 0,
        expected_mbps=rates(r3_r4=12.5, r4_r3=7.35),
    )
    found = explain(known, R3, R4)
    assert [one.expected_mbps for one in found.demand] == [12.5, 7.35]
    assert (
        "r3 to r4 wants 20.0 Mb/s, by estimate: the pair is constrained, a link of the path is "
        "full (plans count on 12.5); gets 7.4 Mb/s electrically"
    ) in found.lines
    assert "r4 to r3 wants 7.3 Mb/s, measured; gets 7.0 Mb/s electrically" in found.lines


def test_what_is_foretold_is_told_apart():
    known = replace(
        evidence(),
        policy=replace(POLICY, prediction=Prediction.HOLT),
        rates_mbps=rates(r3_r4=7.1),
        estimated_mbps=rates(r3_r4=7.4),
        predicted_mbps=rates(r3_r4=9.0),
    )
    assert (
        "r3 to r4 wants 7.4 Mb/s, measured; gets 7.1 Mb/s electrically; "
        "holt foretells 9.0 for the next 10 s"
    ) in explain(known, R3, R4).lines
    slotted = Policy(
        mode=Mode.PERIODIC,
        sharing=Sharing.SLOTTED,
        prediction=Prediction.HOLT,
        slots=SlotPolicy(week_s=60.0),
    )
    lines = explain(replace(known, policy=slotted), R3, R4).lines
    assert any(line.endswith("holt foretells 9.0 for the next 60 s") for line in lines)


def test_a_demand_that_is_foretold_alone_is_planned_for():
    """The demand of a formerly busy pair that rests."""
    known = replace(
        evidence(),
        policy=replace(POLICY, prediction=Prediction.PEAK),
        rates_mbps=rates(r3_r4=0.4),
        estimated_mbps=rates(),
        predicted_mbps=rates(r3_r4=90.0),
    )
    lines = explain(known, R3, R4).lines
    assert "r3 to r4 sends 0.4 Mb/s; peak foretells 90.0 for the next 10 s" in lines
    assert ("r4 to r3 sends 0.0 Mb/s: mice, left out of plans (elephants begin at 1 Mb/s)") in lines


def test_what_plans_count_on_is_a_part_of_what_is_foretold():
    known = replace(
        evidence(),
        policy=replace(POLICY, prediction=Prediction.HOLT),
        rates_mbps=rates(r3_r4=7.4),
        estimated_mbps=rates(r3_r4=20.0),
        expected_mbps=rates(r3_r4=12.5),
        predicted_mbps=rates(r3_r4=30.0),
    )
    assert (
        "r3 to r4 wants 20.0 Mb/s, measured; gets 7.4 Mb/s electrically; "
        "holt foretells 30.0 for the next 10 s (plans count on 18.8)"
    ) in explain(known, R3, R4).lines


def test_flows_that_spill_are_named_with_the_reason():
    known = replace(
        evidence(rates(r1_r2=95)),
        policy=POLICY,
        rates_mbps=rates(r1_r2=95),
        estimated_mbps=rates(r1_r2=100, r2_r1=100),
        spilled=rates(r1_r2=1 / 6),
    )
    lines = explain(known, R1, R2).lines
    assert [line for line in lines if "flows" in line] == [
        "1 in 6 flows from r1 to r2 is electrical: the circuits are full (policy.spill)"
    ]


def test_who_set_it_up():
    loop = evidence(rates(r1_r2=40))
    (circuit,) = loop.state.topology.circuits
    known = replace(loop, builders={circuit: Builder("7f3a", "operator", 0.0)})
    assert explain(known, R1, R2).lines[1] == (
        "r1 =p1= r2 was set up by reconfiguration 7f3a of 1970-01-01T00:00:00Z, asked for by: "
        "operator"
    )


def test_why_there_is_none():
    found = explain(evidence(rates(r1_r2=40)), R3, R4)
    assert (found.circuits, found.paths, found.decisions) == ((), {}, ())
    assert found.lines[:2] == (
        "no circuit joins r3 and r4 directly",
        "traffic between r3 and r4 takes the electrical network",
    )
    assert found.lines[-2:] == (
        "1970-01-01T00:00:00Z change: gains 800.0 Mbit for a cost of 0.0 Mbit; "
        "no recorded proposal changes a circuit between the two racks",
        "the demand of the two racks was not among the largest recorded demands",
    )


def test_a_port_that_is_left_out_is_named_with_the_reason():
    """Also a port of another rack, on a path of the two racks; ports that failed the two racks come
    first.
    """
    by_rack = {port.rack: port.id for port in FABRIC.ports}
    out = (
        Quarantined(by_rack[R1], "set aside: cleaned", 0.0, None),
        Quarantined(by_rack[R3], "carrier lost at r3", 30.0, 90.0, ((R1, R2),)),
        Quarantined(by_rack[R4], "no light", 30.0, 90.0, ((R3, R4),)),
    )

    def lines(now_s):
        found = explain(replace(evidence(), quarantine=out, now_unix_s=now_s), R2, R1)
        return [line for line in found.lines if " is left " in line or " on trial" in line]

    aside = "left out of plans until cleared, since 1970-01-01T00:00:00Z: set aside: cleaned"
    names = [f"{FABRIC.racks[r].name}:{FABRIC.ports[by_rack[r]].tor_port}" for r in (R3, R1)]
    lost = "since 1970-01-01T00:00:30Z: carrier lost at r3"
    assert lines(60.0) == [
        f"{names[0]} is left out of plans until 1970-01-01T00:01:30Z, {lost}",
        f"{names[1]} is {aside}",
    ]
    assert lines(100.0)[0] == f"{names[0]} is on trial, {lost}"


def test_devices_that_plans_leave_out_come_before_what_the_two_want():
    known = replace(evidence(), exclusions=("optical switch p1 is left out: it is away",))
    assert explain(known, R1, R2).lines[2] == "optical switch p1 is left out: it is away"


def test_before_anything_is_measured_nothing_is_said_of_rates():
    lines = explain(replace(evidence(), measured=False), R1, R2).lines
    assert "no traffic has been measured yet: the demand of the two racks is not known" in lines
    assert not any("mice" in line or "averages" in line for line in lines)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("active", ": the reserved path stays in place"),
        ("activating", ", and the reserved path is being set up"),
        (
            "scheduled",
            ", scheduled: the reservation begins 1970-01-01T01:00:00Z, and has no path yet",
        ),
        ("held", ", held: the reservation begins 1970-01-01T01:00:00Z, and has no path yet"),
        ("failed", None),
    ],
)
def test_a_reservation_is_told_by_what_it_has_now(state, words):
    one = Reservation(
        "7f3a", ReservationState(state), "r1", "r2", 10.0, None, R1, R2, 0.0, None, 3600.0
    )
    lines = explain(replace(evidence(), reservations=(one,)), R2, R1).lines
    told = [line for line in lines if "7f3a" in line]
    assert told == ([] if words is None else [f"reservation 7f3a is between the two racks{words}"])


def test_of_many_ports_that_are_left_out_some_are_named():
    fabric = small_fabric(racks=4, planes=3)
    out = [Quarantined(one.id, "no light", 0.0, None, ((R1, R2),)) for one in fabric.ports]
    told = explain(replace(evidence(fabric=fabric), quarantine=out), R1, R2).lines
    assert sum("is left out of plans" in line for line in told) == 6
    assert f"and {len(out) - 6} more ports of the two racks: see `hydra quarantine`" in told


def test_what_could_not_be_planned_is_told_without_guesses():
    nothing = replace(evidence(), decisions=[no_plan("no demand yet", frozenset(), (), "me", 0.0)])
    assert explain(nothing, R1, R2).lines[-1] == (
        "1970-01-01T00:00:00Z no plan: no demand yet; "
        "no recorded proposal changes a circuit between the two racks"
    )


def test_a_change_that_did_not_pay_is_named():
    miserly = replace(POLICY, minimum_gain_mbps=1000.0)
    found = explain(evidence(rates(r1_r2=40), policy=miserly), R2, R1)
    assert found.circuits == ()
    assert [one.action for one in found.decisions] == [Action.KEEP]
    assert any("keep: gains 80.0 Mb/s, less than 1000 Mb/s" in line for line in found.lines)
    assert "  the decision would set up r1 =p1= r2" in found.lines


def test_a_circuit_that_was_taken_down():
    found = explain(evidence(rates(r1_r2=40), rates(r1_r3=40, r2_r4=40)), R1, R2)
    assert found.circuits == ()
    newest, oldest = found.decisions
    assert (newest.unix_s, oldest.unix_s) == (60.0, 0.0)
    assert "  the decision took down r1 =p1= r2" in found.lines


def test_slots_are_pointed_to():
    told = "circuits are shared by a schedule: `hydra schedule` lists the pairs by time"
    slotted = replace(POLICY, sharing=Sharing.SLOTTED)
    assert told in explain(evidence(rates(r1_r2=40), policy=slotted), R1, R3).lines
    assert told not in explain(evidence(rates(r1_r2=40)), R1, R3).lines


def test_hops_are_told_in_the_order_of_the_way():
    fabric = small_fabric(racks=4, planes=2, servers=2)
    first, second, relay, back = (fabric.ports_of(rack)[plane] for rack, plane in HOPS)
    near = Circuit(first.plane, *sorted((first.id, second.id)))
    far = Circuit(relay.plane, *sorted((relay.id, back.id)))
    path = Path(R3, R1, (far, near))
    assert sorted(path.circuits) != [*path.circuits]
    state = NetworkState(1, Topology(frozenset(path.circuits), (path,)), {path: VlanId(100)})
    none = np.zeros((4, 4))
    found = explain(Evidence(fabric, POLICY, state, none, none, (), ()), R1, R3)
    assert "traffic between r1 and r3 takes 2 hops: r3 =p2= r2 =p1= r1" in found.lines


def test_a_relay_is_described_by_its_hops():
    fabric = small_fabric(racks=4, planes=2, servers=2)
    first, second, relay, back = (fabric.ports_of(rack)[plane] for rack, plane in HOPS)
    near = Circuit(first.plane, *sorted((first.id, second.id)))
    far = Circuit(relay.plane, *sorted((relay.id, back.id)))
    path = Path(R1, R3, (near, far))
    state = NetworkState(1, Topology(frozenset(path.circuits), (path,)), {path: VlanId(100)})
    none = np.zeros((4, 4))
    found = explain(Evidence(fabric, POLICY, state, none, none, (), ()), R3, R1)
    assert (found.circuits, found.paths) == ((), {path: 100})
    assert found.lines[:2] == (
        "no circuit joins r3 and r1 directly",
        "traffic between r3 and r1 takes 2 hops: r1 =p1= r2 =p2= r3",
    )
    used = explain(Evidence(fabric, POLICY, state, none, none, (), ()), R1, R2)
    assert used.lines[0] == "r1 =p1= r2 stands, and carries: r1 - r3"


ONE_WAY = with_one_way_circuits(FABRIC)
LIGHT_PATHS = replace(POLICY, algorithm="helios")


def test_one_way_circuits_are_told_by_direction():
    seen = evidence(rates(r1_r2=40, r2_r3=30), policy=LIGHT_PATHS, fabric=ONE_WAY)
    found = explain(seen, R2, R1)
    assert [ONE_WAY.racks_of(circuit) for circuit in found.circuits] == [(R1, R2)]
    assert set(found.paths) == set(found.users)
    assert found.lines[:4] == (
        "no circuit leads from r2 to r1",
        "traffic from r2 to r1 takes the electrical network",
        "r1 =p1> r2 stands, and carries: traffic from r1 to r2",
        "the reconfiguration that set up r1 =p1> r2 is not recorded",
    )
    assert "  the decision set up r1 =p1> r2" in found.lines
    assert not any("close a ring" in line for line in found.lines)


def test_what_only_lights_a_port_is_told():
    seen = evidence(rates(r1_r2=40, r2_r3=30), policy=LIGHT_PATHS, fabric=ONE_WAY)
    (closing,) = [one for one in seen.state.topology.circuits if ONE_WAY.racks_of(one) == (R3, R1)]
    port = ONE_WAY.ports[closing.b].tor_port
    assert (
        "no demand is planned on r3 =p1> r1: the circuit may only close a ring, and lights "
        f"r1:{port}, which sends on r1 =p1> r2"
    ) in explain(seen, R1, R3).lines


def test_two_racks_may_be_joined_by_a_circuit_each_way():
    seen = evidence(rates(r1_r2=40, r2_r1=30), policy=LIGHT_PATHS, fabric=ONE_WAY)
    lines = explain(seen, R1, R2).lines
    assert lines[0] == "r1 =p1> r2 stands, and carries: traffic from r1 to r2"
    assert lines[2] == "r2 =p1> r1 stands, and carries: traffic from r2 to r1"


@pytest.mark.parametrize(
    ("mode", "why"), [(Mode.PERIODIC, ""), (Mode.ON_REQUEST, ": policy.mode is on-request")]
)
def test_when_nothing_was_decided(mode, why):
    found = explain(evidence(policy=replace(POLICY, mode=mode)), R1, R2)
    assert found.lines[-1] == f"no decision has been made from measured demand{why}"


def test_only_the_largest_demands_are_remembered_and_they_come_first():
    demand = np.arange(100.0 * 100).reshape(100, 100)
    seen = seen_demand(demand, *np.zeros((2, 100, 100)))
    assert len(seen) == 64
    assert [one.rate_mbps for one in seen[:3]] == [9999, 9998, 9997]
    assert (seen[0].src, seen[0].dst) == (99, 99)


def test_an_empty_network_has_a_state_to_explain():
    assert explain(evidence(), R1, R2).paths == {}
    assert evidence().state == NetworkState()
