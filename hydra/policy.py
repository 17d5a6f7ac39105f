"""The operator's policy: read from the configuration, frozen.

The policy classes are the only table of the policy keys: names (ending in units), types, limits,
defaults, time of adoption, and meaning. Everything else is generated from the classes: the models
of the configuration file and of ``PATCH /v1/policy``, the keys that a reload applies, and the table
in docs/configuration.md, by ``scripts/policy_table.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

from annotated_types import Interval, MinLen


class Taken(StrEnum):
    """Time at which a running controller adopts a new value of a key; of a section: for all its
    keys.
    """

    AT_START = "at a start"
    """Devices, planner or switches get the value at the start only."""
    BY_FILE = "by a reload"
    """Effect as by ``AT_ONCE``, if the checks of the file permit."""
    AT_ONCE = "by a reload or `PATCH`"
    """Only later decisions depend on the value; no circuit, rule or session does."""


@dataclass(frozen=True, slots=True)
class Null:
    """The meaning of null, for keys that allow null."""

    meaning: str


Positive = Annotated[float, Interval(ge=0.001, le=1e9)]
"""Limits of a number in any unit of the policy: no clock or rate is as precise as 0.001, and 1e9 s
(31 years) are as good as no limit.
"""
NotNegative = Annotated[float, Interval(ge=0, le=1e9)]


class Mode(StrEnum):
    """When the topology changes."""

    ON_REQUEST = "on-request"
    """Only on request of an application or an operator."""
    PERIODIC = "periodic"
    """Also every ``epoch_s``, from measured demand, if the change pays."""


class Transition(StrEnum):
    """Handling of traffic during a change of the topology."""

    HITLESS = "hitless"
    """Pairs move from circuit to circuit if the new path needs nothing that an old path holds. The
    other pairs are diverted and drained first, and return once the new path is probed.
    """
    DIVERT_FIRST = "divert-first"
    """HydRA's order for all moving pairs: divert, change, activate."""


class Sharing(StrEnum):
    """Sharing of circuits in periodic mode, by pairs and by traffic (Abu-Tair et al., 2019)."""

    BY_DEMAND = "by-demand"
    """Pairs with the highest gain, as long as the gain lasts; all traffic."""
    UNDIFFERENTIATED = "undifferentiated"
    """All pairs with traffic in turn, an epoch each; all traffic."""
    DIFFERENTIATED = "differentiated"
    """All pairs with elephants in turn, an epoch each; only elephants."""
    ON_DEMAND = "on-demand"
    """Pairs with an elephant, until the elephant ends; only elephants."""
    AUTO = "auto"
    """``BY_DEMAND`` or ``SLOTTED``, by the expected throughput; all traffic."""
    SLOTTED = "slotted"
    """A precomputed, repeated schedule (Mordia, 2013); all traffic."""

    @property
    def elephants_only(self) -> bool:
        """True if mice stay on the electrical network, even if the pair has a circuit."""
        return self in {Sharing.DIFFERENTIATED, Sharing.ON_DEMAND}

    @property
    def in_turn(self) -> bool:
        """True if circuits are shared by time."""
        return self in {Sharing.UNDIFFERENTIATED, Sharing.DIFFERENTIATED}


class Spill(StrEnum):
    """Use of both networks at the same time by a pair."""

    OFF = "off"
    ON = "on"


class Prediction(StrEnum):
    """Prediction of future demand from past demand."""

    LAST = "last"
    """Demand stays as it is."""
    EWMA = "ewma"
    """Demand equals the past average."""
    PEAK = "peak"
    """Demand of each pair equals its past peak."""
    HOLT = "holt"
    """Demand continues to grow or to shrink."""
    SEASONAL = "seasonal"
    """Demand repeats every ``season_s``."""


