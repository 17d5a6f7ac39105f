"""HydRA Fig. 9(a): TCP between two racks while the topology changes again and again.

The circuit between racks r1 and r2 moves from one plane to the other once per period (topologies 1
and 2 of Fig. 8(a)), with nothing, 100 or 5000 rules to push in substep 3-2. Beside it a paced UDP
stream runs between r3 and r4, which the changes do not concern. At full speed TCP fills the
electrical network while it is diverted, so the loss of the *affected* pair is measured in a run of
its own, with paced UDP at 80 % of the electrical rate in place of TCP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.sparkline import sparkline
from mininet_scenarios.stage.alternation import Alternation, Change
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.delays import DelaySplit, mean
from mininet_scenarios.stage.stage import CONGESTION, Losses, ScenarioError, Stage, tcp_transfer
from mininet_scenarios.stage.streams import UdpResult, paced_stream
from mininet_scenarios.workloads.iperf3 import ThroughputRun
from mininet_scenarios.workloads.paced_udp import WIRE_OVERHEAD_V4, pps_for_load

PAIR: Final = ("r1", "r2")
PLANES: Final = ("p1", "p2")
RULES: Final = (100, 5000)
TCP_HOSTS: Final = ("h11", "h21")
AFFECTED_UDP_HOSTS: Final = ("h12", "h22")
BYSTANDER_PAIR: Final = ("r3", "r4")
BYSTANDER_HOSTS: Final = ("h31", "h41")

AFFECTED_LOAD_SHARE: Final = 0.8
"""Load of the affected pair as a part of the electrical rate, headers included."""
AFFECTED_PPS: Final = 8e6 / 8 / (600 + WIRE_OVERHEAD_V4)
"""Rate of datagrams of 600 B at 8 Mb/s. On slower links, datagrams are smaller, not fewer."""
_PAYLOAD_BYTES: Final = (64, 1400)
"""Least and greatest payload of a datagram."""
BYSTANDER_PPS: Final = 500.0
BYSTANDER_PAYLOAD_BYTES: Final = 500

_WARM_UP_S: Final = 1.0
"""Time for slow start and the first announcements; not counted in averages."""
_TAIL_S: Final = 1.0
_SETUP_S: Final = 4.0
"""Rough time in which a controller starts and sets up the first topology."""
_EACH_S: Final = 1.5
"""Time of a run besides the sending."""
_TCP_PORT: Final = 5201
_PICTURE_WIDTH: Final = 60


@dataclass(frozen=True, slots=True)
class Fig9aPlan:
    """Lengths of the runs."""

    period_s: float
    periods: int
    """Number of periods of each run with changes: one change in the middle of each."""
    static_s: float
    udp_datagrams: int
    udp_period_s: float
    udp_pps: float = AFFECTED_PPS
    cycle: CycleName = CycleName.DIVERT_FIRST

    @property
    def run_s(self) -> float:
        return self.period_s * self.periods

    @property
    def udp_s(self) -> float:
        """Rough length: the exact pace follows from the electrical rate."""
        return self.udp_datagrams / self.udp_pps + 1.5

    @property
    def static_expected_s(self) -> float:
        """Wall time of the run without changes, the first controller's start included."""
        return _SETUP_S + self.static_s + _WARM_UP_S + _TAIL_S

    @property
    def changing_expected_s(self) -> float:
        """Wall time of a run with changes, with a running controller."""
        return self.run_s + _WARM_UP_S + _TAIL_S + _EACH_S

    def expected_s(self, ways: int = 1) -> float:
        """Wall time of the whole scenario, in ``ways`` ways."""
        starts_s = (ways * len(RULES) - 1) * _SETUP_S
        each_s = len(RULES) * self.changing_expected_s + self.udp_s
        return self.static_expected_s + starts_s + ways * each_s


FULL: Final = Fig9aPlan(10.0, 4, 15.0, 16_000, 2.5)
QUICK: Final = Fig9aPlan(4.0, 2, 6.0, 10_500, 2.0)
SHORT: Final = Fig9aPlan(2.5, 2, 4.0, 10_500, 1.2, udp_pps=3000.0)
"""Short form of the experiment, played in both ways."""


@dataclass(frozen=True, slots=True)
class TcpRun:
    """TCP at full speed, with the topology changed ``len(changes)`` times."""

    rules: int
    """Number of rules wanted in substep 3-2; 0 for the static run."""
    throughput: ThroughputRun
    average_mbps: float
    """Mean over whole periods, after the warm-up."""
    retransmits: int
    changes: tuple[Change, ...]
    bystander: UdpResult
    losses: Losses

    @property
    def mean_delay(self) -> DelaySplit | None:
        return mean([change.delay for change in self.changes]) if self.changes else None


