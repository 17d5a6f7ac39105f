"""The shipped upkeep of a controller (switches, devices, recovery) on the simulated network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TypeVar

from apps.controller.between_jobs import BetweenJobs
from hydra.model import Circuit, DatapathId, Fabric, NetworkState, Path, PlaneId, PortId, RackId
from hydra.policy import CurrentPolicy, DrainPolicy, Policy
from hydra.reconfiguration.commands import (
    AwaitPortsUp,
    Batch,
    Command,
    Course,
    Outcome,
    ReadVlans,
    SaveState,
    Steps,
)
from hydra.reconfiguration.courses import Courses
from hydra.reconfiguration.executor import STEPS, Execution, intent
from hydra.reconfiguration.gate import GATE
from hydra.reconfiguration.plan import SETTLED, Unsettled
from hydra.reconfiguration.readiness import RenumberedPort, SeenPort
from hydra.reconfiguration.reconcile import NONE_HELD, Held
from hydra.reconfiguration.run import Conditions
from hydra.reconfiguration.scheduler import Job, Work, drive
from tests.unit.reconfiguration.simulation.faults import LONGEST_DELAY_S, LONGEST_LAG_S, Doing
from tests.unit.reconfiguration.simulation.network import Network

_ResultT = TypeVar("_ResultT")
POLICY = Policy(drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0))


@dataclass
class Remembered:
    """A controller's knowledge of the state; ``saved`` is its successor's start."""

    state: NetworkState
    unsettled: Unsettled = SETTLED
    held: Held = NONE_HELD
    saved: NetworkState = field(init=False)

    def __post_init__(self) -> None:
        self.saved = self.state

    def settle(self, state: NetworkState) -> None:
        self.state = state

    def unsettle(self, more: Unsettled) -> None:
        self.unsettled |= more

    def hold(self, held: Held) -> None:
        self.held = held


class Seen:
    """OpenFlow connections and ports of the simulated network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._server_at = {
            (server.vswitch.datapath_id, server.vswitch.optical_port): server.name
            for server in network.fabric.servers
            if server.vswitch is not None
        } | {
            (tor, server.tor_port): server.name
            for server in network.fabric.servers
            if (tor := network.fabric.racks[server.rack].tor.datapath_id) is not None
        }

    def connected(self) -> frozenset[DatapathId]:
        return frozenset(self._network.connected | self._network.learning.keys())

    def mute(self) -> frozenset[DatapathId]:
        return frozenset(self._network.late.mute)

    def port(self, datapath: DatapathId, name: str) -> SeenPort | None:
        server = self._server_at.get((datapath, name))
        heard = self._network.connected | self._network.late.mute
        if server is None or datapath not in heard:
            return None
        return SimpleNamespace(up=server not in self._network.dead_uplinks, number=0)


