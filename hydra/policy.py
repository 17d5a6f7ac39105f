"""The operator's policy and the controller's settings: read from the configuration, frozen.

The classes of the policy are the only table of its keys: names, which end in units, types, limits,
defaults, when a running controller takes over another value, and meaning. The models of the file
and of ``PATCH /v1/policy``, and the keys that a reload applies, are made of them; so is the table
in docs/configuration.md, by ``scripts/policy_table.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

from annotated_types import Interval, MinLen


class Taken(StrEnum):
    """When a running controller takes over another value of a key; a section's, for all in it."""

    AT_START = "at a start"
    """Devices, planner or switches are told it at the start."""
    BY_FILE = "by a reload"
    """Effect as by ``AT_ONCE``, if the file's checks allow it."""
    AT_ONCE = "by a reload or `PATCH`"
    """Later decisions alone rest on it; no circuit, rule or session does."""


@dataclass(frozen=True, slots=True)
class Null:
    """The meaning of null, for a key that may be null."""

    meaning: str


Positive = Annotated[float, Interval(ge=0.001, le=1e9)]
"""Less is nothing in any unit that is used here, and more is no bound: 1e9 s are 31 years."""
NotNegative = Annotated[float, Interval(ge=0, le=1e9)]


class Mode(StrEnum):
    """When the topology changes."""

    ON_REQUEST = "on-request"
    """Only when an application or an operator asks."""
    PERIODIC = "periodic"
    """Also every ``epoch_s``, from measured demand, where the change pays."""


class Transition(StrEnum):
    """The way in which traffic is led through a change of the topology."""

    HITLESS = "hitless"
    """Pairs that move are diverted and drained first, and return once their new path is proven."""
    AS_PUBLISHED = "as-published"
    """Experiments only: mirrors move under the traffic, as in the papers' prototypes."""


class Sharing(StrEnum):
    """Sharing of circuits in periodic mode, by pairs and by traffic (Abu-Tair et al., 2019)."""

    BY_DEMAND = "by-demand"
    """The pairs where circuits gain most, as long as they do; all of their traffic."""
    UNDIFFERENTIATED = "undifferentiated"
    """All pairs with traffic in turn, an epoch each; all of their traffic."""
    DIFFERENTIATED = "differentiated"
    """All pairs with elephants in turn, an epoch each; only elephants."""
    ON_DEMAND = "on-demand"
    """A pair with an elephant, until that ends; only elephants."""
    AUTO = "auto"
    """``BY_DEMAND`` or ``SLOTTED``, as is expected to carry more; all of their traffic."""
    SLOTTED = "slotted"
    """By a schedule that is computed ahead and repeats (Mordia, 2013); all of their traffic."""

    @property
    def elephants_only(self) -> bool:
        """True if mice stay on the electrical network, also of pairs with a circuit."""
        return self in {Sharing.DIFFERENTIATED, Sharing.ON_DEMAND}

    @property
    def in_turn(self) -> bool:
        """True if circuits are shared by time."""
        return self in {Sharing.UNDIFFERENTIATED, Sharing.DIFFERENTIATED}


class Spill(StrEnum):
    """Whether pairs may use both networks at a time."""

    OFF = "off"
    ON = "on"


class Prediction(StrEnum):
    """How the demand of the time to come is told from that of the time that was."""

    LAST = "last"
    """It stays as it is."""
    EWMA = "ewma"
    """It is what it was on the average."""
    PEAK = "peak"
    """Each pair wants what it wanted at its busiest."""
    HOLT = "holt"
    """It goes on to grow, or to shrink."""
    SEASONAL = "seasonal"
    """It repeats every ``season_s``."""


class DemandBasis(StrEnum):
    """The demand that plans are made for."""

    ESTIMATE = "estimate"
    """Wanted rate: what traffic sends if nothing held it back, else its fair share."""
    RATE = "rate"
    """Measured rate: what the present topology lets through."""
    BACKLOG = "backlog"
    """Queued bytes in servers' sockets, as agents report them (c-Through, section 4.1)."""