@dataclass(frozen=True, slots=True)
class UdpRun:
    """Paced UDP of the affected pair across several changes, without TCP."""

    affected: UdpResult
    load_mbps: float
    changes: tuple[Change, ...]
    losses: Losses


@dataclass(frozen=True, slots=True)
class Fig9aResult:
    plan: Fig9aPlan
    static: TcpRun
    changing: tuple[TcpRun, ...]
    udp: UdpRun

    def share(self, run: TcpRun) -> float:
        """Average throughput over the average throughput of the static topology."""
        return run.average_mbps / self.static.average_mbps

    def share_at(self, run: TcpRun, period_s: float) -> float:
        """Share if the changes had come once in ``period_s``: the loss is per change."""
        return 1 - (1 - self.share(run)) * self.plan.period_s / period_s

    @property
    def dark_frames(self) -> int:
        """Dark frames of all runs together."""
        in_tcp_runs = sum(run.losses.dark_frames for run in (self.static, *self.changing))
        return in_tcp_runs + self.udp.losses.dark_frames


def run_ways(
    stage: Stage, plan: Fig9aPlan, cycles: Sequence[CycleName], narrator: Narrator
) -> tuple[Fig9aResult, ...]:
    """Play the scenario with each cycle.

    Raises ScenarioError for a run that can't be counted.

    The unchanged topology is measured once for all cycles. A controller plays all runs of one cycle
    with the same number of rules.
    """
    static: TcpRun | None = None
    plans = [replace(plan, cycle=cycle) for cycle in cycles]
    changing: list[list[TcpRun]] = [[] for _ in plans]
    udp: list[UdpRun] = []
    with stage.one_controller():
        for rules in RULES:
            for cycle_plan, runs in zip(plans, changing, strict=True):
                with _controller(stage, cycle_plan, rules) as controller:
                    if static is None:
                        static = _static_run(stage, cycle_plan, narrator)
                    runs.append(_tcp_run(stage, controller, cycle_plan, rules, narrator))
                    if rules == RULES[-1]:
                        udp.append(_udp_run(stage, controller, cycle_plan, narrator))
    if static is None:
        raise ScenarioError("no run with changes was asked for")
    return tuple(
        Fig9aResult(cycle_plan, static, tuple(runs), affected)
        for cycle_plan, runs, affected in zip(plans, changing, udp, strict=True)
    )


def _summary(run: TcpRun) -> str:
    delay = run.mean_delay
    took = "" if delay is None else f", {delay.delay_ms:.0f} ms a change"
    return (
        f"(a) {run.rules} rules: {run.average_mbps:.1f} Mb/s{took}, "
        f"{run.retransmits} retransmissions, bystander lost {run.bystander.lost} "
        f"of {run.bystander.sent}"
    )


@contextmanager
def _controller(stage: Stage, plan: Fig9aPlan, rules: int) -> Iterator[ControllerClient]:
    """A controller on request only, with a circuit on the first plane for each of the two pairs."""
    with stage.controller({"mode": "on-request"}, plan.cycle, rules) as controller:
        demand = [_demand(stage, *PAIR), _demand(stage, *BYSTANDER_PAIR)]
        controller.reconfigure(demand, use_planes=PLANES[:1])
        for pair in (PAIR, BYSTANDER_PAIR):
            route = controller.path_between(*pair)
            if route.planes != PLANES[:1]:
                raise ScenarioError(
                    f"{' - '.join(pair)} should have a circuit on {PLANES[0]}, not {route}"
                )
        yield controller


def _static_run(stage: Stage, plan: Fig9aPlan, narrator: Narrator) -> TcpRun:
    with narrator.phase("(a) TCP on a static topology", plan.static_expected_s):
        run = _measure_tcp(stage, 0, plan.static_s, lambda _: ())
    narrator.say(f"(a) static: {run.average_mbps:.1f} Mb/s")
    narrator.say(sparkline(run.throughput.means_mbps(_PICTURE_WIDTH)))
    return run


def _tcp_run(
    stage: Stage, controller: ControllerClient, plan: Fig9aPlan, rules: int, narrator: Narrator
) -> TcpRun:
    title = f"(a) TCP, a change every {plan.period_s:g} s, {rules} rules, {plan.cycle}"
    with narrator.phase(title, plan.changing_expected_s):
        run = _tcp_changing(stage, controller, plan, rules)
    narrator.say(_summary(run))
    narrator.say(sparkline(run.throughput.means_mbps(_PICTURE_WIDTH)))
    return run


