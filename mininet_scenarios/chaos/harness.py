"""Rounds of faults: a fabric, a controller at work, incidents of a few faults, and a verdict.

A round is drawn from the round's seed alone: fabric, work, faults, targets and times.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from apps.process.configuration import load_configuration
from hydra.errors import HydraError
from mininet_scenarios import plain_http
from mininet_scenarios.chaos import fabrics, readers
from mininet_scenarios.chaos.evidence import FOLDER_FILES, Evidence
from mininet_scenarios.chaos.fault import (
    AUDIT_INTERVAL_S,
    PROBE_INTERVAL_S,
    SILENT_S,
    Fault,
    Field,
)
from mininet_scenarios.chaos.faults import FAULTS, Draw
from mininet_scenarios.chaos.invariants import disagreements
from mininet_scenarios.chaos.machine import Deadline, waited_s
from mininet_scenarios.chaos.pairs import Outage, Pairs, clock, every_pair
from mininet_scenarios.chaos.readers import Dark, Watch
from mininet_scenarios.emulators.admin import AdminError
from mininet_scenarios.stage.controller_process import ControllerProcess, members_of
from mininet_scenarios.stage.log_reader import LogReader
from mininet_scenarios.stage.preloaded import Preloaded
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.testbed import Testbed, ovs
from mininet_scenarios.testbed.disk import small_disk

POLICY: Final[Mapping[str, Any]] = {
    "mode": "on-request",
    "audit_interval_s": AUDIT_INTERVAL_S,
    "probe_interval_s": PROBE_INTERVAL_S,
    "quarantine_s": 1.0,
    "preemption_notice_s": 1.0,
    "timeouts": {"vswitch_s": 2.0, "tor_s": 2.0, "ocs_s": 2.0, "port_up_s": 1.0, "probe_s": 0.5},
}
"""Times short enough for a network that has to be at rest :data:`REST_S` after a fault."""
REST_S: Final = 5.0
"""Time from the end of the last fault until everything agrees again, counted by :class:`Deadline`:
a busy machine is no violation.
"""
INCIDENTS: Final = 4
"""Incidents in a round."""
_AT_A_TIME: Final = (1, 1, 2, 2, 2, 3)
"""Faults of an incident, each as likely."""
_LATEST_STRIKE_S: Final = 1.5
_LONGEST_FAULT_S: Final = 4.0
_SHORTEST_FAULT_S: Final = 0.3
_RECONNECTED_S: Final = 10.0
_BEFORE_S: Final = 0.3
"""Margin for datagrams under way when a fault struck."""
_WORK_BEFORE_S: Final = 1.0
_POLL_S: Final = 0.2
_DISK_BYTES: Final = 8 << 20
_MBPS: Final = 40.0
_PAUSE_S: Final = 0.8
_TIMEOUT_S: Final = 10.0
_WAITING: Final = {"Prefer": "wait=5"}
"""Users wait for the answers to their requests: no request is queued when faults are over."""
_NAMED: Final = 5
"""Most outages named in a violation."""


@dataclass(slots=True)
class Blow:
    """A fault with times, by ``CLOCK_MONOTONIC``."""

    fault: Fault
    name: str
    """Key in :data:`FAULTS`."""
    strike_at_s: float
    """Time from the incident's beginning."""
    heal_at_s: float
    from_s: float = 0.0
    to_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.name} ({self.fault.target})"

    def concerns(self, outage: Outage, rest_s: float) -> bool:
        """True if the fault may have caused an outage; ``rest_s``: time at which the network should
        be whole again.
        """
        return self.from_s - _BEFORE_S <= outage.to_s <= rest_s


@dataclass(slots=True)
class RoundResult:
    seed: int
    substrate: str
    strikes: Counter[str] = field(default_factory=Counter)
    """Number of strikes by fault."""
    violations: list[str] = field(default_factory=list)
    datagrams: int = 0
    changes: int = 0
    """Number of users' requests carried out by the controller."""


