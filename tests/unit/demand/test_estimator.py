"""Demand of a small fabric: 10 Mb/s electrical uplinks, servers' links and circuits of 100 Mb/s."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from apps.demand.estimator import DemandEstimator
from apps.demand.poller import Inlet
from apps.planning.engine import Planning
from hydra.demand.counters import Sent
from hydra.demand.reported_backlog import Believed
from hydra.model import NetworkState
from hydra.policy import CurrentPolicy, DemandBasis, Mode, Policy, Sharing, SlotPolicy, Spill
from hydra.service import PlanRequest
from tests.unit.core.fabrics import (
    circuit_between,
    openflow_only,
    path_of,
    single_homed,
    small_fabric,
    state_of,
)
from topology.estimator import HEADROOM

FABRIC = small_fabric(racks=4, planes=1, servers=2)
H11, H12, H21 = 0, 1, 2
R1, R2, R3, R4 = range(4)


def waiting(*rows):
    """Agents' reports: (server, rack, Mb/s beyond the sent rate, total Mb/s, connections)."""
    table = np.array(rows, dtype=float).reshape(-1, 5)
    return Believed(*table[:, :2].T.astype(np.intp), *table[:, 2:].T)


NOBODY = waiting()
CIRCUIT = circuit_between(FABRIC, R1, R2)
JOINED = state_of(FABRIC, NetworkState(), path_of(FABRIC, R1, R2, CIRCUIT))


class Network:
    """The controller's view; ``find`` after ten more seconds."""

    def __init__(self, fabric=FABRIC, **policy):
        policy = CurrentPolicy(Policy(elephant_mbps=1.0, **policy))
        self.estimator = DemandEstimator(fabric, policy)
        self.now_s = 0.0

    def find(
        self,
        *sent,
        state=None,
        ports=None,
        received=None,
        backlog=NOBODY,
        metered=None,
        after_s=10.0,
        spilled=None,
    ):
        """``sent`` are (source, rack, Mb/s); Mb/s in the last interval and in the lesser of the
        last two, if different.
        """
        self.now_s += after_s
        table = np.array([(*one, one[-1], one[-1])[:5] for one in sent], dtype=float)
        table = table.reshape(-1, 5)
        seen = Sent(*table[:, :2].T.astype(np.intp), *table[:, 2:].T)
        return self.estimator.find(
            seen,
            ports or {},
            received or {},
            backlog,
            state or NetworkState(),
            self.now_s,
            metered or {},
            spilled,
        )


def test_a_pair_that_was_held_back_is_so_until_readings_began_after_the_change():
    network = Network(poll_interval_s=1.0)
    assert network.find((H11, R2, 9.5)).constrained[R1, R2]
    straddling = {"state": JOINED, "ports": {CIRCUIT.a: 18.0, CIRCUIT.b: 0.0}, "after_s": 1.0}
    found = network.find((H11, R2, 13.0, 18.0), **straddling)
    assert found.constrained[R1, R2]
    assert found.wanted_mbps[R1, R2] == pytest.approx(100.0)
    whole = straddling | {"ports": {CIRCUIT.a: 30.0, CIRCUIT.b: 0.0}}
    network.find((H11, R2, 20.0, 30.0), **whole)
    found = network.find((H11, R2, 30.0), **whole)
    assert not found.constrained[R1, R2], "its circuit has come, and it takes 30 of 100"
    assert found.wanted_mbps[R1, R2] == pytest.approx(30 * HEADROOM)


def test_averages_lag_behind_a_circuit_that_has_come():
    """The last reading counts if higher, until the average has followed."""
    network = Network(poll_interval_s=1.0, demand_window_s=3.0)
    network.find((H11, R2, 6.0))
    ports = {CIRCUIT.a: 40.0, CIRCUIT.b: 0.0}
    found = network.find((H11, R2, 9.0, 40.0), state=JOINED, ports=ports, after_s=1.0)
    assert found.wanted_mbps[R1, R2] == pytest.approx(40 * HEADROOM)
    assert found.sent_mbps[R1, R2] == 9.0
    found = network.find((H11, R2, 30.0, 40.0), state=JOINED, ports=ports, after_s=20.0)
    assert found.wanted_mbps[R1, R2] == pytest.approx(30 * HEADROOM), "bursts do not count then"


