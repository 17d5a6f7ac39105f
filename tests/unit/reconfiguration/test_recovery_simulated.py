"""A controller that dies at any moment of a reconfiguration, and whose successors die in
recoveries.

The shipped recovery (:mod:`hydra.reconfiguration.recovery`) runs on devices that fail, answer late
or not at all, and dies up to twice more; then a recovery runs undisturbed. Replay as in
:mod:`tests.unit.reconfiguration.seeds`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest

from hydra.model import Circuit, Fabric, NetworkState, Path, PlaneId
from hydra.reconfiguration.commands import Batch
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import Unsettled, port_trunks
from hydra.reconfiguration.recovery import interrupted
from hydra.rings import rings_of
from tests.unit.core.fabrics import first_state, order_of, random_fabric, random_state
from tests.unit.reconfiguration.courses import first_course
from tests.unit.reconfiguration.seeds import chunks, hold, remembering
from tests.unit.reconfiguration.simulation.faults import (
    LONGEST_DELAY_S,
    LONGEST_STANDSTILL_S,
    Faults,
)
from tests.unit.reconfiguration.simulation.network import Network, shake
from tests.unit.reconfiguration.upkeep import POLICY, SimulatedUpkeep
from tests.unit.reconfiguration.watch import Violation, Watch

pytestmark = pytest.mark.takes(20)

_RUNS = 300
_LEASES = 100
_CHANGES = {"retag", "move"}


class CrashError(Exception):
    """The controller's process is gone."""


class Death:
    """A crash before, during or after the batch with this number, or the batch of this step if
    earlier.
    """

    def __init__(self, rng: random.Random, batch: int, step: str = "") -> None:
        self._rng = rng
        self._left = batch
        self._step = step

    @classmethod
    def within(cls, execution: Execution, rng: random.Random) -> Death:
        """A crash within a course, at any of its steps: draining takes most batches."""
        made_first = ("make", "shift", "break")
        steps = made_first if execution.in_light else ("divert", "move", "activate")
        step = rng.choice(("", "carrier", "probe", *steps))
        return cls(rng, rng.randint(0, 40 if step else 14), step)

    def before(self, batch: Batch) -> None:
        if batch.step == self._step:
            self._left = 0
        if self._left == 0 and self._rng.random() < 0.5:
            raise CrashError

    def during(self) -> None:
        if self._left == 0 and self._rng.random() < 0.2:
            raise CrashError

    def after(self) -> None:
        if self._left == 0:
            raise CrashError
        self._left -= 1


class DoomedWatch(Watch):
    """A crash of a reconfiguration's controller."""

    def __init__(self, network: Network, execution: Execution, death: Death) -> None:
        super().__init__(network, execution)
        self._death = death

    def before(self, batch):
        super().before(batch)
        self._death.before(batch)

    def look(self, command):
        super().look(command)
        self._death.during()

    def learn(self, batch, outcomes):
        super().learn(batch, outcomes)
        self._death.after()


class DoomedUpkeep(SimulatedUpkeep):
    """A crash of a controller in its recovery."""

    death: Death

    def perform(self, batch):
        self.death.before(batch)
        outcomes = super().perform(batch)
        self.death.after()
        return outcomes


class Course(NamedTuple):
    died_in: str
    """The reconfiguration's step."""
    recoveries: tuple[tuple[str, ...], ...]
    """The steps of each recovery; all but the last three were cut off."""
    dropped: int
    """Remembered circuits that no longer exist."""
    refused: int
    """Number of late changes of former leaders that were refused."""
    kept_unread: int
    """Paths kept although a device on their way did not answer."""
    left_standing: int
    """Paths given up that stood until switches had connected that might send there."""


def time_passes(network: Network, watch: Watch) -> None:
    """Wait until the dead controller's commands have taken effect."""
    network.now_s += LONGEST_DELAY_S
    network.catch_up()
    watch.look(None)
    network.now_s += LONGEST_STANDSTILL_S  # a successor does not start that soon


def leads_next(network: Network, watch: Watch) -> None:
    network.take_over()
    watch.look(None)


def simulate_leases(seed: int, latest: int = 14) -> Course:
    """As :func:`simulate`, with leases: the next leader does not wait for the former leader's
    commands.
    """
    return simulate(seed, leads_next, latest)


simulate_brief_leases = partial(simulate_leases, latest=9)
"""Recoveries cut off before the middle of their retagging, which these seeds are for."""


