"""Holdings of reservations, and the resulting forwarding of a vswitch."""

import pytest

from hydra.forwarding.class_table import TcpConnection, class_rules
from hydra.forwarding.match_action import Port, server_port, wired_port
from hydra.forwarding.pipeline import EXPEDITED, SHAPES
from hydra.forwarding.substrate import substrate_of
from hydra.lifecycle import ReservationState
from hydra.model import NetworkState, RackId
from hydra.reservations.reservation import Reservation, ServiceClass
from hydra.sharing.policing import (
    USABLE,
    Aggregate,
    Tally,
    aggregate_rules,
    electrical_rule,
    holdings,
    tally_rules,
)
from tests.unit.core.fabrics import (
    circuit_between,
    openflow_only,
    parallel_paths,
    path_of,
    small_fabric,
    state_of,
)
from tests.unit.forwarding.packets import IPV4, IPV6, forward, packet, sent_by

FABRIC = small_fabric(racks=3, planes=2, servers=2)
TORS = openflow_only(FABRIC)
R1, R2, R3 = (RackId(number) for number in range(3))
H11, H12, H21, H22, H31, _ = FABRIC.servers
ONE_HOP = path_of(FABRIC, 0, 1)
DIRECT = state_of(FABRIC, NetworkState(), ONE_HOP)
CIRCUIT = circuit_between(FABRIC, 0, 1)
THERE, BACK = (CIRCUIT, True), (CIRCUIT, False)


def reserved(src, dst, mbps=40.0, service=ServiceClass.SHARED, name="a", booked=ONE_HOP):
    racks = [
        FABRIC.rack_by_name[end].id if end in FABRIC.rack_by_name else rack_of(end)
        for end in (src, dst)
    ]
    return Reservation(
        name,
        ReservationState.ACTIVE,
        src,
        dst,
        mbps,
        None,
        *racks,
        0.0,
        None,
        0.0,
        booked,
        service=service,
    )


def rack_of(server):
    return FABRIC.server_by_name[server].rack


def held(*reservations, state=DIRECT):
    return held_on(FABRIC, state, reservations)


def held_on(fabric, state, reservations):
    return holdings(fabric, state.topology.paths, state.vlans, reservations)


FIRST, SECOND = parallel_paths(FABRIC)
TWO = state_of(FABRIC, NetworkState(), FIRST, SECOND)
BUNDLE = (
    reserved("h11", "h21", 90.0, booked=FIRST),
    reserved("h12", "r2", 60.0, name="b", booked=SECOND),
)


def test_reserved_server_pairs_keep_to_their_path_of_several():
    holding = held(*BUNDLE, state=TWO)
    number = {path: sorted(TWO.vlans.values()).index(vlan) for path, vlan in TWO.vlans.items()}
    assert holding.lanes == {
        Aggregate("h11", R2, "h21", reserved=True): number[FIRST],
        Aggregate("h21", R1, "h11", reserved=True): number[FIRST],
        Aggregate("h12", R2, reserved=True): number[SECOND],
        Aggregate("h21", R1, "h12", reserved=True): number[SECOND],
        Aggregate("h22", R1, "h12", reserved=True): number[SECOND],
    }
    assert set(holding.routes[Aggregate("h12", R2, reserved=True)]) <= {
        (circuit, True) for circuit in SECOND.circuits
    }
    assert Aggregate("h12", R2) not in {*holding.routes, *holding.electrical}, "all is reserved"
    assert Aggregate("h11", R2) in holding.electrical, "its hash might pick the path that is full"


def test_where_the_other_path_is_gone_there_is_nothing_to_tell_apart():
    assert held(*BUNDLE, state=state_of(FABRIC, TWO, FIRST)).lanes == {}


def test_nothing_is_held_where_nothing_is_reserved():
    assert held().routes == {}
    elsewhere = path_of(FABRIC, 0, 2)
    assert held(reserved("r1", "r3", booked=elsewhere)).flows == (), "its path does not stand"