def test_racks_that_no_change_touches_are_seen_as_they_are():
    network = Network()
    assert network.find((H11, R2, 9.5), (2 * R3, R4, 9.5)).constrained[R3, R4]
    ports = {CIRCUIT.a: 30.0, CIRCUIT.b: 0.0}
    found = network.find((H11, R2, 30.0), (2 * R3, R4, 2.0), state=JOINED, ports=ports, after_s=1)
    assert found.constrained[R1, R2]
    assert not found.constrained[R3, R4]


def test_nothing_is_learnt_of_readings_that_a_change_falls_into():
    network = Network()
    network.find((H11, R2, 9.5), state=JOINED, ports={CIRCUIT.a: 9.5, CIRCUIT.b: 0.0})
    network.find((H11, R2, 2.0), after_s=1.0)  # TCP restarts
    found = network.find((H11, R2, 2.0, 9.5), after_s=1.0)
    assert found.wanted_mbps[R1, R2] > 9


def test_a_pair_that_is_held_back_in_one_slot_is_so_in_the_week():
    slotted = {"mode": Mode.PERIODIC, "sharing": Sharing.SLOTTED}
    network = Network(**slotted, slots=SlotPolicy(slot_s=5.0, week_s=10.0))
    ports = {CIRCUIT.a: 100.0, CIRCUIT.b: 0.0}
    assert network.find((H11, R2, 100.0), state=JOINED, ports=ports).constrained[R1, R2]
    network.find((H11, R2, 50.0, 8.0), after_s=2.5)
    found = network.find((H11, R2, 40.0, 8.0), after_s=2.5)  # TCP does not fill the uplink now
    assert found.constrained[R1, R2]
    assert found.wanted_mbps[R1, R2] == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("received_mbps", "expected_mbps"),
    [(0.0003, 9.6 * HEADROOM), (0.005, 100.0), (9.6 * 54 / 524280, 100.0), (None, 100.0)],
    ids=["nobody answers", "TCP is acknowledged", "for each 512 kB", "not known"],
)
def test_traffic_that_nobody_answers_is_expected_to_want_what_it_sends(
    received_mbps, expected_mbps
):
    received = {} if received_mbps is None else {Inlet(H11, electrical=False): received_mbps}
    found = Network().find((H11, R2, 9.6), received=received)
    assert found.constrained[R1, R2]
    assert found.wanted_mbps[R1, R2] == pytest.approx(100.0), "it may be TCP for all that"
    assert found.expected_mbps[R1, R2] == pytest.approx(expected_mbps)


def test_traffic_that_pauses_is_not_unanswered():
    """Its average continues, while no byte is sent that could be acknowledged."""
    received = {Inlet(H11, electrical=False): 0.0}
    sent = (H11, R2, 6.0, 0.0, 0.0), (H12, R3, 9.5)
    found = Network(single_homed(FABRIC)).find(*sent, received=received)
    assert found.constrained[R1, [R2, R3]].all(), "their rack's uplink is full"
    assert found.expected_mbps.tolist() == found.wanted_mbps.tolist()


def test_a_packet_now_and_then_is_no_answer():
    network = Network(poll_interval_s=0.5)
    nothing, packet = ({Inlet(H11, electrical=False): mbps} for mbps in (0.0, 0.001))

    def expected_mbps(received):
        found = network.find((H11, R2, 9.6), received=received, after_s=0.5)
        return found.expected_mbps[R1, R2]

    known = pytest.approx(9.6 * HEADROOM)
    assert [expected_mbps(one) for one in (nothing, packet, packet, packet)] == [known] * 4
    assert expected_mbps(packet) == pytest.approx(100.0)


def test_a_full_uplink_hides_what_its_server_wants():
    found = Network().find((H11, R2, 7.2), (H11, R3, 1.8), (H12, R4, 6.0))
    assert found.wanted_mbps[R1, [R2, R3]] == pytest.approx([80.0, 20.0])
    assert found.wanted_mbps[R1, R4] == pytest.approx(6 * HEADROOM), "another server, with room"
    assert found.constrained[R1].tolist() == [False, True, True, False]
    assert found.sent_mbps[R1].tolist() == [0.0, 7.2, 1.8, 6.0]


def test_averages_may_lag_behind_what_fills_an_uplink():
    found = Network().find((H11, R2, 3.0, 9.5))
    assert found.constrained[R1, R2]
    assert found.wanted_mbps[R1, R2] == pytest.approx(100.0)