@remembering(_RUNS)
def simulate(
    seed: int, passes: Callable[[Network, Watch], None] = time_passes, latest: int = 14
) -> Course:
    """A crash in a reconfiguration, up to two crashes in recoveries, each after at most ``latest``
    steps, a recovery while some devices do not answer, and two undisturbed recoveries.
    """
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    order = order_of(fabric)
    state = first_state(fabric, rng)
    network = Network(fabric, state, rng)
    upkeep = SimulatedUpkeep.at_work(network, state)
    shake(network, rng)
    target = random_state(fabric, state, rng)
    execution = first_course(fabric, POLICY, state, target, upkeep.conditions(), order)
    network.unsettle(sorted(execution.plan.disconnect))
    death = Death.within(execution, rng)
    doomed = DoomedWatch(network, execution, death)
    with suppress(CrashError):
        doomed.run()
    died_in = doomed.steps[-1] if doomed.steps else ""
    after = Watch(network, execution)
    after.holds_dark = False  # the last users of VLANs were known to the former controller only
    after.steps = [*doomed.steps, "recovery"]
    recoveries: list[tuple[str, ...]] = []
    saved, kept_unread, left_standing = state, 0, 0
    late = random.Random(f"late {seed}")
    for _ in range(rng.choice((0, 0, 1, 2))):
        passes(network, after)
        shake(network, rng)
        network.faults = replace(network.faults, standstill=0.0)  # a recovery has no drain
        dying = next_controller(DoomedUpkeep, network, saved, after)
        dying.death = Death(rng, rng.randint(0, latest))
        with suppress(CrashError):
            dying.start()
        saved = dying.memory.saved
        recoveries.append(tuple(dying.steps))
    for away in (some_devices(fabric, rng), set[PlaneId | str](), set[PlaneId | str]()):
        passes(network, after)
        network.faults = Faults()
        network.connected = {one for one in network.names if not away or late.random() < 0.8}
        network.away = away
        living = next_controller(SimulatedUpkeep, network, saved, after)
        untouched = standing(network, saved, living.memory.unsettled)
        living.start()
        kept_unread += keeps(untouched, living, after)
        left_standing += len(living.memory.held.lanes)
        if away:
            network.away, network.connected = set(), set(network.names)
            for _ in range(2):  # switches are synchronised, and paths left standing until then go
                living.look_after()
        saved = living.memory.saved
        recoveries.append(tuple(living.steps))
        agrees(network, living, after)
    if not _CHANGES.isdisjoint(recoveries[-1]):
        raise Violation(f"after {after.steps}: a second recovery changes something")
    return Course(
        died_in,
        tuple(recoveries),
        len(state.topology.circuits - saved.topology.circuits),
        network.late.refused,
        kept_unread,
        left_standing,
    )


def some_devices(fabric: Fabric, rng: random.Random) -> set[PlaneId | str]:
    """Planes and racks whose device does not answer at a start: often none."""
    if rng.random() < 0.5:
        return set()
    devices = [*(plane.id for plane in fabric.planes), *(rack.name for rack in fabric.racks)]
    return {one for one in devices if rng.random() < 0.3}


def standing(network: Network, state: NetworkState, unsettled: Unsettled) -> dict[Path, bool]:
    """Standing paths of ``state`` that no interrupted change was moving; True if a device on their
    way is away.
    """
    fabric = network.fabric

    def stands(circuit: Circuit) -> bool:
        return network.mirrors[circuit.plane].issuperset(fabric.cross_connects(circuit))

    def carried(path: Path) -> bool:
        ends = [end for circuit in path.circuits for end in circuit.ends]
        vlan = state.vlans[path]
        return not network.vlans or all(vlan in network.vlans[end].tagged for end in ends)

    def is_away(circuit: Circuit) -> bool:
        tors = {fabric.racks[fabric.ports[end].rack].name for end in circuit.ends}
        away = network.away if network.substrate.retags else network.away - tors
        return not away.isdisjoint({circuit.plane, *tors})

    return {
        path: any(map(is_away, path.circuits))
        for path in state.topology.paths
        if path not in unsettled.ended
        and carried(path)
        and all(map(stands, rings_of(path.circuits, state.topology.circuits)))
    }


def keeps(untouched: Mapping[Path, bool], upkeep: SimulatedUpkeep, watch: Watch) -> int:
    """A device that can't be read is unknown, not gone; returns the number of paths kept unread."""
    if given_up := untouched.keys() - upkeep.memory.state.vlans.keys():
        raise Violation(f"after {watch.steps}: {given_up} stand, and were given up")
    return sum(untouched.values())


