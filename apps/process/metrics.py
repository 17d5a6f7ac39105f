"""The controller's measurements of itself, for Prometheus.

Names and units follow https://prometheus.io/docs/practices/naming/: base units (seconds, bytes),
counters end in ``_total``. Values readable at any time are not kept here, but read when Prometheus
asks: see :class:`ServiceCollector`.
"""

from __future__ import annotations

import re
import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from apps.process.sinks import dropped_lines
from apps.process.term import Term
from apps.process.worker_list import SessionEnd, Workers
from hydra import __version__
from hydra.failures import FailureKind
from hydra.faults.condition import ConditionKind
from hydra.lifecycle import RECONFIGURATION_TRANSITIONS, ReservationState
from hydra.model import NetworkState
from hydra.reconfiguration.commands import ApplyRules, Asks, Command, Outcome
from hydra.reconfiguration.executor import STEPS
from hydra.reconfiguration.gate import GATE
from hydra.service import ControllerService, DemandReport, Reconfiguration
from hydra.sharing.slots import Schedule

_NUMBER: Final = re.compile(r"[-_]\d+.*")
_BYTES_PER_MBIT: Final = 1e6 / 8
_STAGE_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SUBSTEP_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_DEVICE_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
TRIGGERS: Final = (
    "circuit", "operator", "other", "people", "periodic", "reconcile", "release", "reservation",
    "slotted",
)  # fmt: skip
"""First words of reconfigurations' triggers; any other word is counted as ``other``."""
_ENDS: Final = [state for state, later in RECONFIGURATION_TRANSITIONS.items() if not later]