def test_a_servers_reservation_is_held_against_the_rest_of_both_racks():
    holding = held(reserved("h11", "h21"))
    assert set(holding.routes) == {
        Aggregate("h11", R2, "h21", reserved=True),
        Aggregate("h11", R2),
        Aggregate("h12", R2),
        Aggregate("h21", R1, "h11", reserved=True),
        Aggregate("h21", R1),
        Aggregate("h22", R1),
    }
    assert set(holding.routes.values()) == {(THERE,), (BACK,)}
    assert holding.remaining_mbps == pytest.approx({THERE: 57.0, BACK: 57.0})
    assert holding.tallies == {Tally("h21", R1, "h11"), Tally("h11", R2, "h21")}


def test_racks_alone_on_their_circuit_meet_nobody():
    holding = held(reserved("r1", "r2"))
    assert set(holding.routes.values()) == {()}
    assert {aggregate.sender for aggregate in holding.routes} == {"h11", "h12", "h21", "h22"}
    assert holding.remaining_mbps == {}


def test_two_reservations_of_a_pair_meet():
    holding = held(reserved("r1", "r2", 40.0), reserved("h11", "r2", 30.0, name="b"))
    assert holding.remaining_mbps[THERE] == pytest.approx(USABLE * 100 - 70)
    both = Aggregate("h11", R2, reserved=True)
    assert [both in flow.aggregates for flow in holding.flows if flow.source == R1] == [True, True]
    assert not [
        aggregate
        for aggregate in holding.routes
        if not aggregate.reserved and aggregate.sender == "h12"
    ]


def relayed():
    """r1-r3 over r2, beside r1-r2 and r2-r3."""
    first, second = circuit_between(FABRIC, 0, 1), circuit_between(FABRIC, 1, 2, plane=1)
    paths = (path_of(FABRIC, 0, 1), path_of(FABRIC, 1, 2, second))
    return first, second, (*paths, path_of(FABRIC, 0, 2, first, second))


def test_those_that_pass_through_are_held_too():
    first, second, paths = relayed()
    state = state_of(FABRIC, NetworkState(), *paths)
    holding = held(reserved("r1", "r2"), state=state)
    assert holding.routes[Aggregate("h11", R3)] == ((first, True),)
    assert holding.routes[Aggregate("h31", R1)] == ((first, False),)
    assert (second, True) not in holding.remaining_mbps, "nobody reserved that one"
    assert Aggregate("h21", R3) not in holding.routes


@pytest.mark.parametrize("swapped", [False, True])
def test_best_effort_counts_on_each_of_its_paths_and_takes_none_if_one_has_no_room(swapped):
    """r1-r3 twice over r2: r1-r2 has a reservation on one path's circuit, r2-r3 on the other's."""
    fabric = small_fabric(racks=3, planes=4, servers=2)
    near = [circuit_between(fabric, 0, 1, plane) for plane in (0, 2)]
    far = [circuit_between(fabric, 1, 2, plane) for plane in (1, 3)]
    one, other = path_of(fabric, 0, 1, near[swapped]), path_of(fabric, 1, 2, far[not swapped])
    both = [path_of(fabric, 0, 2, *circuits) for circuits in zip(near, far, strict=True)]
    state = state_of(fabric, NetworkState(), one, other, *both)
    shared = reserved("r1", "r2", booked=one)
    holding = held_on(fabric, state, [shared, reserved("r2", "r3", name="b", booked=other)])
    assert set(holding.routes[Aggregate("h11", R3)]) == {
        (near[swapped], True),
        (far[not swapped], True),
    }
    alone = reserved("r2", "r3", service=ServiceClass.GUARANTEED, name="b", booked=other)
    holding = held_on(fabric, state, [shared, alone])
    assert Aggregate("h11", R3) in holding.electrical
    assert Aggregate("h11", R3) not in holding.routes
    assert holding.routes[Aggregate("h11", R2, reserved=True)] == (), "it meets nobody any more"


def test_a_reservation_by_way_of_another_rack_holds_every_circuit():
    first, second, paths = relayed()
    state = state_of(FABRIC, NetworkState(), *paths)
    holding = held(reserved("r1", "r3", 30.0, booked=paths[2]), state=state)
    assert holding.routes[Aggregate("h11", R3, reserved=True)] == ((first, True), (second, True))
    assert holding.routes[Aggregate("h21", R3)] == ((second, True),)
    assert holding.remaining_mbps[second, True] == pytest.approx(67.0)