def test_one_reading_that_holds_what_was_sent_in_two_fills_no_uplink():
    """A busy Open vSwitch updates counters late."""
    found = Network().find((H11, R2, 6.6, 12.6, 0.3))
    assert not found.constrained.any()
    assert found.wanted_mbps[R1, R2] == pytest.approx(6.6 * HEADROOM)


def test_nothing_is_learnt_of_what_may_be_full():
    """One reading shows a full uplink, or a calm one after it: neither shows a demand."""
    for average_mbps, latest_mbps, least_mbps in ((3.0, 9.5, 0.0), (9.0, 0.5, 0.5)):
        network = Network()
        network.find((H11, R2, average_mbps, latest_mbps, least_mbps))
        found = network.find((H11, R2, 9.2))
        assert found.wanted_mbps[R1, R2] == pytest.approx(100.0)


def test_a_pair_on_a_circuit_of_its_own_is_measured():
    circuit_mbps = {CIRCUIT.a: 30.0, CIRCUIT.b: 0.0}
    found = Network().find((H11, R2, 30.0), state=JOINED, ports=circuit_mbps)
    assert not found.constrained.any()
    assert found.wanted_mbps[R1, R2] == pytest.approx(30 * HEADROOM)


def test_a_full_circuit_holds_back_both_servers_that_use_it():
    sent = (H11, R2, 60.0), (H12, R2, 35.0)
    found = Network().find(*sent, state=JOINED, ports={CIRCUIT.a: 95.0, CIRCUIT.b: 0.0})
    assert found.constrained[R1, R2]
    assert 150 < found.wanted_mbps[R1, R2] <= 200


def test_what_a_pair_wanted_on_its_circuit_is_known_when_it_has_lost_it():
    network = Network()
    network.find((H11, R2, 30.0), state=JOINED, ports={CIRCUIT.a: 30.0, CIRCUIT.b: 0.0})
    found = network.find((H11, R2, 9.5))
    assert found.constrained[R1, R2]
    assert found.wanted_mbps[R1, R2] == pytest.approx(30 * HEADROOM)
    for _ in range(6):
        found = network.find((H11, R2, 9.5))
    assert found.wanted_mbps[R1, R2] == pytest.approx(100.0), "a minute later it may be more"


def test_a_receiver_that_is_full_holds_back_its_senders():
    """Many to one: no uplink is full, and of the rack's two downlinks only one."""
    sent = (H11, R2, 5.0), (H12, R2, 5.0)
    into_h21 = {Inlet(H21, electrical=True): 9.8, Inlet(H21, electrical=False): 9.8}
    into_h22 = {Inlet(H21 + 1, electrical=True): 0.1, Inlet(H21 + 1, electrical=False): 0.1}
    found = Network().find(*sent, received={**into_h21, **into_h22})
    assert found.constrained[R1, R2]
    assert found.wanted_mbps[R1, R2] == pytest.approx(100.0), "one server's link, not two"
    assert not Network().find(*sent).constrained.any(), "where nobody counts it, nobody knows"


@pytest.mark.parametrize("attach", [single_homed, openflow_only])
def test_servers_that_share_their_racks_uplink(attach):
    fabric = attach(FABRIC)
    source = range(2) if attach is single_homed else (0, 0)
    found = Network(fabric).find((source[0], R2, 6.0), (source[1], R3, 3.5))
    assert found.constrained[R1, [R2, R3]].all()
    assert (found.wanted_mbps[R1, [R2, R3]] > 50).all()


def test_counters_before_a_full_queue_may_show_more_than_it_lets_through():
    """Datagrams at three times the uplink's rate beside TCP: no reading is in doubt."""
    network = Network()
    found = network.find((H11, R2, 30.0), (H11, R3, 1.5))
    assert found.constrained[R1, [R2, R3]].all()
    assert network.estimator.troubles() == {}


def test_datagrams_that_an_uplink_loses_fill_no_queue_behind_it():
    """The uplink of H11 passes 10 of H11's 30 Mb/s, of the 20 that R3 may receive."""
    found = Network().find((H11, R3, 30.0), (H21, R3, 1.0))
    assert found.constrained[R1, R3]
    assert not found.constrained[R2, R3]


def test_datagrams_that_overrun_an_uplink_show_their_size_and_greedy_traffic_is_tried_first():
    """Uplinks of 10 Mb/s: one server sends 30 into its uplink, another server's TCP uses its full
    rate.
    """
    found = Network().find((H11, R2, 9.5), (H12, R3, 30.0))
    assert found.constrained[R1, [R2, R3]].all()
    assert found.wanted_mbps[R1, [R2, R3]] == pytest.approx([100.0, 100.0])
    assert found.expected_mbps[R1, R3] == pytest.approx(HEADROOM * 30)
    assert found.expected_mbps[R1, R2] > found.expected_mbps[R1, R3]


