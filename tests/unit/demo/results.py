"""Made-up results of both experiments, of the size of real runs."""

from mininet_scenarios.experiments.hydra_paper import fig9a_scenario, fig9b_scenario
from mininet_scenarios.experiments.hydra_paper.fig9a_scenario import Fig9aResult, TcpRun, UdpRun
from mininet_scenarios.experiments.hydra_paper.fig9b_scenario import Fig9bResult, TransferRun
from mininet_scenarios.stage.alternation import Change
from mininet_scenarios.stage.controller_client import ReconfigurationRecord, TimelineStep
from mininet_scenarios.stage.delays import split
from mininet_scenarios.stage.stage import Losses
from mininet_scenarios.stage.streams import UdpResult
from mininet_scenarios.workloads.alltoall import ProgressSample, RankReport
from mininet_scenarios.workloads.iperf3 import Sample, ThroughputRun

NOTHING_LOST = Losses({}, {})

TIMELINE = (
    TimelineStep("divert", None, 1.0, 3.0, ""),
    TimelineStep("drain", None, 3.0, 43.0, ""),
    TimelineStep("retag", "r1", 43.0, 53.0, ""),
    TimelineStep("retag", "r2", 44.0, 55.0, ""),
    TimelineStep("push", None, 43.0, 48.0, ""),
    TimelineStep("mirrors", "p1", 44.0, 70.0, ""),
    TimelineStep("mirrors", "p2", 45.0, 88.0, ""),
    TimelineStep("move", None, 43.0, 88.0, ""),
    TimelineStep("carrier", None, 88.0, 88.5, ""),
    TimelineStep("announce", None, 88.5, 89.0, ""),
    TimelineStep("probe", None, 89.0, 91.0, ""),
    TimelineStep("activate", None, 91.0, 92.0, ""),
    TimelineStep("tidy", None, 92.0, 95.0, ""),
)


def record(trigger: str = "operator", created_unix_s: float = 1000.0) -> ReconfigurationRecord:
    return ReconfigurationRecord("7", "done", trigger, created_unix_s, TIMELINE, 5000, 4, "")


def change(at_s: float) -> Change:
    return Change(at_s, "p2", record(), split(TIMELINE, 25.0))


def udp(lost: int = 0, sent: int = 12_000) -> UdpResult:
    return UdpResult(sent, sent - lost, lost, 0, 0, 4.0, 1500.0, 0.2, 0.6, 0)


def tcp(rules: int, average_mbps: float, changes: tuple[Change, ...]) -> TcpRun:
    samples = tuple(Sample(i / 10, (i + 1) / 10, average_mbps) for i in range(100))
    throughput = ThroughputRun(samples, average_mbps, None, 10.0)
    return TcpRun(rules, throughput, average_mbps, 3, changes, udp(), NOTHING_LOST)


def fig9a_result(
    *, losses: Losses = NOTHING_LOST, affected: UdpResult | None = None, mbps: float = 94.0
) -> Fig9aResult:
    changing = tuple(tcp(rules, mbps, (change(5.0), change(9.0))) for rules in (100, 5000))
    run = UdpRun(affected or udp(), 8.0, (change(1.0),), losses)
    return Fig9aResult(fig9a_scenario.QUICK, tcp(0, 95.0, ()), changing, run)


def transfer(label: str, seconds: float, *actions: ReconfigurationRecord) -> TransferRun:
    samples = (ProgressSample(0.0, 0), ProgressSample(seconds, 1_000_000))
    rank = RankReport(0, True, True, 0.0, seconds, (seconds,), 1_000_000, samples)
    series = tuple(Sample(float(i), i + 1.0, 80.0 + i % 3) for i in range(int(seconds)))
    return TransferRun(label, seconds, 990.0, series, (rank,), actions, NOTHING_LOST)


def fig9b_result(helped_s: float = 24.0) -> Fig9bResult:
    return Fig9bResult(
        fig9b_scenario.QUICK,
        transfer("alone", 20.0),
        transfer("congested", 44.0),
        transfer("with HydRA", helped_s, record("periodic", 995.0)),
    )
