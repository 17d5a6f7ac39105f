"""Reads every vswitch's account table and every ToR's port counters once an interval."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apps.openflow.fleet import Fleet, Question
from apps.openflow.interface import Sums
from apps.openflow.replies import Reply
from apps.openflow.requests import Counted
from drivers.codecs.openflow.statistics import MalformedReplyError, octets_by_subject
from hydra.demand.counters import Anomaly, DemandMeter, PortMeter, Sent
from hydra.demand.polling import PollSchedule
from hydra.failures import Failure
from hydra.forwarding.match_action import Table
from hydra.forwarding.pipeline import COOKIE_SUBJECT_MASK
from hydra.model import DatapathId, DemandMatrix, Fabric, PortId
from hydra.policy import Policy

LOG = logging.getLogger("hydra.poller")
_STALE_INTERVALS: Final = 3
_WINDOW: Final = 128
"""Switches asked at once: a few MB of unread replies."""
_TICK_S: Final = 0.005
"""Switches with closer moments are asked together."""
_NO_ANSWER: Final = "no answer"
_FAILED: Final = "request failed"
_MALFORMED: Final = "malformed reply"


class Inlet(NamedTuple):
    """A link on which a server receives."""

    server: int
    """The server's place in the fabric."""
    electrical: bool
    """True: the uplink to the electrical network; False: the link behind the server's switch."""


class _Counter(NamedTuple):
    port: PortId | Inlet
    name: str
    """Name of the port at the switch."""
    received: bool
    """True: counter of traffic received by the switch; False: of traffic sent."""


class _Answer(NamedTuple):
    question: Question
    reply: Reply[Counted]
    received_s: float