def test_what_is_no_guess_needs_no_mean():
    for basis in (DemandBasis.RATE, DemandBasis.BACKLOG):
        assert Network(demand=basis).find((H11, R2, 9.5)).expected_mbps is None
    nothing = Network().find((H11, R2, 0.5), (H12, R3, 30.0)).expected_mbps[R1, R2]
    assert nothing == 0, "mice"


def test_elephants_alone_have_a_demand():
    found = Network().find((H11, R2, 9.0), (H11, R3, 0.5))
    assert found.wanted_mbps[R1, R3] == 0
    assert not found.constrained[R1, R3]
    assert found.sent_mbps[R1, R3] == 0.5


def test_what_waits_is_wanted_and_no_more():
    backlog = waiting((H11, R2, 40.0, 25.0, 0))
    found = Network().find((H11, R2, 6.0), (H11, R3, 3.5), backlog=backlog)
    assert found.wanted_mbps[R1, [R2, R3]] == pytest.approx([46.0, 54.0])
    assert found.backlog_mbps[R1, R2] == 40.0


@pytest.mark.parametrize("claimed_mbps", [0.0, 0.001, 0.5])
@pytest.mark.parametrize("connections", [0, 1])
def test_who_claims_too_little_wants_what_is_measured_at_least(claimed_mbps, connections):
    claim = waiting((H11, R2, claimed_mbps, claimed_mbps, connections))
    sent = (H11, R2, 7.2), (H11, R3, 2.0)  # on a full uplink, or on an uplink with room
    held_back = Network().find(*sent, backlog=claim)
    assert held_back.constrained[R1, R2]
    assert (held_back.wanted_mbps >= held_back.sent_mbps).all()
    free = Network().find((H11, R2, 6.0), (H12, R3, 2.0), backlog=claim)
    assert not free.constrained[R1, R3]
    assert (free.wanted_mbps >= free.sent_mbps).all()


def test_slots_are_as_long_as_pairs_want():
    """Two racks that share the only plane with a third: before, all estimates were equal."""
    found = Network().find((H11, R2, 6.0), (H11, R3, 2.0))
    planning = Planning(FABRIC, Policy())
    slots = SlotPolicy(slot_s=1.0, week_s=10.0)
    nobody = NetworkState()
    week = planning.week(nobody, PlanRequest(), found.wanted_mbps, (), (), slots, 0.1)
    days_s = {pair: light_s - week.night_s for pair, light_s in week.light_s().items()}
    assert days_s == {(R1, R2): pytest.approx(7.35), (R1, R3): pytest.approx(2.45)}


def test_connections_say_more_than_shares_do():
    """Two full uplinks, with one and with nine connections, to the same server."""
    sent = (H11, R3, 9.5), (H21, R3, 9.5)
    into = {Inlet(2 * R3, electrical=False): 19.0, Inlet(2 * R3 + 1, electrical=False): 0.0}
    by_shares = Network().find(*sent, received=into)
    assert by_shares.wanted_mbps[[R1, R2], R3] == pytest.approx([50.0, 50.0])
    told = waiting((H11, R3, 0, 0, 1), (H21, R3, 0, 0, 9))
    found = Network().find(*sent, received=into, backlog=told)
    assert found.wanted_mbps[[R1, R2], R3] == pytest.approx([10.0, 90.0])


def test_who_tells_no_connections_has_as_many_for_what_it_sends():
    sent = (H11, R2, 6.0), (H11, R3, 3.0)
    found = Network().find(*sent, backlog=waiting((H11, R2, 0, 0, 40)))
    assert found.wanted_mbps[R1, [R2, R3]] == pytest.approx([200 / 3, 100 / 3])


def test_a_plan_may_be_made_for_what_is_sent_or_for_what_waits():
    sent = (H11, R2, 7.2), (H11, R3, 1.8), (H12, R4, 0.5)
    backlog = waiting((H11, R2, 40.0, 8.0, 0), (H11, R3, 10.0, 24.0, 0), (H12, R4, 0, 3.0, 0))
    by_rate = Network(demand=DemandBasis.RATE).find(*sent, backlog=backlog)
    assert by_rate.wanted_mbps[R1].tolist() == [0.0, 7.2, 1.8, 0.0], "mice have no demand"
    by_backlog = Network(demand=DemandBasis.BACKLOG).find(*sent, backlog=backlog)
    assert by_backlog.wanted_mbps[R1].tolist() == [0.0, 8.0, 24.0, 0.0]
    assert by_backlog.constrained[R1].tolist() == [False, True, True, False]