class Metrics:
    """Counters and histograms of a controller; thread-safe. Costs a microsecond a call.

    Each counter exists from the start, at 0, with each value of its labels: Prometheus sees no
    increase in a counter that starts at 1. Devices begin with :meth:`begin_devices`.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        registry.register(ThreadsCollector())
        registry.register(SinksCollector())
        self._measure_reconfigurations()
        self._measure_devices()
        histogram = partial(Histogram, registry=registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._stages = histogram(
            "hydra_loop_stage_duration_seconds",
            "Time of a run of a stage of the control loop.",
            ["stage"],
            buckets=_STAGE_S,
        )
        self._failed_jobs = counter(
            "hydra_failed_jobs_total",
            "Jobs of the conductor with errors, which the log has.",
        )
        self._journal_failures = counter(
            "hydra_journal_failures_total",
            "Failed attempts to write the journal; nothing is promised meanwhile.",
        )
        self._served = gauge(
            "hydra_demand_planned_bytes_per_second",
            "Demand of the last plan; parts that the present and the planned topology serve.",
            ["what"],
        )
        self._probes = counter("hydra_probes_total", "Probe frames on running circuits.", ["event"])
        self._lost_paths = counter("hydra_lost_paths_total", "Paths found dead by probes.")
        self._connections = gauge("hydra_openflow_connections", "Present OpenFlow connections.")
        for event in ("sent", "heard", "unknown"):
            self._probes.labels(event)

    def _measure_reconfigurations(self) -> None:
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._substeps = histogram(
            "hydra_reconfiguration_substep_duration_seconds",
            "Time of a substep of a reconfiguration, over all devices.",
            ["substep"],
            buckets=_SUBSTEP_S,
        )
        self._reconfigurations = counter(
            "hydra_reconfigurations_total",
            "Ended reconfigurations, by trigger and outcome.",
            ["trigger", "state"],
        )
        self._rules = counter("hydra_rules_pushed_total", "Rules pushed by reconfigurations.")
        self._retagged = counter(
            "hydra_ports_retagged_total", "ToR ports whose VLANs were changed."
        )
        self._circuit_failures = counter(
            "hydra_circuit_failures_total",
            "Circuits not made by a reconfiguration.",
        )
        self._circuits_lost = counter(
            "hydra_circuits_lost_total",
            "Circuits lost without a request, by any means of detection.",
        )
        self._gate_failures = counter(
            "hydra_gate_failures_total",
            "Circuits and paths given up at the gate of a reconfiguration, by step and cause.",
            ["step", "kind"],
        )
        self._step_failures = counter(
            "hydra_step_failures_total",
            "Failures in the other steps of reconfigurations, device by device.",
            ["step", "kind"],
        )
        for trigger in TRIGGERS:
            for state in _ENDS:
                self._reconfigurations.labels(trigger, state.value)
        for kind in FailureKind:
            for step in GATE:
                self._gate_failures.labels(step, kind.value)
            for step in STEPS:
                self._step_failures.labels(step, kind.value)

    def _measure_devices(self) -> None:
        """Of commands, and of exchanges with devices."""
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._commands = histogram(
            "hydra_command_duration_seconds",
            "Time of a command of the executor; of rules, until the last barrier.",
            ["command"],
            buckets=_DEVICE_S,
        )
        self._command_failures = counter(
            "hydra_command_failures_total",
            "Commands of the executor without confirmation; rules are counted switch by switch.",
            ["command", "kind"],
        )
        self._devices = histogram(
            "hydra_device_duration_seconds",
            "Time of an exchange with an optical switch or a ToR.",
            ["device"],
            buckets=_DEVICE_S,
        )
        self._device_errors = counter(
            "hydra_device_errors_total",
            "Failed exchanges with an optical switch or a ToR.",
            ["device"],
        )
        for kind in FailureKind:
            for command in Asks.__subclasses__():
                self._command_failures.labels(command.__name__, kind.value)

    def begin_devices(self, names: Iterable[str]) -> None:
        """Begin the series of optical switches and ToRs at 0."""
        for name in names:
            self._devices.labels(name)
            self._device_errors.labels(name)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a run of a stage of the loop, with any outcome."""
        with self._stages.labels(name).time():
            yield

    def lost(self, circuits: int) -> None:
        """Count circuits lost without a request."""
        self._circuits_lost.inc(circuits)

    def job_failed(self) -> None:
        self._failed_jobs.inc()

    def journal_failed(self) -> None:
        self._journal_failures.inc()

    def reconfigured(self, ended: Reconfiguration) -> None:
        """Count a finished reconfiguration."""
        # "reservation 3f…" would be a time series for each reservation.
        word = ended.trigger.split(" ", 1)[0]
        trigger = word if word in TRIGGERS else "other"
        self._reconfigurations.labels(trigger, ended.state.value).inc()
        self._rules.inc(ended.rules_pushed)
        self._retagged.inc(ended.ports_retagged)
        self._circuit_failures.inc(len(ended.failures))
        for failure in ended.troubles:
            counter = self._gate_failures if failure.step in GATE else self._step_failures
            counter.labels(failure.step, failure.kind.value).inc()
        for step in ended.timeline:
            if step.device is None:
                self._substeps.labels(step.step).observe(
                    (step.finished_ms - step.started_ms) / 1000
                )

    def command(self, command: Command, outcome: Outcome[Any]) -> None:
        name = type(command).__name__
        self._commands.labels(name).observe(outcome.finished_s - outcome.started_s)
        failures = [outcome.failure]
        if isinstance(command, ApplyRules) and outcome.confirmed:
            failures = list(outcome.value_or({}).values())
        for failure in failures:
            if failure is not None:
                self._command_failures.labels(name, failure.kind.value).inc()

    @contextmanager
    def exchange(self, device: str) -> Iterator[None]:
        """Time an exchange with ``device``; exceptions count as errors of the device."""
        errors = self._device_errors.labels(device)
        with self._devices.labels(device).time(), errors.count_exceptions():
            yield

    def planned(self, demand_mbps: float, now_mbps: float, then_mbps: float) -> None:
        """Note a plan's demand, and the parts served now and by the plan, in Mbps."""
        for what, mbps in (("demand", demand_mbps), ("now", now_mbps), ("then", then_mbps)):
            self._served.labels(what).set(mbps * _BYTES_PER_MBIT)

    def probes(
        self, *, sent: int = 0, received: int = 0, unknown: int = 0, lost_paths: int = 0
    ) -> None:
        """``unknown``: silent while the path's switches or the controller were late."""
        self._probes.labels("sent").inc(sent)
        self._probes.labels("heard").inc(received)
        self._probes.labels("unknown").inc(unknown)
        self._lost_paths.inc(lost_paths)

    def count_connections(self, connections: Callable[[], int]) -> None:
        """Ask ``connections`` whenever Prometheus does."""
        self._connections.set_function(connections)


class ThreadsCollector(Collector):
    """Python's threads, by name; the numbered threads of a pool share a name."""

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("hydra_threads", "Threads, by purpose.", labels=["of"])
        names = (thread.name for thread in threading.enumerate())
        for name, many in sorted(Tally(_NUMBER.sub("", name) for name in names).items()):
            family.add_metric([name], many)
        yield family


class SinksCollector(Collector):
    """Lines dropped while the log, or the audit log's file, stood still."""

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(
            "hydra_dropped_lines",
            "Lines dropped while a reader stood still, by reader.",
            labels=["sink"],
        )
        for name, lines in dropped_lines().items():
            family.add_metric([name], lines)
        yield family