class OnSilence(StrEnum):
    """Treatment of a vswitch that forwards, and can't confirm that it has diverted."""

    HOLD = "hold"
    CLOSE = "close"


class Beyond(StrEnum):
    """Treatment of a change that diverts more than the electrical network has room for."""

    ANNOUNCE = "announce"
    REFUSE = "refuse"
    AT_HOURS = "at-hours"


class SourceCheck(StrEnum):
    """Whether ports of servers take foreign MAC addresses and tags."""

    ON = "on"
    OFF = "off"
    ADDRESSES = "addresses"


class OnDrift(StrEnum):
    """Treatment of changes that somebody else has made to devices."""

    MEND = "mend"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """When a diverted circuit counts as empty (its port counters stand still)."""

    reads: Annotated[int, Interval(ge=1, le=1000)] = 3
    """A circuit is empty when its counters stand still for this many readings."""
    interval_ms: Positive = 12.0
    """Time between those readings."""
    bound_ms: Positive = 1000.0
    """Circuits that still carry frames after this long, or that nothing shows to be empty, stay."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time that a device of each kind gets to answer one command."""

    vswitch_s: Positive = 5.0
    """Time for one command to a vswitch, from when it was sent; for each 5000 rules, if it has
    more."""
    tor_s: Positive = 5.0
    """Time for one command to a ToR."""
    ocs_s: Positive = 5.0
    """Time for one command to an optical switch, mirrors included."""
    port_up_s: Positive = 3.0
    """From the mirrors' reply to carrier at the ToR; debounce and EDC included (Helios, 5.3)."""
    probe_s: Positive = 1.0
    """Time for a probe packet to arrive."""


MOST_PATHS_PER_PAIR: Final = 16
"""More would cost VLANs for what a larger circuit does better."""
PathsPerPair = Annotated[int, Interval(ge=1, le=MOST_PATHS_PER_PAIR)] | Literal["auto"]


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """Reports of servers' agents, and how far they are believed (c-Through, section 4.1)."""

    report_above_mb: NotNegative = 1.0
    """Servers' agents report what waits for a rack from here on, in 10^6 bytes."""
    report_change_mb: NotNegative = 1.0
    """They report it again when it has changed by more than this."""
    sample_s: Positive = 0.25
    """Time between an agent's looks at its sockets."""
    report_gap_s: NotNegative = 1.0
    """Reports are at least so far apart; a change after a pause is reported at once."""
    repeat_s: Positive = 5.0
    """An agent with nothing new says so this often; silent three times as long, it is ignored."""
    empty_within_s: Positive = 1.0
    """A backlog is a demand for the rate that would send it in this time."""
    confirmed_times: NotNegative = 100.0
    """Such a demand counts for at most so many times what the counters see of that traffic."""
    optical_share: Annotated[float, Interval(ge=0, le=0.99)] = 0.0
    """Part of a server's link for racks that circuits lead to, 0.9 in c-Through; 0: no
    [output scheduling](agents.md#output-scheduling)."""
    elephant_mb: NotNegative = 10.0
    """A connection becomes an elephant once it has sent, or waits to send, this much."""
    elephant_idle_s: Positive = 2.0
    """It stays one until it has had nothing to send for this long, or ends."""


@dataclass(frozen=True, slots=True)
class SlotPolicy:
    """The schedule of :attr:`Sharing.SLOTTED` (Mordia, SIGCOMM 2013, sections 3.4 and 5.1)."""

    slot_s: Positive = 1.0
    """The shortest slot of [slotted](sharing.md#slots) sharing: a night, while mirrors move, and
    the day after it."""
    week_s: Positive = 10.0
    """The period of its schedule."""