def test_a_meter_that_drops_holds_back_what_it_meters():
    ports = {CIRCUIT.a: 30.0, CIRCUIT.b: 0.0}
    sent = (H11, R2, 20.0), (H12, R2, 10.0), (H21, R4, 3.0)
    metered = {("h11", R2): True, ("h12", R2): False, ("h21", R3): True}
    network = Network()
    found = network.find(*sent, state=JOINED, ports=ports, metered=metered)
    assert found.constrained[R1, R2]
    assert not found.constrained[R2].any(), "what it sends elsewhere"
    assert found.wanted_mbps[R1, R2] == pytest.approx(100 + 10 * HEADROOM)
    assert network.estimator.troubles() == {}


def test_what_a_meter_has_just_let_through_may_not_be_all_that_is_wanted():
    network = Network()
    ports = {CIRCUIT.a: 20.0, CIRCUIT.b: 0.0}
    for drops in (False, True):
        found = network.find(
            (H11, R2, 20.0), state=JOINED, ports=ports, metered={("h11", R2): drops}
        )
    assert found.wanted_mbps[R1, R2] == pytest.approx(100.0), "20 is not known to be all"


def test_where_mice_stay_electrical_a_pair_with_a_circuit_meets_both_networks():
    sent = (H11, R2, 20.0), (H11, R3, 9.5)
    ports = {CIRCUIT.a: 15.0, CIRCUIT.b: 0.0}
    assert not Network().find(*sent, state=JOINED, ports=ports).constrained[R1, R2]
    apart = Network(sharing=Sharing.ON_DEMAND).find(*sent, state=JOINED, ports=ports)
    assert apart.constrained[R1, R2]


@pytest.mark.parametrize(
    ("ports", "cause"),
    [
        ({CIRCUIT.b: 0.0}, "no counter of a circuit"),
        ({CIRCUIT.a: 140.0, CIRCUIT.b: 0.0}, "circuit above its rate"),
    ],
)
def test_a_circuits_counter_that_tells_nothing(caplog, ports, cause):
    network = Network()
    for _ in range(3):
        found = network.find((H11, R2, 90.0), state=JOINED, ports=ports)
    assert found.wanted_mbps[R1, R2] == 90.0
    assert network.estimator.troubles() == {cause: 1}, "once for as long as it lasts"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "r1 o1.1" in caplog.text
    assert "nan" not in caplog.text
    network.find((H11, R2, 90.0), state=JOINED, ports={CIRCUIT.a: 90.0, CIRCUIT.b: 0.0})
    network.find((H11, R2, 90.0), state=JOINED, ports=ports)
    assert network.estimator.troubles() == {cause: 2}


def test_no_counter_is_missed_before_the_tors_were_polled(caplog):
    network = Network()
    for _ in range(3):
        network.find((H11, R2, 90.0), state=JOINED, after_s=0.1)
    assert network.estimator.troubles() == {}
    assert not caplog.records
    network.find((H11, R2, 90.0), state=JOINED)
    assert set(network.estimator.troubles()) == {"no counter of a circuit"}


def test_a_server_faster_than_it_is_configured(caplog):
    network = Network()
    ports = {CIRCUIT.a: 80.0, CIRCUIT.b: 0.0}
    found = network.find((H11, R2, 80.0), (H11, R3, 60.0), state=JOINED, ports=ports)
    assert found.wanted_mbps[R1, [R2, R3]].tolist() == [80.0, 60.0]
    assert network.estimator.troubles() == {"server above server_rate_mbps": 1}
    assert "h11" in caplog.text


def test_a_server_slower_than_it_is_configured_wants_what_is_measured(caplog):
    """Its link is full at 60 Mb/s of 1,000: no counter shows that, and no other limit exists."""
    network = Network(replace(FABRIC, server_rate_mbps=1000.0))
    ports = {CIRCUIT.a: 60.0, CIRCUIT.b: 0.0}
    found = network.find((H11, R2, 60.0), state=JOINED, ports=ports)
    assert found.wanted_mbps[R1, R2] == pytest.approx(60 * HEADROOM)
    assert not found.constrained.any()
    assert network.estimator.troubles() == {}
    assert not caplog.messages