class SimulatedUpkeep:
    """The upkeep of a controller, from its start to its end."""

    def __init__(
        self,
        network: Network,
        state: NetworkState,
        unsettled: Unsettled = SETTLED,
        look: Callable[[Command | None], None] = lambda _command: None,
    ) -> None:
        """``look`` is called after every single change."""
        self.network = network
        self.look = look
        self.memory = Remembered(state, unsettled)
        policy = CurrentPolicy(POLICY)
        fabric: Fabric = network.fabric
        self.followed: list[RenumberedPort] = []
        """Ports with another OpenFlow number, once rules have the number."""
        seen = Seen(network)
        courses = self.courses = Courses(
            fabric=fabric,
            policy=policy,
            memory=self.memory,
            connections=seen,
            followed=self.followed.extend,
        )
        self.switches, self.care = courses.switches, courses.care
        self.recovery, self.audit = courses.recovery, courses.audit
        network.electrical = lambda: self.switches.refused
        self._lanes = state.vlans.items() | unsettled.begun
        """Paths on which racks may have sent at the start."""
        self._dark: set[PortId] = set()
        """Ports without light, by their ToRs' reports."""
        self._silent: set[RackId] = set()
        """Racks whose ToR did not report its VLANs at the last read."""
        self._patient_until_s = 0.0
        """End of the wait for frames, by at least the drain's bound."""
        self.denied: frozenset[Circuit] = frozenset()
        """Circuits of the state that a plane lacked when it answered again."""
        self.steps: list[str] = []
        self.jobs: list[Job] = []
        """Jobs of courses that let others in, in turn."""
        self._doing: list[tuple[Command, Doing, Future[Outcome]]] = []
        """Commands of such courses that are under way."""

    @classmethod
    def at_work(cls, network: Network, state: NetworkState) -> SimulatedUpkeep:
        """A controller after a recovery, with the network in ``state``."""
        upkeep = cls(network, state)
        upkeep.switches.settled = upkeep.recovery.done = True
        upkeep.run(upkeep.recovery.bring([*network.names, *network.learning]))
        return upkeep

    def run(self, course: Course[_ResultT] | Work[_ResultT]) -> _ResultT:
        """Carry out a course; returns its result."""
        return drive(course, self.perform)

    def run_meanwhile(self, course: Course[_ResultT]) -> _ResultT:
        return self.run(course)

    def run_beside(self, course: Steps) -> BetweenJobs:
        """Begin a course that goes on between jobs, as its devices answer."""
        beside = BetweenJobs(course, self.submit_beside, self.jobs.append)
        self.run(beside.begin(0.0))
        return beside

    def submit(self, batch: Batch) -> Sequence[Future[Outcome]]:
        """Every device answers at once."""
        futures = [Future[Outcome]() for _ in batch.commands]
        for future, outcome in zip(futures, self.perform(batch), strict=True):
            future.set_result(outcome)
        return futures

    def do_jobs(self) -> None:
        while self.jobs:
            work = self.jobs.pop(0)()
            if work is not None:
                self.run(work)

    def submit_beside(self, batch: Batch) -> Sequence[Future[Outcome]]:
        """Every device answers by :meth:`go_on_beside`."""
        self.steps.append(batch.step)
        futures = [Future[Outcome]() for _ in batch.commands]
        for command, future in zip(batch.commands, futures, strict=True):
            self._doing.append((command, self.network.start(command), future))
        return futures

    def go_on_beside(self) -> None:
        """A step of the work under way beside others."""
        if not self._doing:
            return
        command, doing, future = self._doing[0]
        try:
            next(doing)
        except StopIteration as end:
            del self._doing[0]
            outcome = Outcome(*end.value)
            self._learn(command, outcome)
            future.set_result(outcome)

    def finish_beside(self) -> None:
        """All work under way, and the jobs that follow."""
        while self._doing or self.jobs:
            self.go_on_beside()
            self.do_jobs()

    def perform(self, batch: Batch) -> list[Outcome]:
        self.steps.append(batch.step)
        if batch.step == "drain" and "drain" not in self.steps[:-1]:
            self._patient_until_s = self.network.now_s + POLICY.drain.bound_ms / 1000
        if batch.step in ("retag", "move") and self.network.now_s >= self._patient_until_s:
            self.network.lose_waiting([lane for lane in self._lanes if self._doubts(lane[0])])
        outcomes = self.network.perform(batch, self.look)
        for command, outcome in zip(batch.commands, outcomes, strict=True):
            self._learn(command, outcome)
        return outcomes

    def _learn(self, command: Command, outcome: Outcome) -> None:
        if isinstance(command, SaveState):
            self._save(self.memory.state)
        elif isinstance(command, ReadVlans):
            (self._silent.discard if outcome.confirmed else self._silent.add)(command.rack)
        elif isinstance(command, AwaitPortsUp) and outcome.confirmed:
            for name in command.ports:
                end = self.network.port_named[command.rack, name].id
                (self._dark.add if name in outcome.value else self._dark.discard)(end)

    def _save(self, state: NetworkState) -> None:
        """With the paths left standing, in a single write."""
        memory, journal = self.memory, self.network.journal
        memory.saved = state
        journal.clear()
        if memory.held.lanes:
            told = intent(self.network.fabric, state, memory.held.beside(state), ())
            journal.append((told.what, told.details))

    def _doubts(self, path: Path) -> bool:
        """True if a port of ``path`` has no light by its ToR's report, or if a ToR reports nothing
        of the port.

        Frames queued for such a path in front of a ToR that stands still get the drain's bound, and
        are lost with the path afterwards (decision 24).
        """
        ends = {end for circuit in path.circuits for end in circuit.ends}
        racks = {self.network.fabric.ports[end].rack for end in ends}
        return not (self._dark.isdisjoint(ends) and self._silent.isdisjoint(racks))

    @property
    def uncertain(self) -> set[PlaneId | str]:
        racks = self.network.fabric.racks
        return {*self.care.uncertain_planes, *(racks[i].name for i in self.care.uncertain_racks)}

    def start(self) -> None:
        self.run(self.recovery.run())

    def conditions(self) -> Conditions:
        switches = self.switches
        return Conditions(
            connected=switches.ready(),
            dead_uplinks=switches.dead_uplinks,
            closed=switches.closed,
            diverted=switches.diverted,
        )

    def take_over(self, execution: Execution) -> None:
        """A reconfiguration has ended."""
        assert {trouble.step for trouble in execution.troubles} <= STEPS | GATE
        self.memory.settle(execution.result)
        self._save(execution.result)
        self.care.learn(execution)
        self.switches.learn(execution)
        self.switches.closed_meanwhile = frozenset()
        self.run(self.courses.detours.follow())

    def follow_uplinks_meanwhile(self, change: Execution) -> None:
        """During the waits of a change under way."""
        if self.network.substrate.detours:
            self.switches.closed_meanwhile = frozenset(change.closed)
            self.run_meanwhile(self.courses.detours.follow_all())
            change.set_dead_uplinks(self.switches.dead_uplinks)
        else:
            change.set_dead_uplinks(self.switches.still_down(change.conditions.dead_uplinks))

    def look_after(self) -> None:
        """One turn: retry what is uncertain, once what was late has happened."""
        self.network.now_s += LONGEST_DELAY_S
        self.network.catch_up()
        self.network.now_s += LONGEST_LAG_S
        uncertain = self.care.uncertain_planes, self.care.uncertain_racks
        self.denied |= self.run(self.care.mend(*uncertain))
        self.run(self.recovery.bring(self.switches.late() | self.switches.refused.keys()))

    def reconnect(self) -> None:
        """Some missing switches are back: each connects."""
        for datapath in self.network.names.keys() - self.network.connected:
            self.switches.renewed(datapath)


def mend(network: Network, execution: Execution) -> None:
    """The upkeep after a reconfiguration's end, without further faults."""
    upkeep = SimulatedUpkeep.at_work(network, execution.result)
    upkeep.take_over(execution)
    upkeep.look_after()