class DemandBasis(StrEnum):
    """The demand that planning uses."""

    ESTIMATE = "estimate"
    """Wanted rate: the unlimited rate of the traffic, or its fair share."""
    RATE = "rate"
    """Measured rate: throughput under the present topology."""
    BACKLOG = "backlog"
    """Queued bytes in sockets of servers, as reported by agents (c-Through, section 4.1)."""


class OnSilence(StrEnum):
    """Handling of a vswitch that forwards and cannot confirm a diversion."""

    HOLD = "hold"
    CLOSE = "close"


class Beyond(StrEnum):
    """Handling of a change that diverts more than the electrical network has room for."""

    ANNOUNCE = "announce"
    REFUSE = "refuse"
    AT_HOURS = "at-hours"


class SourceCheck(StrEnum):
    """Acceptance of foreign MAC addresses and tags at server ports."""

    ON = "on"
    OFF = "off"
    ADDRESSES = "addresses"


class OnDrift(StrEnum):
    """Handling of foreign changes of devices."""

    MEND = "mend"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """Criteria for an empty circuit after diversion (unchanged port counters)."""

    reads: Annotated[int, Interval(ge=1, le=1000)] = 3
    """Number of readings with unchanged counters after which a circuit counts as empty."""
    interval_ms: Positive = 12.0
    """Time between the readings."""
    bound_ms: Positive = 1000.0
    """After this time, circuits that still carry frames, or are not proven empty, stay."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time for a device of each kind to answer a command."""

    vswitch_s: Positive = 5.0
    """Time for one command to a vswitch, from the sending; per 5000 rules, if a command has more
    rules.
    """
    tor_s: Positive = 5.0
    """Time for one command to a ToR."""
    ocs_s: Positive = 5.0
    """Time for one command to an optical switch, mirrors included."""
    port_up_s: Positive = 3.0
    """From the reply about mirrors to carrier at the ToR, including debounce and EDC (Helios,
    5.3).
    """
    probe_s: Positive = 1.0
    """Time for a probe packet to arrive."""


MOST_PATHS_PER_PAIR: Final = 16
"""More paths would cost VLANs without much benefit over larger circuits."""
PathsPerPair = Annotated[int, Interval(ge=1, le=MOST_PATHS_PER_PAIR)] | Literal["auto"]


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """Reports of server agents, and their credibility (c-Through, section 4.1)."""

    report_above_mb: NotNegative = 1.0
    """Agents report a backlog to a rack from this size on, in 10^6 bytes."""
    report_change_mb: NotNegative = 1.0
    """Agents report a backlog again after a change by more than this size, in 10^6 bytes."""
    sample_s: Positive = 0.25
    """Time between reads of the sockets by an agent."""
    report_gap_s: NotNegative = 1.0
    """Minimum time between reports; a change after a pause is reported at once."""
    repeat_s: Positive = 5.0
    """Agents whose traffic has not changed send a report in this interval; a report is ignored
    after three intervals of silence.
    """
    empty_within_s: Positive = 1.0
    """A backlog counts as a demand for the rate that would send the backlog in this time."""
    confirmed_times: NotNegative = 100.0
    """Upper limit of a backlog demand, as a multiple of the counted rate of the traffic."""
    optical_share: Annotated[float, Interval(ge=0, le=0.99)] = 0.0
    """Share of a server link for racks with circuits, 0.9 in c-Through; 0: no [output
    scheduling](agents.md#output-scheduling).
    """
    elephant_mb: NotNegative = 10.0
    """A connection becomes an elephant after sending, or queueing, this number of 10^6 bytes."""
    elephant_idle_s: Positive = 2.0
    """An elephant ends after this time without data to send, or with the connection."""


@dataclass(frozen=True, slots=True)
class SlotPolicy:
    """The schedule of :attr:`Sharing.SLOTTED` (Mordia, SIGCOMM 2013, sections 3.4 and 5.1)."""

    slot_s: Positive = 1.0
    """The shortest slot of [slotted](sharing.md#slots) sharing: a night, while mirrors move, and
    the following day.
    """
    week_s: Positive = 10.0
    """The period of the schedule."""