@pytest.mark.parametrize("faster", [1.2, 10.0])
def test_above_a_configured_rate_it_is_the_measured_rate_and_not_the_ports(caplog, faster):
    """Even with an agent: a backlog beyond a link reported as full is not credible."""
    network = Network()
    mbps = faster * FABRIC.server_rate_mbps
    ports = {CIRCUIT.a: 90.0, CIRCUIT.b: 0.0}
    for _ in range(3):
        found = network.find((H11, R2, mbps), state=JOINED, ports=ports)
        assert found.wanted_mbps[R1, R2] == mbps
    assert network.estimator.troubles() == {"server above server_rate_mbps": 1}
    assert len(caplog.messages) == 1, "named once, for as long as it lasts"


def test_a_server_that_receives_more_than_it_can(caplog):
    network = Network()
    found = network.find((H11, R2, 5.0), received={Inlet(H21, electrical=False): 500.0})
    assert found.wanted_mbps[R1, R2] == 5.0
    assert network.estimator.troubles() == {"server receives above its server_rate_mbps": 1}
    assert "r2" in caplog.text


def test_nothing_sent_is_nothing_wanted():
    found = Network().find()
    assert not found.wanted_mbps.any()
    assert not found.constrained.any()


# -- both networks ---------------------------------------------------------------------------------

CARRIED = dict.fromkeys(CIRCUIT.ends, 95.0)


def room(*sent, ports=CARRIED, **policy):
    network = Network(spill=Spill.ON, **policy)
    network.find(*sent, state=JOINED, ports=ports)
    return network.find(*sent, state=JOINED, ports=ports).room


def test_a_full_circuit_and_an_idle_electrical_network_have_room_for_what_spills():
    found = room((H11, R2, 60.0), (H12, R2, 35.0))
    assert np.argwhere(found.full).tolist() == [[R1, R2], [R2, R1]]
    assert found.circuits_mbps[R1, R2] == 100.0
    assert found.carried_mbps[R1, R2] == found.sent_mbps[R1, R2] == 95.0
    assert found.free_mbps[R1, R2] == 20.0, "two servers' uplinks of 10"
    assert found.free[R1, R2] == 1.0
    assert not found.slack.any()
    assert Network().find((H11, R2, 60.0), state=JOINED, ports=CARRIED).room is None


@pytest.mark.parametrize("other", [(H11, R3), (2 * R3, R2)], ids=["sent", "received"])
def test_others_come_first_on_the_electrical_network(other):
    found = room((H11, R2, 60.0), (H12, R2, 35.0), (*other, 6.0))
    assert found.free[R1, R2] == pytest.approx(1 - 6 * HEADROOM / 10)
    far = room((H11, R2, 95.0), (2 * R3, R4, 6.0))
    assert far.free[R1, R2] == 1.0


def test_a_circuit_that_nobody_counts_or_that_is_new_has_no_room():
    unknown = room((H11, R2, 95.0), ports={})
    assert not unknown.circuits_mbps.any()
    assert not unknown.full.any()
    network = Network(spill=Spill.ON)
    network.find((H11, R2, 9.0))
    fresh = network.find((H11, R2, 95.0), state=JOINED, ports=CARRIED, after_s=1.0).room
    assert not fresh.full.any()


def test_half_a_circuit_is_slack_and_what_it_carries_fits():
    found = room((H11, R2, 50.0), ports=dict.fromkeys(CIRCUIT.ends, 50.0))
    assert found.slack[R1, R2]
    assert found.fits[R1, R2]
    assert not found.full.any()


def test_others_that_meet_what_spills_may_want_more_than_they_get():
    sent = (H11, R2, 60.0), (H12, R2, 50.0), (H11, R3, 2.0)
    spilled = np.zeros((4, 4))
    network = Network(spill=Spill.ON)
    network.find(*sent, state=JOINED, ports=CARRIED)
    alone = network.find(*sent, state=JOINED, ports=CARRIED, after_s=100.0)
    assert not alone.constrained[R1, R3]
    spilled[R1, R2] = 1 / 6
    beside = network.find(*sent, state=JOINED, ports=CARRIED, after_s=300.0, spilled=spilled)
    assert beside.constrained[R1, R3]
    assert beside.room.free[R1, R2] == 0
