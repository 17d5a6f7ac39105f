"""What the operator wants of the controller: read from the configuration, frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Mode(Enum):
    """When the topology changes."""

    ON_REQUEST = "on-request"
    """Only when an application or an operator asks."""
    PERIODIC = "periodic"
    """Also every ``epoch_s``, from measured demand, where the change pays."""


class Transition(Enum):
    """How traffic is led through a change of the topology."""

    HITLESS = "hitless"
    """What moves is diverted and drained first, and comes back once its new path is proven."""
    AS_PUBLISHED = "as-published"
    """Experiments only: mirrors move under the traffic, as in the papers' prototypes."""


class Sharing(Enum):
    """Who gets circuits in periodic mode, and which traffic takes them (Abu-Tair et al., 2019)."""

    BY_DEMAND = "by-demand"
    """The pairs where circuits gain most, as long as they do; all of their traffic."""
    UNDIFFERENTIATED = "undifferentiated"
    """All pairs with traffic in turn, an epoch each; all of their traffic."""
    DIFFERENTIATED = "differentiated"
    """All pairs with elephants in turn, an epoch each; only elephants."""
    ON_DEMAND = "on-demand"
    """A pair with an elephant, until that ends; only elephants."""
    SLOTTED = "slotted"
    """By a schedule that is computed ahead and repeats (Mordia, 2013); all of their traffic."""

    @property
    def elephants_only(self) -> bool:
        """Whether mice stay on the electrical network, also of pairs with a circuit."""
        return self in {Sharing.DIFFERENTIATED, Sharing.ON_DEMAND}

    @property
    def in_turn(self) -> bool:
        """Whether circuits are shared by time."""
        return self in {Sharing.UNDIFFERENTIATED, Sharing.DIFFERENTIATED}


class OnSilence(Enum):
    """What happens to a vswitch that forwards, and can't confirm that it has diverted."""

    HOLD = "hold"
    """The circuits that it uses stay where they are."""
    CLOSE = "close"
    """Its port at the ToR is closed to circuits, and they move. Until it answers again, its server
    is cut off from racks that either end sends to by circuit."""


class OnDrift(Enum):
    """What happens to what was changed behind our back."""

    MEND = "mend"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """When a diverted circuit counts as empty (its port counters stand still)."""

    reads: int = 3
    interval_ms: float = 12.0
    bound_ms: float = 1000.0
    """Circuits that still carry frames after this long do not move."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds a device of each kind gets to answer one command."""

    vswitch_s: float = 5.0
    tor_s: float = 5.0
    ocs_s: float = 5.0
    port_up_s: float = 3.0
    """From the mirrors' reply to carrier at the ToR; debounce and EDC included (Helios, 5.3)."""
    probe_s: float = 1.0


MOST_PATHS_PER_PAIR: Final = 8
"""More would cost rules in every vswitch, and VLANs, for what a larger circuit does better."""


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """What servers' agents report, and what of it is believed (c-Through, section 4.1)."""

    report_above_mb: float = 1.0
    """What waits for a rack is reported from here on; 1 MB is 10^6 bytes."""
    report_change_mb: float = 1.0
    """And again when it has changed by more than this."""
    sample_s: float = 0.25
    report_gap_s: float = 1.0
    """What changes all the time is reported no more often; what changes after a pause at once."""
    repeat_s: float = 5.0
    """An agent with nothing new says so this often; silent for three times as long, it is stale."""
    empty_within_s: float = 1.0
    """What waits is a demand: for the rate that would empty the buffers in this time."""
    confirmed_times: float = 100.0
    """Such a demand counts for at most so many times what the counters see of that traffic."""
    optical_share: float = 0.0
    """Of a server's link, for racks that circuits lead to (0.9 in c-Through); 0: no scheduling."""
    elephant_mb: float = 10.0
    """A connection is an elephant once it has sent or waits to send this much."""
    elephant_idle_s: float = 2.0
    """And until it has had nothing to send for this long, or ends."""


@dataclass(frozen=True, slots=True)
class SlotPolicy:
    """The schedule of :attr:`Sharing.SLOTTED` (Mordia, SIGCOMM 2013, sections 3.4 and 5.1)."""

    slot_s: float = 1.0
    """The shortest slot: a night, while mirrors move, and the day after it."""
    week_s: float = 10.0
    """A period of the schedule."""