@dataclass(frozen=True, slots=True)
class Policy:
    mode: Annotated[Mode, Taken.AT_ONCE] = Mode.ON_REQUEST
    """With ``periodic``, circuits also change every ``epoch_s``, from measured demand, if the
    change pays.
    """
    sharing: Annotated[Sharing, Taken.AT_ONCE] = Sharing.BY_DEMAND
    """Pairs and traffic that get circuits in periodic mode: [sharing](sharing.md)."""
    spill: Annotated[Spill, Taken.AT_ONCE] = Spill.OFF
    """With ``on``, a pair with full circuits sends a part of its flows
    [electrically](sharing.md#both-networks), if there is room.
    """
    demand: Annotated[DemandBasis, Taken.AT_ONCE] = DemandBasis.ESTIMATE
    """Basis of plans: the estimated wanted rates, the measured rates, or the [queued
    bytes](agents.md#plans-for-waiting-bytes) in sockets of servers.
    """
    algorithm: Annotated[str, MinLen(1)] = "anytime"
    """The topology algorithm, a name or `module:object`: [algorithms](algorithms.md)."""
    max_hops: Annotated[int, Interval(ge=1, le=16)] = 3
    """Largest number of circuits in a path; H of the HydRA heuristic. Longer existing paths may
    stay.
    """
    paths_per_pair: PathsPerPair = "auto"
    """Largest number of paths of a pair with more demand than a path carries; flows are [spread
    over the paths](planning.md#several-paths-for-a-pair). `auto`: as many as the pair's demand can
    use; a single path with `hydra-bfs` and `edmonds`, as published, and on `single-homed-openflow`.
    """
    disturbance_mbps: NotNegative = 0.0
    """Additional demand that a plan must serve before giving up a circuit with traffic; for
    [algorithms](algorithms.md) that keep existing circuits.
    """
    planning_budget_ms: Positive = 2000.0
    """Time for a plan: an algorithm with several attempts returns the best plan so far."""
    planning_grace_ms: Positive = 5000.0
    """Additional time for VLANs and checks; afterwards the planner is replaced, the change
    refused.
    """
    epoch_s: Annotated[Positive, Taken.AT_ONCE] = 10.0
    """Time between decisions in periodic mode."""
    poll_interval_s: NotNegative = 1.0
    """Time between readings of the counters; 0: no polling."""
    demand_window_s: Positive = 3.0
    """Time constant of the exponentially weighted demand."""
    elephant_mbps: NotNegative = 1.0
    """Rack pairs below this rate are mice and stay electrical (Helios: 15 Mb/s on 10G)."""
    elephant_release: Annotated[float, Interval(ge=0, le=1)] = 0.8
    """An elephant becomes a mouse below this share of ``elephant_mbps`` (hysteresis)."""
    prediction: Annotated[Prediction, Taken.AT_ONCE] = Prediction.LAST
    """Demand for planning: the present demand, or the [prediction](algorithms.md#prediction) for
    the next ``gain_horizon_s``.
    """
    season_s: Annotated[Positive, Taken.AT_ONCE] = 60.0
    """Period of the demand, for the prediction ``seasonal``."""
    gain_horizon_s: Annotated[Positive, Taken.AT_ONCE] = 10.0
    """Expected duration of a measured demand."""
    gain_factor: Annotated[NotNegative, Taken.AT_ONCE] = 2.0
    """Minimum ratio of gain to cost of a change (hysteresis)."""
    minimum_gain_mbps: Annotated[NotNegative, Taken.AT_ONCE] = 5.0
    """Minimum gain of a change."""
    minimum_circuit_life_s: Annotated[NotNegative, Taken.AT_ONCE] = 5.0
    """Circuits below this age are left alone."""
    fdb_age_s: Positive = 300.0
    """MAC ageing time of the ToRs; hosts are announced three times as often."""
    vlan_rest_s: Annotated[float, Interval(ge=0, le=60), Taken.AT_ONCE] = 5.0
    """A VLAN-ID that a path has lost goes to no other path before this time: switches may forward
    by removed rules until all cached flows are revalidated. A change waits if the range has no
    other IDs.
    """
    probe_interval_s: NotNegative = 2.0
    """Time between probes of a standing path, in each direction; 0: running paths are not probed.
    With more than 350 paths per second of the interval, the interval grows.
    """
    server_mtu: Annotated[int, Interval(ge=68, le=9216)] = 1500
    """Bytes of the largest IP packet that servers send. New paths are probed with frames of this
    size, running paths from time to time. ToR ports, and links between ToRs, must pass the packet
    with Ethernet header and VLAN tag, 18 bytes more.
    """
    audit_interval_s: Annotated[NotNegative, Taken.AT_ONCE] = 30.0
    """Time between searches for foreign changes of mirrors, VLANs and rules; 0: on request only."""
    on_drift: Annotated[OnDrift, Taken.AT_ONCE] = OnDrift.MEND
    """Foreign changes are undone, or only reported."""
    on_silent_vswitch: Annotated[OnSilence, Taken.AT_ONCE] = OnSilence.HOLD
    """A vswitch that forwards but no longer answers cannot confirm that it has left a circuit. With
    ``hold``, circuits in use by the vswitch stay in place. With ``close``, the vswitch's ToR port
    is closed to circuits, and the circuits move. Until the next answer, traffic that the vswitch
    sends by circuit is lost, and so is circuit traffic from single-homed servers to the vswitch;
    other servers reach the vswitch electrically. Behind a dead uplink, both values act like
    ``close``: after a recovery, the vswitch must not send onto removed circuits.
    """
    source_check: Annotated[SourceCheck, Taken.BY_FILE] = SourceCheck.ON
    """With ``on``, the port of a server accepts frames with the server's MAC address, or the
    address of a guest in `guests`, and without tags. With ``addresses``, ARP and neighbour
    discovery must also be about the server's addresses: [security](security.md#servers).
    """
    quarantine_s: Annotated[
        Positive | None, Taken.AT_ONCE, Null("until cleared by an operator")
    ] = 60.0
    """Time for which planning avoids the ports of a failed circuit."""
    preemption_notice_s: Positive = 60.0
    """Time for which preempted reservations keep their circuits."""
    drain: Annotated[DrainPolicy, Taken.AT_ONCE] = DrainPolicy()
    timeouts: Timeouts = Timeouts()
    divert_share: Annotated[float, Interval(gt=0, le=1), Taken.AT_ONCE] = 0.8
    """Share of the room on the electrical network that a change may fill with diverted traffic. A
    larger change is made in [stages](circuits.md#large-changes).
    """
    beyond_room: Annotated[Beyond, Taken.AT_ONCE] = Beyond.ANNOUNCE
    """If a stage with a single move exceeds the room of a rack: the stage is made and announced, or
    the change is refused, or the change waits for `beyond_hours`.
    """
    beyond_hours: Annotated[str, Taken.AT_ONCE] = "02:00-05:00"
    """Hours of the day, by the clock of the controller's machine, for stages without room: with
    `at-hours`, the stages are made and announced then.
    """
    replan_share: Annotated[float, Interval(gt=0, le=10), Taken.AT_ONCE] = 0.25
    """Between two stages, a change is planned anew once demand has moved by more than this share of
    the planned demand, and by more than `minimum_gain_mbps`.
    """
    transition: Annotated[Transition, Taken.BY_FILE] = Transition.HITLESS
    """With ``hitless``, pairs move [from circuit to circuit](decisions/0045-make-before-break.md)
    if the new path needs nothing in use; other pairs are diverted first. With ``divert-first``, all
    pairs are diverted first.
    """
    agents: Annotated[AgentPolicy, Taken.AT_ONCE] = AgentPolicy()
    slots: Annotated[SlotPolicy, Taken.AT_ONCE] = SlotPolicy()

    @property
    def slotted(self) -> bool:
        """True if circuits follow a schedule of slots."""
        return self.mode is Mode.PERIODIC and self.sharing is Sharing.SLOTTED

    @property
    def prediction_horizon_s(self) -> float:
        """Expected life of a decision's circuits in s; with slots, the week."""
        return self.slots.week_s if self.slotted else self.gain_horizon_s