@dataclass(frozen=True, slots=True)
class Policy:
    mode: Annotated[Mode, Taken.AT_ONCE] = Mode.ON_REQUEST
    """With ``periodic``, circuits change also every ``epoch_s``, from measured demand, where the
    change pays."""
    sharing: Annotated[Sharing, Taken.AT_ONCE] = Sharing.BY_DEMAND
    """Who gets circuits in periodic mode, and which traffic takes them: [sharing](sharing.md)."""
    spill: Annotated[Spill, Taken.AT_ONCE] = Spill.OFF
    """With ``on``, a pair whose circuits are full has part of its flows carried
    [electrically](sharing.md#both-networks), where there is room."""
    demand: Annotated[DemandBasis, Taken.AT_ONCE] = DemandBasis.ESTIMATE
    """Basis of plans: the rates that traffic is estimated to want, the measured rates, or the
    [bytes that wait](agents.md#plans-made-for-what-waits) in servers' sockets."""
    algorithm: Annotated[str, MinLen(1)] = "anytime"
    """The topology algorithm: [algorithms](algorithms.md)."""
    max_hops: Annotated[int, Interval(ge=1, le=16)] = 3
    """Circuits in a path, at most; H of the HydRA heuristic. Longer paths that stand may stay."""
    paths_per_pair: PathsPerPair = "auto"
    """Most paths of a pair that wants more than one carries; its flows are
    [spread over them](planning.md#several-paths-for-a-pair). `auto`: as many as the pair's demand
    can use; one with `hydra-bfs` and `edmonds`, as published, and on `single-homed-openflow`."""
    disturbance_mbps: NotNegative = 0.0
    """Demand that a plan must serve more before it gives up a circuit that carries some; for
    [algorithms](algorithms.md) that keep what runs."""
    planning_budget_ms: Positive = 2000.0
    """Time for a plan: an algorithm that tries several returns the best found until then."""
    planning_grace_ms: Positive = 5000.0
    """Time beyond that, for VLANs and checks; then the planner is replaced, the change refused."""
    epoch_s: Annotated[Positive, Taken.AT_ONCE] = 10.0
    """Time between decisions in periodic mode."""
    poll_interval_s: NotNegative = 1.0
    """Time between readings of the counters; 0: no polling."""
    demand_window_s: Positive = 3.0
    """Time constant of the exponentially weighted demand."""
    elephant_mbps: NotNegative = 1.0
    """Rack pairs below this are mice and stay electrical (Helios: 15 Mb/s on 10G)."""
    elephant_release: Annotated[float, Interval(ge=0, le=1)] = 0.8
    """An elephant is one until it falls below this part of ``elephant_mbps`` (hysteresis)."""
    prediction: Annotated[Prediction, Taken.AT_ONCE] = Prediction.LAST
    """Demand that is planned for: as it is, or as it is
    [foretold](algorithms.md#prediction) for the next ``gain_horizon_s``."""
    season_s: Annotated[Positive, Taken.AT_ONCE] = 60.0
    """After this time demand repeats, for the prediction ``seasonal``."""
    gain_horizon_s: Annotated[Positive, Taken.AT_ONCE] = 10.0
    """How long a measured demand is expected to last."""
    gain_factor: Annotated[NotNegative, Taken.AT_ONCE] = 2.0
    """A change must gain this many times what it costs (hysteresis)."""
    minimum_gain_mbps: Annotated[NotNegative, Taken.AT_ONCE] = 5.0
    """A change must gain at least this."""
    minimum_circuit_life_s: Annotated[NotNegative, Taken.AT_ONCE] = 5.0
    """Circuits younger than this are left alone."""
    fdb_age_s: Positive = 300.0
    """MAC ageing time of the ToRs; hosts are announced every third of it."""
    vlan_rest_s: Annotated[float, Interval(ge=0, le=60), Taken.AT_ONCE] = 5.0
    """A VLAN-ID that a path has lost is given to no other path sooner: switches may forward by
    rules that are gone, until they have looked at all their cached flows. A change waits for that
    where the range has no others."""
    probe_interval_s: NotNegative = 2.0
    """Time between probes of a standing path, in each direction; 0: running paths are not probed.
    It is stretched where there are more than 350 paths for each second of it."""
    server_mtu: Annotated[int, Interval(ge=68, le=9216)] = 1500
    """Bytes of the largest IP packet that servers send. New paths are probed with frames of that
    size, running ones now and then: ports of ToRs, and what is between them, have to pass it with
    its Ethernet header and a VLAN tag, 18 bytes more."""
    audit_interval_s: Annotated[NotNegative, Taken.AT_ONCE] = 30.0
    """Time between looks for mirrors, VLANs and rules that were changed behind our back; 0: on
    request only."""
    on_drift: Annotated[OnDrift, Taken.AT_ONCE] = OnDrift.MEND
    """What was changed behind our back is put right, or only reported."""
    on_silent_vswitch: Annotated[OnSilence, Taken.AT_ONCE] = OnSilence.HOLD
    """A vswitch that forwards but no longer answers can't confirm that it has let go of a circuit.
    With ``hold``, the circuits that it uses stay where they are. With ``close``, its port at the
    ToR is closed to circuits, and they move: until it answers again, what it sends by circuit is
    lost, and so is what single-homed servers send to it by circuit; others reach it electrically.
    Behind a dead uplink, both are ``close``: whatever comes back, it sends onto no circuit that is
    gone."""
    source_check: Annotated[SourceCheck, Taken.BY_FILE] = SourceCheck.ON
    """With ``on``, the port of a server takes in frames with the server's own MAC address, or one
    of its `guests`, and without tags; with ``addresses`` also, of ARP and neighbour discovery, what
    is about the server's own addresses: [security](security.md#servers)."""
    quarantine_s: Annotated[Positive | None, Taken.AT_ONCE, Null("until somebody clears it")] = 60.0
    """How long the ports of a circuit that failed are left out of planning."""
    preemption_notice_s: Positive = 60.0
    """How long reservations that give way to more important ones keep their circuits."""
    drain: Annotated[DrainPolicy, Taken.AT_ONCE] = DrainPolicy()
    timeouts: Timeouts = Timeouts()
    divert_share: Annotated[float, Interval(gt=0, le=1), Taken.AT_ONCE] = 0.8
    """Part of the room on the electrical network that a change may divert traffic to. A change that
    needs more is made in [stages](operators-guide.md#large-changes)."""
    beyond_room: Annotated[Beyond, Taken.AT_ONCE] = Beyond.ANNOUNCE
    """A stage of a single move that is more than a rack has room for is made and announced, or the
    change is refused, or it waits for the `beyond_hours`."""
    beyond_hours: Annotated[str, MinLen(11), Taken.AT_ONCE] = "02:00-05:00"
    """Hours of the day, by the clock of the controller's machine, for what there is no room for:
    with `at-hours`, it is made and announced then."""
    replan_share: Annotated[float, Interval(gt=0, le=10), Taken.AT_ONCE] = 0.25
    """Between two stages, a change is planned anew once demand has moved by more than this part of
    what it was planned for, and by more than `minimum_gain_mbps`."""
    transition: Annotated[Transition, Taken.BY_FILE] = Transition.HITLESS
    """``as-published`` is for experiments only: mirrors move under the traffic, without divert and
    drain, as in the papers' prototypes. Refused unless every plane is emulated on this machine."""
    agents: Annotated[AgentPolicy, Taken.AT_ONCE] = AgentPolicy()
    slots: Annotated[SlotPolicy, Taken.AT_ONCE] = SlotPolicy()
    emulated_rules: Annotated[int, Interval(ge=0, le=1_000_000)] = 0
    """Experiments only: pad substep 3-2 to this many rules, as HydRA section V.B does."""

    @property
    def slotted(self) -> bool:
        """True if circuits follow a schedule of slots."""
        return self.mode is Mode.PERIODIC and self.sharing is Sharing.SLOTTED

    @property
    def foretold_s(self) -> float:
        """Time for which a decision's circuits are expected to stand; of slots, their week."""
        return self.slots.week_s if self.slotted else self.gain_horizon_s