class ServiceCollector(Collector):
    """The state of the network, read from the service at each scrape."""

    def __init__(self, service: Callable[[], ControllerService], term: Term) -> None:
        """A standby knows nothing of the network, and only reports its role and release."""
        self._service = service
        self._term = term

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would otherwise ask :meth:`collect`, and disturb the controller."""
        return ()

    def collect(self) -> Iterable[Metric]:
        leads = self._term.standby() is None
        yield GaugeMetricFamily(
            "hydra_leads",
            "1 if this controller leads, 0 if this controller stands by.",
            value=leads,
        )
        release = GaugeMetricFamily(
            "hydra_build_info", "1, for the release that runs.", labels=["version"]
        )
        release.add_metric([__version__], 1)
        yield release
        if not leads:
            return
        service = self._service()
        state = service.state()
        yield GaugeMetricFamily(
            "hydra_ready", "1: the controller takes requests.", value=not service.not_ready()
        )
        yield _conditions(service)
        yield GaugeMetricFamily(
            "hydra_topology_epoch", "Counts changes of the topology.", value=state.epoch
        )
        yield _circuits(service, state)
        yield _optical_ports(service, state)
        yield _optical_load(service)
        yield from _demand(service.demand(), state)
        yield from _devices(service)
        yield _reservations(service)
        yield from _schedule(service.schedule())


class WorkersCollector(Collector):
    """A controller's workers, read at each scrape; on a standby, too, since each worker has a lease
    with all controllers.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def describe(self) -> Iterable[Metric]:
        """Nothing, as :meth:`ServiceCollector.describe`."""
        return ()

    def collect(self) -> Iterable[Metric]:
        of_one = ["worker"]
        connected = GaugeMetricFamily(
            "hydra_worker_connected",
            "1 while the worker's lease runs, 0 afterwards.",
            labels=of_one,
        )
        ages = GaugeMetricFamily(
            "hydra_worker_renewal_age_seconds",
            "Time since the worker renewed the lease.",
            labels=of_one,
        )
        ended = CounterMetricFamily(
            "hydra_worker_sessions_ended",
            "Ended sessions of a worker, by cause.",
            labels=["worker", "cause"],
        )
        releases = GaugeMetricFamily(
            "hydra_worker_build_info", "1, for a worker's release.", labels=["worker", "version"]
        )
        switches = GaugeMetricFamily(
            "hydra_worker_switches", "Switches connected to the worker.", labels=of_one
        )
        served = GaugeMetricFamily(
            "hydra_worker_switches_served",
            "Switches reached by the controller through the worker.",
            labels=of_one,
        )
        shards = GaugeMetricFamily(
            "hydra_worker_shards", "Shards of the racks owned by the worker.", labels=of_one
        )
        cpu = CounterMetricFamily(
            "hydra_worker_cpu_seconds", "Processor time of the worker's process.", labels=of_one
        )
        owned = 0
        for known in self._workers.known():
            name, seen = known.name, known.seen
            connected.add_metric([name], seen is not None)
            ages.add_metric([name], known.renewal_age_s)
            for cause in SessionEnd:
                ended.add_metric([name, cause.value], known.ended.get(cause, 0))
            if seen is not None:
                owned += len(seen.shards)
                releases.add_metric([name, seen.release], 1)
                switches.add_metric([name], seen.switches)
                served.add_metric([name], seen.serves)
                shards.add_metric([name], len(seen.shards))
                cpu.add_metric([name], seen.cpu_s)
        all_shards = GaugeMetricFamily(
            "hydra_shards", "Shards of the racks, by whether a worker owns them.", labels=["owned"]
        )
        all_shards.add_metric(["yes"], owned)
        all_shards.add_metric(["no"], self._workers.shards - owned)
        yield from (connected, ages, ended, releases, switches, served, shards, cpu, all_shards)


def _conditions(service: ControllerService) -> Metric:
    count = Tally[ConditionKind]()
    for condition in service.conditions():
        count[condition.kind] += len(condition.subjects)
    family = GaugeMetricFamily(
        "hydra_conditions", "Things with something wrong, by kind.", labels=["kind"]
    )
    for kind in ConditionKind:
        family.add_metric([kind.value], count[kind])
    return family


def _circuits(service: ControllerService, state: NetworkState) -> Metric:
    carrying = {circuit for path in state.topology.paths for circuit in path.circuits}
    count = Tally(
        (circuit.plane, "carrying" if circuit in carrying else "idle")
        for circuit in state.topology.circuits
    )
    family = GaugeMetricFamily(
        "hydra_circuits",
        "Standing circuits: carrying a path, or idle.",
        labels=["plane", "state"],
    )
    for plane in service.fabric.planes:
        for kind in ("carrying", "idle"):
            family.add_metric([plane.name, kind], count[(plane.id, kind)])
    return family