@dataclass(frozen=True, slots=True)
class SharingChoice:
    """The way of sharing chosen under :attr:`Sharing.AUTO`, and the reason."""

    sharing: Sharing
    reason: str
    """A sentence for operators."""


class Rotation(StrEnum):
    """Named schedules. Each joins every two racks in every period.

    All cycle through the N - 1 matchings of a round-robin tournament of N racks; N matchings, with
    one rack idle in each, if N is odd. K is the number of planes.
    """

    ROUND_ROBIN = "round-robin"
    """All planes change together, to the next K matchings: any plane shows any matching, and all
    pairs have circuits for the same time.
    """
    ROTORNET = "rotornet"
    """All planes change together; each plane cycles through a fixed share of the matchings
    (RotorNet, Mellette et al., SIGCOMM 2017, section 3).
    """
    OPERA = "opera"
    """As RotorNet, but planes change one after another, and circuits of the other planes join all
    racks meanwhile (Opera, Mellette et al., NSDI 2020, section 3).
    """


@dataclass(frozen=True, slots=True)
class GivenSlots:
    """A schedule from a request, in place of the configured mode and sharing."""

    name: str
    slots: SlotPolicy
    """Length of the shortest slot, and of the period."""


UNWEIGHED: Final = SharingChoice(Sharing.BY_DEMAND, "no demand has been weighed yet")


