"""The shipped upkeep of a controller (switches, devices, recovery) on the simulated network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TypeVar

from apps.controller.runner import BesideOthers
from hydra.model import Circuit, DatapathId, Fabric, NetworkState, Path, PlaneId, PortId, RackId
from hydra.policy import CurrentPolicy, DrainPolicy, Policy
from hydra.reconfiguration.commands import (
    ApplyRules,
    AwaitPortsUp,
    AwaitSwitches,
    Batch,
    Command,
    ConfirmRules,
    Course,
    Outcome,
    ReadVlans,
    SaveState,
    Steps,
)
from hydra.reconfiguration.device_care import DeviceCare
from hydra.reconfiguration.executor import STEPS, Execution
from hydra.reconfiguration.gating import GATE
from hydra.reconfiguration.plan import SETTLED, Unsettled
from hydra.reconfiguration.readiness import MovedPort, SeenPort
from hydra.reconfiguration.recovery import Recovery
from hydra.reconfiguration.run import Conditions
from hydra.reconfiguration.switches import Switches
from tests.unit.reconfiguration.simulation import LONGEST_DELAY_S, LONGEST_LAG_S, Doing, Network

_ResultT = TypeVar("_ResultT")
POLICY = Policy(drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0))


@dataclass
class Remembered:
    """What a controller knows of the state; ``saved`` is what the next one starts from."""

    state: NetworkState
    unsettled: Unsettled = SETTLED
    saved: NetworkState = field(init=False)

    def __post_init__(self) -> None:
        self.saved = self.state

    def settle(self, state: NetworkState) -> None:
        self.state = state

    def unsettle(self, more: Unsettled) -> None:
        self.unsettled |= more


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
    """One controller's upkeep, from its start to its end."""

    def __init__(
        self,
        network: Network,
        state: NetworkState,
        unsettled: Unsettled = SETTLED,
        look: Callable[[Command | None], None] = lambda _command: None,
    ) -> None:
        """``look`` sees the network after every single change."""
        self.network = network
        self.look = look
        self.memory = Remembered(state, unsettled)
        policy = CurrentPolicy(POLICY)
        fabric: Fabric = network.fabric
        self.followed: list[MovedPort] = []
        """Ports with another OpenFlow number, once rules name them by that."""
        seen = Seen(network)
        self.switches = Switches(fabric, policy, self.memory, seen, followed=self.followed.extend)
        network.electrical = lambda: self.switches.refused
        self.care = DeviceCare(fabric, policy, self.memory, self.switches)
        self.recovery = Recovery(fabric, self.memory, self.switches, self.care)
        self.unbrought: set[str] = set()
        """Servers whose switch has not been brought to the state, although it was tried."""
        self._lanes = state.vlans.items() | unsettled.begun
        """What racks may have sent on when it started."""
        self._dark: set[PortId] = set()
        """Ports without light, as their ToRs told it."""
        self._silent: set[RackId] = set()
        """Racks whose ToR did not tell its VLANs when it was asked last."""
        self._patient_until_s = 0.0
        """Until when it waits for frames by the drain's bound, at least."""
        self._forgets_s: dict[str, float] = {}
        """When switches that have been brought forget what they had cached before."""
        self.denied: frozenset[Circuit] = frozenset()
        """Circuits of the state that a plane did not have when it answered again."""
        self.steps: list[str] = []
        self.jobs: list[Callable[[], None]] = []
        """Jobs of courses that let others in, in turn."""
        self._doing: list[tuple[str, Command, Doing, Future[Outcome]]] = []
        """Commands of such courses that are under way."""

    @classmethod
    def at_work(cls, network: Network, state: NetworkState) -> SimulatedUpkeep:
        """One that has recovered, with the network as it is in ``state``."""
        upkeep = cls(network, state)
        upkeep.switches.settled = upkeep.recovery.done = True
        upkeep.run(upkeep.recovery.bring([*network.names, *network.learning]))
        return upkeep

    def run(self, course: Course[_ResultT]) -> _ResultT:
        """Carry out a course; what it returns."""
        try:
            batch = next(course)
            while True:
                batch = course.send(self.perform(batch))
        except StopIteration as end:
            result: _ResultT = end.value
            return result

    def run_meanwhile(self, course: Course[_ResultT]) -> _ResultT:
        return self.run(course)

    def run_beside(
        self,
        course: Steps,
        put: Callable[[Callable[[], None]], None] | None = None,
        alone_s: float = 0.0,
    ) -> BesideOthers:
        """With ``alone_s``, whoever is asked answers promptly."""
        if not alone_s:
            return BesideOthers(course, self._submit, self.perform, put or self.jobs.append)
        beside = BesideOthers(course, self._answered, self.perform, lambda _job: None)
        beside.wait(alone_s)
        return beside

    def _answered(self, batch: Batch) -> Sequence[Future[Outcome]]:
        futures = [Future[Outcome]() for _ in batch.commands]
        for future, outcome in zip(futures, self.perform(batch), strict=True):
            future.set_result(outcome)
        return futures

    def _submit(self, batch: Batch) -> Sequence[Future[Outcome]]:
        self.steps.append(batch.step)
        futures = [Future[Outcome]() for _ in batch.commands]
        for command, future in zip(batch.commands, futures, strict=True):
            self._doing.append((batch.step, command, self.network.start(command), future))
        return futures

    def go_on_beside(self) -> None:
        """One step of what is under way beside others."""
        if not self._doing:
            return
        step, command, doing, future = self._doing[0]
        try:
            next(doing)
        except StopIteration as end:
            del self._doing[0]
            outcome = Outcome(*end.value)
            self._learn(step, command, outcome)
            future.set_result(outcome)

    def finish_beside(self) -> None:
        """All that is under way, and the jobs that follow."""
        while self._doing or self.jobs:
            self.go_on_beside()
            while self.jobs:
                self.jobs.pop(0)()

    def perform(self, batch: Batch) -> list[Outcome]:
        self.steps.append(batch.step)
        if batch.step == "drain" and "drain" not in self.steps[:-1]:
            self._patient_until_s = self.network.now_s + POLICY.drain.bound_ms / 1000
        if batch.step in ("retag", "move") and self.network.now_s >= self._patient_until_s:
            self.network.lose_waiting([lane for lane in self._lanes if self._doubts(lane[0])])
        outcomes = self.network.perform(batch, self.look)
        for command, outcome in zip(batch.commands, outcomes, strict=True):
            self._learn(batch.step, command, outcome)
        return outcomes

    def _learn(self, step: str, command: Command, outcome: Outcome) -> None:
        if isinstance(command, SaveState):
            self.memory.saved = self.memory.state
            self.network.journal.clear()
        elif isinstance(command, ReadVlans):
            (self._silent.discard if outcome.confirmed else self._silent.add)(command.rack)
        elif isinstance(command, AwaitPortsUp) and outcome.confirmed:
            for name in command.ports:
                end = self.network.port_named[command.rack, name].id
                (self._dark.add if name in outcome.value else self._dark.discard)(end)
        elif isinstance(command, AwaitSwitches):
            self._note_unbrought(set(command.datapaths) - outcome.value, ())
        elif isinstance(command, ConfirmRules):
            self._note_unbrought((), outcome.value.exact)
        elif isinstance(command, ApplyRules) and step == "synchronise":
            failed = {datapath for datapath, error in outcome.value.items() if error}
            self._note_unbrought(failed, outcome.value.keys() - failed)

    def _note_unbrought(
        self, failed: Collection[DatapathId], brought: Collection[DatapathId]
    ) -> None:
        for server, switch in self.network.switch_of.items():
            if switch.datapath in failed:
                self.unbrought.add(server)
            elif switch.datapath in brought and server in self.unbrought:
                self.unbrought.discard(server)
                cached = self.network.cached(switch.datapath)
                self._forgets_s[server] = max((one.until_s for one in cached), default=0.0)

    def _doubts(self, path: Path) -> bool:
        """Whether a port of ``path`` has no light, as its ToR says, or a ToR says nothing of it.

        What waits for such a path in front of a ToR that stands still is given the drain's bound,
        and is lost with the path after that (decision 24).
        """
        ends = {end for circuit in path.circuits for end in circuit.ends}
        racks = {self.network.fabric.ports[end].rack for end in ends}
        return not (self._dark.isdisjoint(ends) and self._silent.isdisjoint(racks))

    def excused(self) -> set[str]:
        """Servers whose switch could not be told that circuits go, or still forwards by what it had
        cached by then.
        """
        now_s = self.network.now_s
        return self.unbrought.union(s for s, until_s in self._forgets_s.items() if now_s < until_s)

    @property
    def uncertain(self) -> set[PlaneId | str]:
        racks = self.network.fabric.racks
        return {*self.care.uncertain_planes, *(racks[i].name for i in self.care.uncertain_racks)}

    def start(self) -> None:
        self.run(self.recovery.run())

    def conditions(self) -> Conditions:
        switches = self.switches
        return Conditions(
            switches.ready(), switches.dead_uplinks, switches.closed, switches.diverted
        )

    def take_over(self, execution: Execution) -> None:
        """A reconfiguration has ended."""
        assert {trouble.step for trouble in execution.troubles} <= STEPS | GATE
        self.memory.settle(execution.result)
        self.memory.saved = execution.result
        self.network.journal.clear()
        self.care.learn(execution)
        self.switches.learn(execution)
        self.switches.closed_meanwhile = frozenset()
        self.run(self.switches.follow_closed())

    def follow_uplinks_meanwhile(self, change: Execution) -> None:
        """While a change is under way, where it waits."""
        if self.network.substrate.detours:
            self.switches.closed_meanwhile = frozenset(change.closed)
            self.run_meanwhile(self.switches.follow_uplinks())
            change.hear_of_uplinks(self.switches.dead_uplinks)

    def look_after(self) -> None:
        """One turn: retry what is uncertain, once what was late has happened."""
        self.network.now_s += LONGEST_DELAY_S
        self.network.catch_up()
        self.network.now_s += LONGEST_LAG_S
        uncertain = self.care.uncertain_planes, self.care.uncertain_racks
        self.denied |= self.run(self.care.mend(*uncertain))
        self.run(self.recovery.bring(self.switches.late() | self.switches.refused.keys()))

    def reconnect(self) -> None:
        """Some switches were away and are back: each says so."""
        for datapath in self.network.names.keys() - self.network.connected:
            self.switches.renewed(datapath)


def mend(network: Network, execution: Execution) -> None:
    """What the upkeep makes of a reconfiguration's end, where nothing fails any more."""
    upkeep = SimulatedUpkeep.at_work(network, execution.result)
    upkeep.take_over(execution)
    upkeep.look_after()
