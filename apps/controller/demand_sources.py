"""The present traffic: counters, agents and meters joined to a demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from apps.controller.devices import Devices
from apps.controller.policing import Policing
from apps.controller.record.network import NetworkRecord
from apps.demand.agent_desk import AgentDesk
from apps.demand.estimator import DemandEstimator, Found
from apps.demand.load_recorder import LoadRecorder
from apps.demand.poller import StatsPoller
from apps.demand.tor_counters import TorCounters
from apps.openflow.fleet import Fleet
from apps.process.metrics import Metrics
from hydra.demand.prediction import Forecast
from hydra.errors import PlanError
from hydra.model import DemandMatrix, Fabric, PortId
from hydra.policy import CurrentPolicy, Policy
from hydra.service import DemandReport, DemandSource
from hydra.sharing.spill import PairRates, Spills


class DemandSources:
    """For any thread, except :meth:`feed_forecast`, which is for the conductor's thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        at_start: Policy,
        policy: CurrentPolicy,
        metrics: Metrics,
        network: NetworkRecord,
        fleet: Fleet,
        devices: Devices,
        agents: AgentDesk,
        policing: Policing,
        spills: Spills,
        reservations: Callable[[], int],
    ) -> None:
        """``at_start``: the policy for polling until the controller ends; ``reservations`` counts
        reservations with circuits, or about to get circuits.
        """
        self._metrics, self._network = metrics, network
        self.poller = StatsPoller(fabric=fabric, policy=at_start, fleet=fleet)
        self.tor_counters = TorCounters(fabric=fabric, policy=at_start, devices=devices)
        self.load_recorder = LoadRecorder(
            fabric=fabric,
            policy=at_start,
            poller=self.poller,
            port_rates_mbps=self.port_rates_mbps,
            topology=lambda: network.state.topology,
            reservations=reservations,
        )
        self._agents, self._policing, self._spills = agents, policing, spills
        self._estimator = DemandEstimator(fabric, policy)
        self._forecast = Forecast(policy)

    @property
    def polls(self) -> bool:
        """True if counters are polled: a demand will be measured."""
        return self.poller.enabled

    def demand(self) -> DemandReport:
        """Demand as measured and estimated now."""
        age_s, stale, ready = self.poller.freshness()
        source = DemandSource.MEASURED if ready else DemandSource.NONE
        found = self._find()
        troubles = {
            **self._estimator.troubles(),
            **self.tor_counters.troubles(),
            **self.poller.troubles(),
            **self._agents.troubles(),
        }
        return DemandReport(
            source,
            found.sent_mbps,
            found.wanted_mbps,
            age_s,
            stale,
            troubles,
            found.backlog_mbps,
            found.constrained,
            self.poller.unsure(),
            found.basis,
            *self._forecast.latest_report(),
            spilled=self._spills.shares(),
            expected_mbps=found.expected_mbps,
        )

    def _find(self) -> Found:
        with self._metrics.stage("estimate"):
            return self._estimator.find(
                self.poller.sent(),
                self.port_rates_mbps(),
                self.poller.received_mbps(),
                self._agents.backlog(self.poller.counted),
                self._network.state,
                time.monotonic(),
                self._policing.held_back(),
                self._spills.shares(),
            )

    def room(self) -> PairRates | None:
        """Rates of pairs on both networks now, and the room left; None: not measured, or forbidden
        by the policy.
        """
        _, _, ready = self.poller.freshness()
        room = self._find().room if ready else None
        if room is None:
            return None
        unsure = self.poller.unsure()
        return replace(room, full=room.full & ~unsure)

    def feed_forecast(self) -> None:
        """Take the present demand into the prediction."""
        seen = self.demand()
        if seen.source is DemandSource.MEASURED:
            self._forecast.see(seen.estimated_mbps, time.monotonic())

    def port_rates_mbps(self) -> Mapping[PortId, float]:
        """Mbps sent by each optical ToR port, as last polled; absent where unknown."""
        return {**self.poller.port_rates_mbps(), **self.tor_counters.rates_mbps()}

    def sent_mbps(self) -> DemandMatrix | None:
        """Mbps from rack to rack as counted, shape (N, N); None before two polls."""
        _, _, ready = self.poller.freshness()
        return self.poller.rates_mbps() if ready else None

    def measured(self) -> DemandReport:
        """The demand as measured. Raises PlanError before there is any."""
        report = self.demand()
        if report.source is DemandSource.NONE:
            how = "set policy.poll_interval_s above 0"
            if self.poller.enabled:
                how = "wait for two polls"
            raise PlanError(f"no demand has been measured yet: {how}, or give a demand")
        return report