@dataclass(frozen=True, slots=True)
class SharingChoice:
    """The way of sharing that :attr:`Sharing.AUTO` has chosen, and why."""

    sharing: Sharing
    reason: str
    """A sentence for operators."""


UNWEIGHED: Final = SharingChoice(Sharing.BY_DEMAND, "no demand has been weighed yet")


class CurrentPolicy:
    """The policy in force. Rooms read :attr:`now` each time they act, so a reload reaches all."""

    def __init__(self, policy: Policy) -> None:
        self.now = policy
        self.choice = UNWEIGHED
        """The last choice of :attr:`Sharing.AUTO`."""

    @property
    def sharing(self) -> SharingChoice:
        """The way of sharing that is in force, and why."""
        if self.now.sharing is Sharing.AUTO:
            return self.choice
        return SharingChoice(self.now.sharing, "policy.sharing says so")

    @property
    def in_force(self) -> Policy:
        """:attr:`now` with the way of sharing that is chosen, if the policy leaves that open."""
        now = self.now
        return replace(now, sharing=self.choice.sharing) if now.sharing is Sharing.AUTO else now


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """A key of the policy, or of a section in it."""

    name: str
    type: Any
    """The type of its values, with limits: ``Annotated[float, Gt(0), …] | None``."""
    default: Any
    taken: Taken
    null: Null | None