@dataclass(frozen=True, slots=True)
class Policy:
    mode: Mode = Mode.ON_REQUEST
    sharing: Sharing = Sharing.BY_DEMAND
    algorithm: str = "hydra-bfs+"
    max_hops: int = 3
    """H of the HydRA heuristic."""
    paths_per_pair: int = 1
    """How many paths two racks may have; their flows are spread over them."""
    disturbance_mbps: float = 0.0
    """Demand that must be gained before a circuit that carries some is given up."""
    planning_budget_ms: float = 2000.0
    """Time for a plan: an algorithm that tries several returns the best found until then."""
    planning_grace_ms: float = 5000.0
    """Beyond the budget, for VLANs and checks; then the planner is stopped, the change refused."""
    epoch_s: float = 10.0
    poll_interval_s: float = 1.0
    """0 switches polling off."""
    demand_window_s: float = 3.0
    """Time constant of the exponentially weighted demand."""
    elephant_mbps: float = 1.0
    """Rack pairs below this are mice and stay electrical (Helios: 15 Mb/s on 10G)."""
    elephant_release: float = 0.8
    """An elephant is one until it falls below this part of ``elephant_mbps`` (hysteresis)."""
    gain_horizon_s: float = 10.0
    """How long a measured demand is expected to last."""
    gain_factor: float = 2.0
    """A change must gain this many times what it costs (hysteresis)."""
    minimum_gain_mbps: float = 5.0
    minimum_circuit_life_s: float = 5.0
    fdb_age_s: float = 300.0
    """MAC ageing time of the ToRs; hosts are announced every third of it."""
    probe_interval_s: float = 2.0
    """Between probes of a standing path, in each direction; 0: running paths are not probed."""
    audit_interval_s: float = 30.0
    """Between looks for what was changed behind our back; 0: none but on request."""
    on_drift: OnDrift = OnDrift.MEND
    on_silent_vswitch: OnSilence = OnSilence.HOLD
    quarantine_s: float | None = 60.0
    """How long the ports of a circuit that failed are left out of planning; None: until cleared."""
    preemption_notice_s: float = 60.0
    """How long reservations that give way to more important ones keep their circuits."""
    drain: DrainPolicy = DrainPolicy()
    timeouts: Timeouts = Timeouts()
    transition: Transition = Transition.HITLESS
    """Anything else loses packets, and is refused where mirrors are not emulated."""
    agents: AgentPolicy = AgentPolicy()
    slots: SlotPolicy = SlotPolicy()
    emulated_rules: int = 0
    """Experiments only: pad substep 3-2 to this many rules, as HydRA section V.B does."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Where the controller listens and keeps its state."""

    openflow_host: str = "127.0.0.1"
    openflow_port: int = 6653
    rest_host: str = "127.0.0.1"
    rest_port: int = 8080
    journal: str = "hydra-journal.db"
    tokens: str | None = None
    """The file with the hashes of the tokens; None: REST is for whoever can reach loopback."""
    tls_certificate: str | None = None
    """PEM, with the chain; None: REST speaks plain HTTP."""
    tls_key: str | None = None
    openflow_certificate: str | None = None
    """PEM, with the chain; None: OpenFlow is not encrypted."""
    openflow_key: str | None = None
    openflow_authority: str | None = None
    """PEM: who has to have issued the switches' certificates."""
    requests_per_s: float = 100.0
    """Of each caller of REST, over 5 s."""
    hosts: Sequence[str] = ()
    """Names under which people reach REST, beside the machine's own and addresses."""
    webhook_networks: Sequence[str] = ()
    """Where webhooks may lead beside public addresses: IP prefixes."""
    connections: int | None = None
    """To REST at a time; None: 512 and one for each server."""
    connections_per_address: int | None = None
    """None: half of them. An IPv6 network of 64 bits counts as one address."""
    audit_log: str | None = None
    """A file; None: the controller's log."""
    journal_days: float = 90.0
    """How long entries of the journal stay; what is intended and promised stays anyway."""