class Users(threading.Thread):
    """Users that ask for circuits and reservations, and tolerate missing answers."""

    def __init__(self, stage: Stage, base_url: str, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._racks = [rack.name for rack in stage.fabric.racks]
        self._planes = [plane.name for plane in stage.fabric.planes]
        self._base_url = base_url
        self._chance = chance
        self._working = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._over = False
        self.done = 0
        self.complaints: list[str] = []
        """Answers that no user should get."""

    def work(self) -> None:
        self._working.set()

    def rest(self) -> None:
        """Send no further requests; returns once the last answer has arrived."""
        self._working.clear()
        self._idle.wait()

    def leave(self) -> None:
        self._over = True
        self._working.set()
        self.join()

    def run(self) -> None:
        with plain_http.client(
            base_url=self._base_url, headers=_WAITING, timeout=_TIMEOUT_S
        ) as self._http:
            while self._working.wait() and not self._over:
                self._idle.clear()
                try:
                    if self._working.is_set():
                        self._ask()
                finally:
                    self._idle.set()
                time.sleep(self._chance.uniform(0, _PAUSE_S))

    def _ask(self) -> None:
        act = self._chance.choice([self._change, self._change, self._reserve, self._give_back])
        try:
            answer = act()
        except httpx.TransportError:
            return  # no controller
        if answer is None:
            return
        self.done += answer.is_success
        if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            self.complaints.append(f"{answer.request.method} {answer.request.url}: {answer.text}")

    def _change(self) -> httpx.Response:
        pairs = list(combinations(self._racks, 2))
        chosen = self._chance.sample(pairs, min(len(pairs), self._chance.randrange(4)))
        demand = [{"src": a, "dst": b, "mbps": 2 * _MBPS} for a, b in chosen]
        planes = self._chance.sample(self._planes, self._chance.randint(1, len(self._planes)))
        body = {"demand": demand, "use_planes": planes}
        return self._http.post("/v1/reconfigurations", json=body)

    def _reserve(self) -> httpx.Response:
        src, dst = self._chance.sample(self._racks, 2)
        body: dict[str, Any] = {"src": src, "dst": dst, "bandwidth_mbps": _MBPS}
        if self._chance.random() < 0.5:
            body["duration_s"] = self._chance.uniform(1.0, 5.0)
        body["priority"] = self._chance.choice([0, 0, 5])
        return self._http.post("/v1/reservations", json=body)

    def _give_back(self) -> httpx.Response | None:
        answer = self._http.get("/v1/reservations?state=active")
        reservations = answer.json()["reservations"] if answer.is_success else []
        if not reservations:
            return None
        return self._http.delete(f"/v1/reservations/{self._chance.choice(reservations)['id']}")


class Round:
    """A controller at work on a stage, with incidents."""

    def __init__(
        self,
        ground: Field,
        pairs: Pairs,
        users: Users,
        evidence: Evidence,
        seed: str,
        result: RoundResult,
        say: Callable[[str], None],
    ) -> None:
        self._ground = ground
        self._pairs = pairs
        self._users = users
        self._evidence = evidence
        self._seed = seed
        self._result = result
        self._say = say
        self._seen: set[tuple[str, str, int, float]] = set()
        self._outages: list[Outage] = []
        """Outages of the incident judged last."""
        self._dark: dict[str, int] = {}
        self._lost_by_machine: dict[str, int] = {}

    def incident(self, number: int, wanted: Mapping[str, Draw]) -> None:
        """Strike with a few faults, wait for rest, and judge."""
        self._begin()
        with self._evidence:
            found = self._befall(number, wanted)
        if found:
            self._evidence.write(found, self._outages)

    def _befall(self, number: int, wanted: Mapping[str, Draw]) -> list[str]:
        """Violations of an incident, in words."""
        self._users.work()
        time.sleep(_WORK_BEFORE_S)
        blows = self._draw(wanted, number)
        together = " and ".join(map(str, blows))
        self._say(together)
        try:
            found = self._found(blows)
        except (HydraError, AdminError) as error:
            found = [f"breaks off: {error}"]
        for problem in found:
            self._say(f"  VIOLATED: {problem}")
        times = ", ".join(f"{clock(blow.from_s)} to {clock(blow.to_s)}" for blow in blows)
        violations = [f"{together} ({times}): {problem}" for problem in found]
        self._result.violations += violations
        return violations

    def _found(self, blows: Sequence[Blow]) -> list[str]:
        """Violations once the faults are over."""
        self._play(blows)
        self._users.rest()
        over_s = self._last_fault_over_s()
        left = self._come_to_rest()
        found = [f"{problem} ({REST_S:g} s after the last fault)" for problem in left]
        found += self._judge_pairs(blows, max(over_s + REST_S, time.monotonic()))
        found += self._judge_dark(blows)
        found += [f"answered: {complaint}" for complaint in self._users.complaints]
        self._users.complaints.clear()
        if not self._ground.process.running:
            found.append("the controller ended by itself")
        return found

    def _draw(self, wanted: Mapping[str, Draw], number: int) -> list[Blow]:
        """Faults with targets and times. Each fault has a random generator of its own, so the ports
        in use at the draw of a fault don't change other faults.
        """
        chance = random.Random(f"{self._seed} {number}")
        many, names = chance.choice(_AT_A_TIME), chance.sample(list(wanted), len(wanted))
        blows: list[Blow] = []
        for name in names:
            chance = random.Random(f"{self._seed} {number} {name}")
            strike_at_s = chance.uniform(0, _LATEST_STRIKE_S)
            lasts_s = chance.uniform(_SHORTEST_FAULT_S, _LONGEST_FAULT_S)
            fault = wanted[name](self._ground, chance)
            if fault is None or any(blow.fault.excludes(fault) for blow in blows):
                continue
            if fault.ends_alone:
                lasts_s = 0.0
            blows.append(Blow(fault, name, strike_at_s, strike_at_s + lasts_s))
            if len(blows) == many:
                break
        return blows

    def _play(self, blows: Sequence[Blow]) -> None:
        """Strike and heal when due; a slow heal delays the following steps."""
        began_s = time.monotonic()
        moments = [(blow.strike_at_s, blow, True) for blow in blows]
        moments += [(blow.heal_at_s, blow, False) for blow in blows]
        for at_s, blow, strikes in sorted(moments, key=lambda moment: moment[0]):
            time.sleep(max(0.0, began_s + at_s - time.monotonic()))
            if strikes:
                blow.from_s = time.monotonic()
                blow.fault.strike()
                self._result.strikes[blow.name] += 1
            else:
                blow.fault.heal()
                blow.to_s = time.monotonic()

    def _last_fault_over_s(self) -> float:
        """The moment at which all bridges have found the controller again.

        Open vSwitch waits for up to 8 s between two attempts.
        """
        latest_s = time.monotonic() + _RECONNECTED_S
        port = self._ground.process.settings.openflow_port
        while readers.lonely_bridges(port) and time.monotonic() < latest_s:
            time.sleep(_POLL_S)
        return time.monotonic()

    def _come_to_rest(self) -> list[str]:
        """Wait until everything agrees; return the remaining disagreements at the deadline."""
        settings = self._ground.process.settings
        deadline = Deadline(REST_S, self._waited_s)
        while True:
            is_over = deadline.is_over()
            left = disagreements(
                self._ground.fabric, Path(settings.journal), self._ground.process.base_url
            )
            if not left and (silent := self._pairs.silent()):
                left = [f"{len(silent)} pairs are silent: {_some(silent)}"]
            if not left or is_over:
                return left
            time.sleep(_POLL_S)

    def _waited_s(self) -> float:
        """Time for which a busy machine has kept the controller and Open vSwitch waiting."""
        process = self._ground.process
        return waited_s([*(members_of(process.pid) if process.running else ()), *ovs.pids()])

    # -- judgement -------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Exclude earlier outages and losses from the next incident."""
        self._news()
        self._outages = []
        self._dark = self._ground.dark.frames()
        self._lost_by_machine = self._machine_losses()

    def _news(self) -> list[Outage]:
        """Outages that are new since the last call."""
        outages = self._pairs.outages()
        new = [outage for outage in outages if _key(outage) not in self._seen]
        self._seen.update(map(_key, outages))
        return new

    def _judge_pairs(self, blows: Sequence[Blow], rest_s: float) -> Iterator[str]:
        untouched: list[Outage] = []
        silent: list[Outage] = []
        self._outages = self._news()
        for outage in self._outages:
            ends = outage.source, outage.destination
            near = [blow.fault for blow in blows if blow.concerns(outage, rest_s)]
            if any(fault.cuts(*ends) for fault in near):
                continue
            touching = [fault for fault in near if fault.touches(*ends)]
            if touching and any(fault.blinds(*ends) for fault in near):
                continue  # no repair was possible
            if not touching:
                untouched.append(outage)
            longest_s = max((outage.longest_silence_s for outage in touching), default=SILENT_S)
            if outage.silent_s > longest_s:
                silent.append(outage)
        if silent:
            silent.sort(key=lambda outage: outage.silent_s, reverse=True)
            yield f"{len(silent)} outages that are too long: {_some(silent)}"
        lost = sum(outage.lost for outage in untouched)
        before = self._lost_by_machine
        by_machine = sum(
            max(0, count - before.get(place, 0))  # counters begin anew with a bridge or a daemon
            for place, count in self._machine_losses().items()
        )
        if lost > by_machine:
            yield (
                f"{lost} lost by pairs that nothing touched ({by_machine} in queues): "
                f"{_some(untouched)}"
            )

    def _judge_dark(self, blows: Sequence[Blow]) -> Iterator[str]:
        spared = {port for blow in blows for port in blow.fault.darkens()}
        for port, count in self._ground.dark.frames().items():
            new = count - self._dark.get(port, 0)
            if new and port not in spared:
                yield f"{new} frames into the dark at {port}"

    def _machine_losses(self) -> dict[str, int]:
        """Frames dropped by queues, or not read by Open vSwitch on a busy machine."""
        testbed = self._ground.stage.testbed
        dropped = {name: queue.dropped_frames for name, queue in testbed.queues().items()}
        return {**dropped, "sockets": testbed.unread_frames()}


def _some(outages: Sequence[Outage]) -> str:
    return "; ".join(map(str, outages[:_NAMED]))


def _key(outage: Outage) -> tuple[str, str, int, float]:
    return outage.source, outage.destination, outage.version, outage.from_s


def play_round(
    seed: int,
    substrate: str,
    say: Callable[[str], None],
    *,
    faults: Mapping[str, Draw] = FAULTS,
    document: Mapping[str, Any] | None = None,
    incidents: int = INCIDENTS,
    logs: Path | None = None,
) -> RoundResult:
    """Play the round of a seed on a fabric drawn from the seed, or on the fabric of ``document``.

    ``logs`` is a folder for the controller's log, fabric and evidence of a round with violations.
    """
    text = f"{seed} {substrate}"
    drawn = document or fabrics.draw(random.Random(text), substrate)
    result = RoundResult(seed, str(drawn.get("substrate", "dual-homed-vlan")))
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hydra-chaos-")))
        disk = stack.enter_context(small_disk(directory / "disk", _DISK_BYTES))
        stage = stack.enter_context(_stage(drawn, directory))
        (directory / "journal.db").symlink_to(disk / "journal.db")
        preloaded = Preloaded(directory)
        reader = stack.enter_context(closing(LogReader(preloaded.launch)))
        process = stack.enter_context(stage.process(POLICY, launch=reader.launch))
        watch = stack.enter_context(Watch(process.base_url))
        pairs = stack.enter_context(every_pair(stage))
        planes = {plane.name: stage.testbed.ocs(plane.name) for plane in stage.fabric.planes}
        ground = Field(stage, process, watch, Dark(stage.fabric, planes), disk, preloaded, reader)
        users = Users(stage, process.base_url, random.Random(f"{text} users"))
        users.start()
        try:
            pairs.wait_for_all_flows()
            evidence = Evidence(stage, process.base_url, directory)
            played = Round(ground, pairs, users, evidence, text, result, say)
            for number in range(incidents):
                if not result.violations:  # incidents on a broken network prove nothing
                    played.incident(number, faults)
            result.datagrams = pairs.sent()
        finally:
            users.leave()
            result.changes = users.done
            defects = _defects(process)
            for defect in defects:
                say(f"  VIOLATED: {defect}")
            result.violations += defects
            if logs is not None and result.violations:
                _keep(logs / f"seed-{seed}-{result.substrate}", directory, process, result)
    return result


def _keep(folder: Path, directory: Path, process: ControllerProcess, result: RoundResult) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(process.log, folder / "controller.log")
    shutil.copy(process.config, folder / "fabric.yaml")
    for name in FOLDER_FILES:
        if (directory / name).exists():
            shutil.copy(directory / name, folder / name)
    (folder / "violations.txt").write_text("\n".join(result.violations) + "\n")


def _defects(process: ControllerProcess) -> list[str]:
    """Unexpected errors in the controller's log, regardless of other failures."""
    lines = process.log.read_text(errors="replace").splitlines()
    return [f"the log has: {line}" for line in lines if line.startswith("Traceback")]


@contextmanager
def _stage(document: Mapping[str, Any], directory: Path) -> Iterator[Stage]:
    path = directory / "fabric.yaml"
    path.write_text(yaml.safe_dump(dict(document), sort_keys=False))
    loaded = load_configuration(path)
    with Testbed(loaded.fabric, loaded.controller, fdb_age_s=loaded.policy.fdb_age_s) as testbed:
        ovs.separate_cached_flows()
        yield Stage(testbed, loaded.fabric, document, directory)