@pytest.mark.parametrize(
    ("mbps", "service"), [(40.0, ServiceClass.GUARANTEED), (90.0, ServiceClass.SHARED)]
)
def test_best_effort_is_electrical_where_too_little_is_left(mbps, service):
    """An electrical uplink carries 10 Mb/s."""
    holding = held(reserved("h11", "h21", mbps, service))
    assert {Aggregate("h11", R2), Aggregate("h12", R2), Aggregate("h22", R1)} <= holding.electrical
    assert holding.routes[Aggregate("h11", R2, "h21", reserved=True)] == (), (
        "it meets nobody any more"
    )


def test_best_effort_reservations_hold_nothing_and_are_counted():
    holding = held(reserved("h11", "h21", 40.0, ServiceClass.BEST_EFFORT))
    assert holding.routes == {}
    assert holding.remaining_mbps == {}
    assert Tally("h21", R1, "h11") in holding.tallies


# --- rules --------------------------------------------------------------------------------------


class Switch:
    """The switch that steers for ``server``: its vswitch, or the ToR for it and its neighbours.

    Each aggregate has a separate meter.
    """

    def __init__(self, fabric, server, holding, *more, state=DIRECT):
        substrate = substrate_of(fabric)
        self.server = fabric.server_by_name[server]
        steering = substrate.steering(self.server.rack)
        (switch,) = (one for one in steering if self.server in one.servers)
        own = {one.name: one for one in switch.servers}
        self.rules = [*substrate.rules(switch.datapath, state, ()), *more]
        self.meters = {}

        def hold(name, rules):
            self.rules += [substrate.for_server(rule, own[name]) for rule in rules]

        aggregates = [aggregate for aggregate in holding.routes if aggregate.sender in own]
        for number, aggregate in enumerate(aggregates, start=1):
            self.meters[number] = aggregate
            lane = holding.lanes.get(aggregate)
            hold(aggregate.sender, aggregate_rules(fabric, aggregate, number, lane))
        for aggregate in holding.electrical:
            if aggregate.sender in own:
                hold(aggregate.sender, [electrical_rule(aggregate)])
        for number, tally in enumerate(sorted(holding.tallies), start=1):
            if tally.receiver in own:
                hold(tally.receiver, tally_rules(fabric, tally, number))
        place = fabric.racks[self.server.rack].servers.index(self.server)
        is_tor = len(own) > 1
        self.host = server_port(place) if is_tor else Port.HOST
        self.optical = wired_port(0) if is_tor else Port.OPTICAL

    def metered(self, sent):
        """The class of the packet, and its code point on leaving."""
        passed = []
        out = forward(self.rules, sent_by(self.server, sent), self.host, passed=passed)
        aggregates = [
            self.meters[rule.args[SHAPES[rule.kind].meter.index]]
            for rule in passed
            if SHAPES[rule.kind].meter is not None
        ]
        marks = [
            action.codepoint
            for rule in passed
            for action in SHAPES[rule.kind].actions
            if hasattr(action, "codepoint")
        ]
        return out, aggregates, marks


