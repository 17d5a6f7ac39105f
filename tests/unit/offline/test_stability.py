"""Traffic, network, estimator and rounds in a closed loop: a constant demand moves no circuit."""

import numpy as np
import pytest

from apps.demand.estimator import DemandEstimator
from apps.offline.rehearsal import Rehearsal
from hydra.decisions.decision import Action
from hydra.demand.counters import Sent
from hydra.demand.reported_backlog import Believed
from hydra.policy import CurrentPolicy, Policy
from tests.unit.core.fabrics import small_fabric
from topology.demand import max_min_rates
from topology.estimator import CLEAR, FULL

pytestmark = pytest.mark.takes(35)

FABRIC = small_fabric(racks=4, planes=1, servers=2)
SERVERS, RACKS, LINK_MBPS = len(FABRIC.servers), len(FABRIC.racks), FABRIC.server_rate_mbps
UPLINK_MBPS = FABRIC.electrical_rate_mbps
# The simplest algorithm, without a disturbance cost: the test is of the demand for planning.
POLICY = Policy(epoch_s=2.0, elephant_mbps=1.0, minimum_gain_mbps=5.0, algorithm="hydra-bfs")
R1, R2, R3, R4 = range(4)
H11, H12, H21, H31 = 0, 1, 2, 4
GREEDY = np.inf
SETTLED_S = 30
FIVE_MINUTES_S = 300
"""Longer than the four minutes of the last remembered demand."""
TRIED_S = 2 * (60 + 240) + 60
"""Time until each of two pairs that hide each other was tried after one minute and after four; the
demand of one is then forgotten after sixteen.
"""
NOBODY = Believed(*np.zeros((2, 0), dtype=np.intp), *np.zeros((3, 0)))


class Loop:
    """Flows from servers to racks, a reading per second, a round every two seconds."""

    def __init__(self, *flows, noise=0.03):
        self.source, self.to = np.array([one[:2] for one in flows]).T
        self.offered = np.array([one[2] for one in flows], dtype=float)
        self.random = np.random.default_rng(1)
        self.noise = noise
        self.rehearsal = Rehearsal(FABRIC, POLICY, outage_s=0.3)
        self.estimator = DemandEstimator(FABRIC, CurrentPolicy(POLICY))
        self.average, self.before = np.zeros(len(flows)), np.zeros(len(flows))
        self.now_s = 0.0

    def carried(self):
        """Rate of each flow: max-min fair share of its server's link and its uplink or circuit."""
        ends = {}
        for path in self.rehearsal.state.topology.paths:
            (circuit,) = path.circuits
            for end in circuit.ends:
                rack = FABRIC.ports[end].rack
                ends[rack, path.dst if rack == path.src else path.src] = end
        pairs = [
            (int(server // 2), int(to)) for server, to in zip(self.source, self.to, strict=True)
        ]
        way = [
            2 * SERVERS + ends[pair] if pair in ends else SERVERS + server
            for pair, server in zip(pairs, self.source, strict=True)
        ]
        capacity = np.repeat([LINK_MBPS, UPLINK_MBPS, 100.0], [SERVERS, SERVERS, len(FABRIC.ports)])
        mood = 1 + self.noise * self.random.uniform(-1, 1, len(pairs))
        uses = np.stack([self.source, way], axis=1)
        rates = max_min_rates(uses, capacity, self.offered * mood, mood)
        ports = dict.fromkeys((port.id for port in FABRIC.ports), 0.0)
        for pair, rate in zip(pairs, rates, strict=True):
            if pair in ends:
                ports[ends[pair]] += rate
        return rates, ports

    def changes(self, seconds):
        """Number of rounds that changed circuits."""
        changes = 0
        for second in range(seconds):
            self.now_s += 1.0
            latest, ports = self.carried()
            self.average += (latest - self.average) / POLICY.demand_window_s
            found = self.estimator.find(
                Sent(
                    self.source,
                    self.to,
                    self.average.copy(),
                    latest,
                    np.minimum(latest, self.before),
                ),
                ports,
                {},
                NOBODY,
                self.rehearsal.state,
                self.now_s,
                {},
            )
            self.before = latest
            self.rehearsal.see(self.now_s, found.sent_mbps, found.wanted_mbps, found.expected_mbps)
            if second % 2:
                changes += self.rehearsal.step(self.now_s).action is Action.CHANGE
        return changes


EDGES = {
    "elephant": POLICY.elephant_mbps,
    "release": POLICY.elephant_mbps * POLICY.elephant_release,
    "full": FULL * UPLINK_MBPS,
    "clear": CLEAR * UPLINK_MBPS,
    "gain": UPLINK_MBPS + POLICY.minimum_gain_mbps,
}


@pytest.mark.parametrize("other", [(H12, R3), (H31, R2)])
def test_two_pairs_that_take_all_they_get_do_not_take_turns(other):
    loop = Loop((H11, R2, GREEDY), (*other, GREEDY))
    assert loop.changes(SETTLED_S)
    assert loop.changes(FIVE_MINUTES_S) == 0


@pytest.mark.parametrize("other", [(H12, R3), (H31, R2)])
def test_two_equal_pairs_take_no_turns(other):
    loop = Loop((H11, R2, 20.0), (*other, 20.0))
    assert loop.changes(TRIED_S)
    assert loop.changes(FIVE_MINUTES_S) == 0


@pytest.mark.parametrize("mbps", EDGES.values(), ids=EDGES)
def test_a_demand_at_the_edge_of_a_threshold_moves_nothing(mbps):
    loop = Loop((H11, R2, 12.0), (H12, R3, mbps))
    loop.changes(TRIED_S)
    assert loop.changes(FIVE_MINUTES_S) == 0