def policy_keys(section: type[Any] = Policy) -> list[PolicyKey]:
    """The keys of one of the classes above, in its order."""
    hints = get_type_hints(section, include_extras=True)
    keys = []
    for one in fields(section):
        said = {type(part): part for part in get_args(hints[one.name])[1:]}
        taken, null = said.get(Taken, Taken.AT_START), said.get(Null)
        keys.append(PolicyKey(one.name, hints[one.name], one.default, taken, null))
    return keys


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """The store that several controllers share, of which one leads."""

    endpoints: Sequence[str]
    """URLs of etcd's members."""
    prefix: str = "/hydra/"
    """Of all keys; it ends in a slash."""
    authority: str | None = None
    """PEM: the authority that has to have issued the members' certificates."""
    certificate: str | None = None
    """PEM: what the members know this controller by."""
    key: str | None = None
    username: str | None = None
    password_env: str | None = None
    password_file: str | None = None
    lease_s: int = 2
    """How long who leads may be silent before another one does. etcd grants no less than 1.5 times
    its election timeout, in whole seconds."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The link to the processes that hold the switches' connections."""

    host: str = "127.0.0.1"
    port: int = 6654
    shards: int = 64
    """Parts that the racks are divided into, each of which one worker owns at a time."""
    lease_s: float = 3.0
    """How long a worker may be silent before its switches move to others. It sends nothing more
    before that."""
    key: str | None = None
    """The file with the controller's secret key; None: the link is for this machine alone."""
    known: str | None = None
    """The folder with the public keys of the workers that are let in."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Addresses that the controller listens at, and files that it keeps its state in."""

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
    """PEM: the authority that has to have issued the switches' certificates."""
    requests_per_s: float = 100.0
    """Limit for each caller of REST, over 5 s."""
    url: str | None = None
    """Where other controllers, and their clients, find REST; None: the machine's name, and the port
    of REST."""
    authority: str | None = None
    """PEM: the authority of the other controllers' certificates; None: the system's."""
    hosts: Sequence[str] = ()
    """Names under which people reach REST, beside the machine's own and addresses."""
    webhook_networks: Sequence[str] = ()
    """IP prefixes to which webhooks may lead, beside public addresses."""
    connections: int | None = None
    """Connections to REST at a time; None: 512 and two for each server."""
    connections_per_address: int | None = None
    """Connections of one address; None: half of them. An IPv6 network of 64 bits counts as one."""
    audit_log: str | None = None
    """A file; None: the controller's log."""
    journal_days: float = 90.0
    """Days that entries of the journal stay; what is intended and promised stays anyway."""
    etcd: EtcdSettings | None = None
    """None: one controller, with its journal in a file."""
    workers: WorkerSettings | None = None
    """None: switches connect to the controller itself."""