def next_controller(
    kind: type[SimulatedUpkeep], network: Network, saved: NetworkState, watch: Watch
) -> SimulatedUpkeep:
    last = network.journal[-1] if network.journal else None
    return kind(network, saved, interrupted(network.fabric, saved, last), watch.look)


def agrees(network: Network, upkeep: SimulatedUpkeep, watch: Watch) -> None:
    """Devices, switches and the saved state agree, and every server reaches every rack."""
    state = upkeep.memory.state
    network.now_s += LONGEST_STANDSTILL_S
    watch.look(None)
    meant = {
        (circuit.plane, cross)
        for circuit in state.topology.circuits
        for cross in network.fabric.cross_connects(circuit)
    }
    lit = {(plane, cross) for plane, some in network.mirrors.items() for cross in some}
    wrong = [dp for dp in network.names if list(network.differing_rules(dp, state))]
    for holds, words in (
        (upkeep.memory.saved == state, "the state was not saved"),
        (lit == meant, f"mirrors differ: {lit ^ meant}"),
        (not any(network.halves.values()), f"without light, and there: {network.halves}"),
        (network.vlans == dict(port_trunks(network.fabric, state)), "VLANs differ"),
        (not wrong, f"rules differ at {wrong}"),
        (upkeep.switches.ready() >= network.names.keys(), "a switch is not ready"),
        (not upkeep.denied, f"{upkeep.denied} were kept, and are not there"),
        (not network.closed, f"{network.closed} are closed to circuits"),
        (not upkeep.uncertain, f"{upkeep.uncertain} are uncertain"),
        (not upkeep.switches.spares_relays, "relays of an earlier state may be there"),
    ):
        if not holds:
            raise Violation(f"after {watch.steps}: {words}")


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_whenever_they_die_the_next_one_recovers_and_nobody_is_cut_off(seeds):
    hold(simulate, seeds)


@pytest.mark.parametrize("seeds", chunks(_LEASES), ids=str)
def test_whenever_a_lease_ends_the_next_one_leads_and_nobody_is_cut_off(seeds):
    hold(simulate_leases, seeds)


@pytest.mark.parametrize("seed", [2043091, 2067019, 2075636, 2157130])
def test_a_path_on_which_light_alone_is_missing_is_given_the_drains_bound(seed):
    """Light may have come by now, and queued frames of a ToR that stood still come out."""
    hold(simulate_brief_leases, (seed,))


@pytest.mark.parametrize("seed", [5934, 9291, 28621])
def test_what_waits_in_front_of_a_tor_is_waited_for_by_the_next_leader(seed):
    """A ToR stands still for longer than a lease: its frames come out under the next leader."""
    hold(simulate_brief_leases, (seed,))


def test_a_tor_that_may_yet_take_tags_away_is_not_counted_on():
    """The switch did not answer, and confirms afterwards that the rules are there again."""
    hold(simulate_brief_leases, (335704,))


def test_a_tor_that_does_not_give_tags_back_is_not_counted_on():
    """The switch removed the rules for a circuit to go first, whose removal was refused: the rules
    come back.
    """
    hold(simulate_brief_leases, (2175860,))


def test_a_relay_that_refuses_rules_of_its_own_keeps_those_that_stand():
    """The switch accepts the removals of the same bundle."""
    hold(simulate.__wrapped__, (3000694,))


def test_what_is_left_standing_is_left_by_the_next_one_with_all_that_lights_it():
    """A controller dies between its save and its end, and an unused one-way circuit is lit by
    another.
    """
    hold(simulate.__wrapped__, (3310058,))


def test_leaders_that_lead_no_more_are_refused():
    assert any(simulate_leases(seed).refused for seed in range(100))


def test_they_die_in_every_step():
    courses = [simulate(seed) for seed in range(_RUNS)]
    steps = {"intent", "divert", "drain", "move", "carrier", "probe", "activate"}
    assert steps | {"make", "shift", "break"} <= {course.died_in for course in courses}
    cut_off = [one for course in courses for one in course.recoveries[:-3]]
    assert {"read", "connect", "take", "synchronise", "retag", "move", "save"} <= {
        steps[-1] for steps in cut_off if steps
    }
    assert any(len(course.recoveries) == 5 for course in courses), "twice in recovery"
    assert any(course.dropped for course in courses)
    assert any(not course.dropped for course in courses)
    assert any(course.kept_unread for course in courses)
    assert any(course.left_standing for course in courses)