class StatsPoller:
    """A thread that polls; the readings are available to any thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: Policy,
        fleet: Fleet,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = policy.poll_interval_s
        self.stale_s: Final = _STALE_INTERVALS * max(self._interval_s, 0.1)
        """Age in s at which a reading becomes stale."""
        self._fleet = fleet
        self._clock = clock
        self._racks = len(fabric.racks)
        self._meter = DemandMeter(fabric, policy.demand_window_s)
        self._ports = PortMeter[PortId | Inlet]()
        self._source_of = {
            switch.datapath: index for index, switch in enumerate(self._meter.sources)
        }
        self._ports_of = _counters(fabric)
        self._names = {
            **{switch.datapath: switch.name for switch in self._meter.sources},
            **fabric.tor_names,
        }
        self._schedule = PollSchedule(
            (
                *(Question(dp, Table.ACCOUNT) for dp in self._source_of),
                *(Question(dp, None) for dp in self._ports_of),
            ),
            interval_s=max(self._interval_s, _TICK_S),
            timeout_s=min(policy.timeouts.vswitch_s, max(self._interval_s, 0.1)),
            window=_WINDOW,
            same=attrgetter("switch"),
        )
        self._asked: dict[Question, Reply[Counted]] = {}
        self._answers: queue.SimpleQueue[_Answer | None] = queue.SimpleQueue()
        self._failures: Counter[str] = Counter()
        self._logged: set[str] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._repeat, name="poller", daemon=True)

    @property
    def enabled(self) -> bool:
        return self._interval_s > 0

    def start(self) -> None:
        if self.enabled:
            self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._answers.put(None)
            self._thread.join()

    # -- the poller's thread ----------------------------------------------------------------------

    def _repeat(self) -> None:
        self._schedule.start(self._clock())
        while self._take(self._step()):
            pass

    def _step(self) -> float:
        """Ask the due questions, give up the overdue; returns the time to wait, in s."""
        now_s = self._clock()
        for question in self._schedule.overdue(now_s):
            self._fleet.give_up([self._asked.pop(question)])
            self._note_failure(question, _NO_ANSWER)
        due = self._schedule.due(now_s)
        asked = self._fleet.ask_for_counters(due, (COOKIE_SUBJECT_MASK, self._racks))
        for question in due:
            if question not in asked:
                self._schedule.settled(question)
                self._forget_ports(question)
        self._asked.update(asked)
        for question, reply in asked.items():
            reply.add_done_callback(partial(self._queue_answer, question))
        return max(self._schedule.next_s(now_s), _TICK_S)

    def _queue_answer(self, question: Question, reply: Reply[Counted]) -> None:
        """Queue an answer; in the hub's thread."""
        self._answers.put(_Answer(question, reply, self._clock()))

    def _take(self, wait_s: float) -> bool:
        """Read the answers present, or arriving in time; False at the end."""
        try:
            answer = self._answers.get(timeout=None if math.isinf(wait_s) else wait_s)
            while answer is not None:
                self._read(answer)
                answer = self._answers.get_nowait()
        except queue.Empty:
            return True
        return False

    def _read(self, answer: _Answer) -> None:
        question = answer.question
        if self._asked.get(question) is not answer.reply:
            return  # given up before
        del self._asked[question]
        self._schedule.settled(question)
        reply = answer.reply.result()
        if isinstance(reply, Failure):
            self._note_failure(question, _FAILED, str(reply))
            return
        try:
            anomalies = self._count(question, reply, answer.received_s)
        except MalformedReplyError as malformed:
            self._note_failure(question, _MALFORMED, str(malformed))
            return
        for anomaly in anomalies:
            self._log_once(anomaly.value, question.switch, "this reading moves no rate")

    def _count(self, question: Question, answer: bytes | Sums, received_s: float) -> set[Anomaly]:
        """Update the rates from an answer. Raises MalformedReplyError."""
        switch = question.switch
        # The cookie names the rack counted by a rule; several rules count the prefixes of a rack.
        if isinstance(answer, Sums):
            totals, age_s = answer
            if len(totals) != self._racks:
                raise MalformedReplyError(f"statistics: {len(totals)} sums, not {self._racks}")
        elif question.table is None:
            return self._count_ports(switch, self._ports_of[switch], answer, received_s)
        else:
            totals, age_s = octets_by_subject(answer, COOKIE_SUBJECT_MASK, self._racks)
        with self._lock:
            anomaly = self._meter.update(self._source_of[switch], totals, received_s, age_s)
        return set() if anomaly is None else {anomaly}

    def _count_ports(
        self, switch: DatapathId, ports: tuple[_Counter, ...], body: bytes, received_s: float
    ) -> set[Anomaly]:
        counters = self._fleet.ports_by_name(switch, body)
        anomalies = set()
        with self._lock:
            for port, name, received in ports:
                if name in counters:
                    octets = counters[name].rx_bytes if received else counters[name].tx_bytes
                    anomalies.add(self._ports.update(port, octets, received_s))
                else:
                    self._ports.forget(port)
        return {anomaly for anomaly in anomalies if anomaly is not None}

    # -- what goes wrong --------------------------------------------------------------------------

    def _note_failure(self, question: Question, cause: str, detail: str = "") -> None:
        self._failures[cause] += 1
        self._forget_ports(question)
        self._log_once(cause, question.switch, detail or "plans use the last rates")

    def _forget_ports(self, question: Question) -> None:
        """Forget the port counters of a failed question; rules keep their last rates."""
        if question.table is not None:
            return
        with self._lock:
            for counter in self._ports_of[question.switch]:
                self._ports.forget(counter.port)

    def _log_once(self, cause: str, switch: DatapathId, detail: str) -> None:
        if cause not in self._logged:
            self._logged.add(cause)
            LOG.warning(
                "statistics of %s: %s (%s); further cases are only counted",
                self._names[switch],
                cause,
                detail,
            )

    # -- any thread -------------------------------------------------------------------------------

    def troubles(self) -> Mapping[str, int]:
        """Number of missing or unusable answers, by cause."""
        with self._lock:
            found = Counter({a.value: n for a, n in self._meter.anomalies.items()})
            found.update({a.value: n for a, n in self._ports.anomalies.items()})
        found.update(self._failures)
        if self._schedule.missed:
            found["moments missed"] = self._schedule.missed
        return dict(found)

    def port_rates_mbps(self) -> Mapping[PortId, float]:
        """Mbps sent by each optical ToR port; ports without a reading are absent."""
        with self._lock:
            rates = self._ports.rates_mbps()
        return {port: mbps for port, mbps in rates.items() if not isinstance(port, Inlet)}

    def received_mbps(self) -> Mapping[Inlet, float]:
        """Mbps received by servers; links without a reading are absent."""
        with self._lock:
            rates = self._ports.rates_mbps()
        return {port: mbps for port, mbps in rates.items() if isinstance(port, Inlet)}

    def sent(self) -> Sent:
        """Rates sent by server, as far as servers are counted separately."""
        with self._lock:
            return self._meter.sent()

    def counted(
        self, server: NDArray[np.intp], rack: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Counted rates, as :meth:`hydra.demand.counters.DemandMeter.counted`."""
        with self._lock:
            return self._meter.counted(server, rack)

    def freshness(self) -> tuple[float | None, tuple[str, ...], bool]:
        """(Age in s of the newest reading, stale servers, whether any rate was measured)."""
        now_s = self._clock()
        with self._lock:
            stale = tuple(self._meter.stale(now_s, self.stale_s))
            return self._meter.age_s(now_s), stale, self._meter.ready

    def unsure(self) -> NDArray[np.bool_]:
        """Unsure pairs, as :meth:`hydra.demand.counters.DemandMeter.unsure`."""
        with self._lock:
            return self._meter.unsure(self._clock(), self.stale_s)

    def rates_mbps(self) -> DemandMatrix:
        """Average rates from rack to rack."""
        with self._lock:
            return self._meter.matrix()

    def known_mbps(self) -> DemandMatrix:
        """As :meth:`hydra.demand.counters.DemandMeter.known`."""
        with self._lock:
            return self._meter.known(self._clock(), self.stale_s)


def _counters(fabric: Fabric) -> dict[DatapathId, tuple[_Counter, ...]]:
    """Counted ports of each switch, and the use of each counter."""
    found: dict[DatapathId, list[_Counter]] = {
        datapath: [_Counter(port.id, port.tor_port, False) for port in fabric.ports_of(rack.id)]
        for datapath, rack in fabric.rack_by_tor_datapath.items()
    }
    for place, server in enumerate(fabric.servers):
        vswitch, tor = server.vswitch, fabric.racks[server.rack].tor.datapath_id
        if vswitch is not None:
            ports = [_Counter(Inlet(place, electrical=False), vswitch.host_port, received=False)]
            if vswitch.electrical_port != vswitch.optical_port:
                inlet = Inlet(place, electrical=True)
                ports.append(_Counter(inlet, vswitch.electrical_port, received=True))
            found[vswitch.datapath_id] = ports
        elif tor is not None:
            inlet = Inlet(place, electrical=False)
            found[tor].append(_Counter(inlet, server.tor_port, received=False))
    return {datapath: tuple(ports) for datapath, ports in found.items()}