@pytest.mark.parametrize("fabric", [FABRIC, TORS], ids=["vswitches", "ToRs"])
@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
class TestRules:
    def test_reserved_packets_are_marked_and_metered_and_so_are_others_apart(
        self, fabric, eth_type
    ):
        holding = held(reserved("h11", "h21"))
        switch = Switch(fabric, "h11", holding)
        vlan = DIRECT.vlans[path_of(FABRIC, 0, 1)]
        out, aggregates, marks = switch.metered(packet(H21, eth_type))
        assert out == [(switch.optical, vlan)]
        assert aggregates == [Aggregate("h11", R2, "h21", reserved=True)]
        assert marks == [EXPEDITED]
        out, aggregates, marks = switch.metered(packet(H22, eth_type))
        assert out == [(switch.optical, vlan)]
        assert aggregates == [Aggregate("h11", R2)]
        assert marks == [0], "what a server marks itself does not count"
        assert switch.metered(packet(H31, eth_type)) == ([(Port.ELECTRICAL, None)], [], [])
        neighbour = Switch(fabric, "h12", holding)
        assert neighbour.metered(packet(H21, eth_type))[1:] == ([Aggregate("h12", R2)], [0])

    def test_what_has_to_stay_off_the_circuit_leaves_electrically(self, fabric, eth_type):
        switch = Switch(fabric, "h11", held(reserved("h11", "h21", 40.0, ServiceClass.GUARANTEED)))
        assert switch.metered(packet(H22, eth_type))[0] == [(Port.ELECTRICAL, None)]
        assert switch.metered(packet(H21, eth_type))[0][0][0] == switch.optical

    def test_a_reservation_of_racks_is_for_all_of_their_servers(self, fabric, eth_type):
        holding = held(reserved("r1", "r2"), reserved("h12", "h22", name="b"))
        for name in ("h11", "h12"):
            switch = Switch(fabric, name, holding)
            assert switch.metered(packet(H21, eth_type))[1] == [Aggregate(name, R2, reserved=True)]
        assert switch.metered(packet(H22, eth_type))[1] == [
            Aggregate("h12", R2, "h22", reserved=True)
        ]

    @pytest.mark.parametrize("flow", range(4))
    def test_no_hash_takes_reserved_packets_off_their_path(self, fabric, eth_type, flow):
        state = state_of(fabric, NetworkState(), FIRST, SECOND)
        holding = held(*BUNDLE, state=state)
        for name, dst, path in (
            ("h11", H21, FIRST),
            ("h21", H11, FIRST),
            ("h12", H21, SECOND),
            ("h12", H22, SECOND),
            ("h21", H12, SECOND),
            ("h22", H12, SECOND),
        ):
            switch = Switch(fabric, name, holding, state=state)
            ((_port, vlan),), (aggregate,), marks = switch.metered(packet(dst, eth_type, flow=flow))
            assert vlan == state.vlans[path], (name, dst.name)
            assert aggregate.reserved
            assert marks == [EXPEDITED]
        beside = Switch(fabric, "h11", holding, state=state).metered(
            packet(H22, eth_type, flow=flow)
        )
        assert beside == ([(Port.ELECTRICAL, None)], [], [])

    def test_where_circuits_are_for_elephants_mice_stay_off_what_reservations_leave(
        self, fabric, eth_type
    ):
        version = 4 if eth_type == IPV4 else 6
        (address,) = (one.ip for one in H22.addresses if one.version == version)
        elephants = class_rules([TcpConnection(address, 40000, 5201)])
        switch = Switch(fabric, "h11", held(reserved("h11", "h21")), *elephants)
        elephant = {"ip_proto": 6, "tcp_src": 40000, "tcp_dst": 5201}
        out, aggregates, _ = switch.metered(packet(H22, eth_type, **elephant))
        assert (out[0][0], aggregates) == (switch.optical, [Aggregate("h11", R2)])
        mouse = elephant | {"tcp_src": 40001}
        assert switch.metered(packet(H22, eth_type, **mouse)) == ([(Port.ELECTRICAL, None)], [], [])
        out, aggregates, marks = switch.metered(packet(H21, eth_type, **mouse))
        assert (out[0][0], marks) == (switch.optical, [EXPEDITED]), "what is reserved is no mouse"
        assert aggregates == [Aggregate("h11", R2, "h21", reserved=True)]

    def test_what_comes_by_circuit_is_counted_where_it_ends(self, fabric, eth_type):
        holding = held(reserved("h11", "h21"), reserved("r1", "h21", name="b"))
        switch = Switch(fabric, "h21", holding)

        def counted(sender, vlan, port=switch.optical):
            passed = []
            sent = packet(H21, eth_type, vlan, **source(sender, eth_type))
            assert forward(switch.rules, sent, port, passed=passed) == [(switch.host, None)]
            return passed[0].kind.name.removeprefix("TOR_")

        version = "V4" if eth_type == IPV4 else "V6"
        assert counted(H11, 100) == f"DELIVERED_HOST_{version}"
        assert counted(H12, 100) == f"DELIVERED_{version}"
        assert not counted(H31, 100).startswith("DELIVERED")
        untagged = Port.ELECTRICAL if fabric is TORS else Port.OPTICAL
        assert not counted(H11, None, untagged).startswith("DELIVERED"), "that came by no circuit"


def source(server, eth_type):
    version = 4 if eth_type == IPV4 else 6
    (address,) = (int(a.ip) for a in server.addresses if a.version == version)
    return {f"ipv{version}_src": address}