def _optical_ports(service: ControllerService, state: NetworkState) -> Metric:
    quarantined = {
        quarantined_port.entry.port: quarantined_port.on_trial
        for quarantined_port in service.quarantine()
    }
    used = {port for circuit in state.topology.circuits for port in circuit.ends}
    count = Tally(
        ("on_trial" if quarantined[port.id] else "quarantined")
        if port.id in quarantined
        else ("used" if port.id in used else "free")
        for port in service.fabric.ports
    )
    family = GaugeMetricFamily("hydra_optical_ports", "Optical ToR ports.", labels=["state"])
    for kind in ("used", "free", "quarantined", "on_trial"):
        family.add_metric([kind], count[kind])
    return family


def _optical_load(service: ControllerService) -> Metric:
    load = {plane.id: 0.0 for plane in service.fabric.planes}
    for port, mbps in service.port_rates_mbps().items():
        load[service.fabric.ports[port].plane] += mbps
    family = GaugeMetricFamily(
        "hydra_optical_bytes_per_second",
        "Rate of ToR ports over each plane, as last polled.",
        labels=["plane"],
    )
    for plane in service.fabric.planes:
        family.add_metric([plane.name], load[plane.id] * _BYTES_PER_MBIT)
    return family


def _demand(report: DemandReport, state: NetworkState) -> Iterable[Metric]:
    joined = {direction for path in state.topology.paths for direction in path.directions}
    src, dst = np.array(list(joined), dtype=np.intp).reshape(-1, 2).T
    rate = report.rate_mbps
    optical = float(rate[src, dst].sum())
    measured = GaugeMetricFamily(
        "hydra_demand_bytes_per_second",
        "Measured traffic from rack to rack where a path of circuits leads, and where none does.",
        labels=["network"],
    )
    measured.add_metric(["optical"], optical * _BYTES_PER_MBIT)
    measured.add_metric(["electrical"], max(0.0, float(rate.sum()) - optical) * _BYTES_PER_MBIT)
    yield measured
    yield GaugeMetricFamily(
        "hydra_demand_estimated_bytes_per_second",
        "Estimated rate of the same flows if the servers' uplinks were the only limit.",
        value=float(report.estimated_mbps.sum()) * _BYTES_PER_MBIT,
    )
    if report.error_share is not None:
        yield GaugeMetricFamily(
            "hydra_demand_prediction_error_ratio",
            "Absolute errors of the predicted demand, as a part of the real demand.",
            value=report.error_share,
        )
    if report.age_s is not None:
        yield GaugeMetricFamily(
            "hydra_demand_age_seconds", "Age of the newest reading.", value=report.age_s
        )
    yield GaugeMetricFamily(
        "hydra_stale_vswitches", "Vswitches whose counters are late.", value=len(report.stale)
    )


def _devices(service: ControllerService) -> Iterable[Metric]:
    """Optical switches and ToRs one by one; vswitches are too many."""
    connected = GaugeMetricFamily(
        "hydra_device_connected",
        "1: the last exchange with the device went well.",
        labels=["device", "kind"],
    )
    vswitches = Tally[bool]()
    for device in service.devices():
        if device.kind == "vswitch":
            vswitches[device.connected] += 1
        else:
            connected.add_metric([device.name, device.kind], device.connected)
    yield connected
    many = GaugeMetricFamily("hydra_vswitches", "Vswitches, by connection.", labels=["connected"])
    many.add_metric(["yes"], vswitches[True])
    many.add_metric(["no"], vswitches[False])
    yield many


def _reservations(service: ControllerService) -> Metric:
    count = Tally(reservation.state for reservation in service.reservations())
    family = GaugeMetricFamily("hydra_reservations", "Reservations remembered.", labels=["state"])
    for state in ReservationState:
        family.add_metric([state.value], count[state])
    return family


def _schedule(schedule: Schedule) -> Iterable[Metric]:
    """The length of a night; the week's metrics only if there is a week."""
    yield GaugeMetricFamily(
        "hydra_night_seconds",
        "Duration of a night: a change of circuits between two slots.",
        value=schedule.night.total_s,
    )
    if schedule.week is None:
        return
    duty = GaugeMetricFamily(
        "hydra_duty_cycle",
        "Part of day in the slots of a week: by the formula, and as measured.",
        labels=["what"],
    )
    duty.add_metric(["formula"], schedule.week.duty_cycle)
    if schedule.measured_duty_cycle is not None:
        duty.add_metric(["measured"], schedule.measured_duty_cycle)
    yield duty
    yield GaugeMetricFamily("hydra_slots", "Slots of a week.", value=len(schedule.week.slots))
    yield GaugeMetricFamily("hydra_slot", "The present slot, from 1.", value=schedule.slot + 1)