def _tcp_changing(
    stage: Stage, controller: ControllerClient, plan: Fig9aPlan, rules: int
) -> TcpRun:
    alternation = _alternation(stage, controller)
    first_s = _WARM_UP_S + plan.period_s / 2
    times_s = [first_s + number * plan.period_s for number in range(plan.periods)]
    run = _measure_tcp(
        stage, rules, plan.run_s, lambda start_s: alternation.perform(start_s, times_s)
    )
    _check_pushed(run.changes, rules)
    return run


def _alternation(stage: Stage, controller: ControllerClient) -> Alternation:
    switching_ms = max(stage.fabric.plane_by_name[plane].switching_ms for plane in PLANES)
    return Alternation(controller, _demand(stage, *PAIR), PLANES, switching_ms)


def _demand(stage: Stage, a: str, b: str) -> PairDemand:
    """Demand for most of a circuit, at any scale."""
    rate_mbps = min(stage.fabric.plane_by_name[plane].rate_mbps for plane in PLANES)
    return PairDemand(a, b, 0.8 * rate_mbps)


def _check_pushed(changes: tuple[Change, ...], rules: int) -> None:
    for change in changes:
        if change.record.rules_pushed < rules:
            raise ScenarioError(
                f"reconfiguration {change.record.id} pushed {change.record.rules_pushed} rules, "
                f"not {rules}"
            )


def _measure_tcp(
    stage: Stage, rules: int, seconds: float, perform: Callable[[float], tuple[Change, ...]]
) -> TcpRun:
    """TCP for ``seconds`` after the warm-up, while ``perform`` changes the topology."""
    length_s = _WARM_UP_S + seconds + _TAIL_S
    before = stage.losses()
    with ExitStack() as stack:
        udp = stack.enter_context(
            paced_stream(
                stage,
                *BYSTANDER_HOSTS,
                pps=BYSTANDER_PPS,
                payload_bytes=BYSTANDER_PAYLOAD_BYTES,
                count=round(BYSTANDER_PPS * (length_s + 10)),
            )
        )
        tcp = stack.enter_context(
            tcp_transfer(stage, *TCP_HOSTS, _TCP_PORT, length_s, congestion=CONGESTION)
        )
        changes = perform(tcp.client.started_s)
        received, sent = tcp.finish(length_s + 10)
        bystander = udp.stop()
    return TcpRun(
        rules=rules,
        throughput=received,
        average_mbps=received.average_between(_WARM_UP_S, _WARM_UP_S + seconds),
        retransmits=sent.retransmits or 0,
        changes=changes,
        bystander=bystander,
        losses=stage.losses().since(before),
    )


def _payload_bytes(load_mbps: float, pps: float) -> int:
    least, most = _PAYLOAD_BYTES
    return max(least, min(most, round(load_mbps * 1e6 / 8 / pps - WIRE_OVERHEAD_V4)))


def _udp_run(
    stage: Stage, controller: ControllerClient, plan: Fig9aPlan, narrator: Narrator
) -> UdpRun:
    with narrator.phase(f"(a) paced UDP of the affected pair, {plan.cycle}", plan.udp_s):
        run = _udp_changing(stage, controller, plan)
    narrator.say(f"(a) affected pair: {run.affected.lost} of {run.affected.sent} lost")
    return run


def _udp_changing(stage: Stage, controller: ControllerClient, plan: Fig9aPlan) -> UdpRun:
    """Send the affected pair's datagrams, at 80 % of the electrical rate, during changes."""
    load_mbps = AFFECTED_LOAD_SHARE * stage.fabric.electrical_rate_mbps
    payload_bytes = _payload_bytes(load_mbps, plan.udp_pps)
    pps = pps_for_load(load_mbps, payload_bytes, WIRE_OVERHEAD_V4)
    seconds = plan.udp_datagrams / pps
    alternation = _alternation(stage, controller)
    times_s = [
        plan.udp_period_s * (number + 0.5) for number in range(int(seconds / plan.udp_period_s))
    ]
    before = stage.losses()
    with paced_stream(
        stage,
        *AFFECTED_UDP_HOSTS,
        pps=pps,
        payload_bytes=payload_bytes,
        count=plan.udp_datagrams,
    ) as stream:
        changes = alternation.perform(stream.sender.started_s, times_s)
        affected = stream.finish(seconds + 10)
    return UdpRun(
        affected=affected,
        load_mbps=load_mbps,
        changes=changes,
        losses=stage.losses().since(before),
    )