class CurrentPolicy:
    """The policy in force. Components read :attr:`now` for each action, so a reload reaches all."""

    def __init__(self, policy: Policy) -> None:
        self.now = policy
        self.choice = UNWEIGHED
        """The last choice of :attr:`Sharing.AUTO`."""
        self.given: GivenSlots | None = None
        """The given schedule; comes before mode and sharing of :attr:`now`."""

    @property
    def sharing(self) -> SharingChoice:
        """The way of sharing in force, and the reason."""
        if self.given is not None:
            reason = f"the schedule {self.given.name} is given (`hydra schedule --end` ends it)"
            return SharingChoice(Sharing.SLOTTED, reason)
        if self.now.sharing is Sharing.AUTO:
            return self.choice
        return SharingChoice(self.now.sharing, "policy.sharing says so")

    @property
    def in_force(self) -> Policy:
        """:attr:`now`, with the chosen way of sharing in place of :attr:`Sharing.AUTO`, or with the
        given schedule.
        """
        now, given = self.now, self.given
        if given is not None:
            return replace(now, mode=Mode.PERIODIC, sharing=Sharing.SLOTTED, slots=given.slots)
        return replace(now, sharing=self.choice.sharing) if now.sharing is Sharing.AUTO else now


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """A key of the policy or of a section."""

    name: str
    type: Any
    """Type of the values, with limits: ``Annotated[float, Gt(0), …] | None``."""
    default: Any
    taken: Taken
    null: Null | None


def policy_keys(section: type[Any] = Policy) -> list[PolicyKey]:
    """The keys of a policy class, in order."""
    hints = get_type_hints(section, include_extras=True)
    keys = []
    for field in fields(section):
        said = {type(part): part for part in get_args(hints[field.name])[1:]}
        taken, null = said.get(Taken, Taken.AT_START), said.get(Null)
        keys.append(PolicyKey(field.name, hints[field.name], field.default, taken, null))
    return keys
