"""Recovery: from a start, or a change that broke off, to a network that is as remembered.

HydRA's controller is stateless (section III.C): the devices say what there is, and the journal what
it was meant for. Circuits that no device denies, and whose ToRs have light, are kept
(:mod:`hydra.reconfiguration.reconcile`), switches are brought to those, and whatever else stands on
our ports is taken down. A device that does not answer is uncertain: once it answers, it decides.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hydra.forwarding.substrate import substrate_of
from hydra.journal_format import INTENDED, read_state, state_record
from hydra.model import Circuit, DatapathId, Fabric, NetworkState, PortId
from hydra.reconfiguration.commands import (
    Announce,
    AwaitSwitches,
    Batch,
    Record,
    SaveState,
    Steps,
)
from hydra.reconfiguration.device_care import DeviceCare
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import SETTLED, Unsettled, resting_beside
from hydra.reconfiguration.reconcile import reconcile, servers_closed
from hydra.reconfiguration.switches import Switches, reachable_on
from hydra.reconfiguration.whole_tables import Memory

LOG: Final = logging.getLogger("hydra.recovery")
CONNECT_S: Final = 5.0
"""Time for switches to connect, before circuits that they may be using are taken down."""
_NAMED: Final = 10
"""Most circuits that one line of the log names; others are counted."""


def interrupted(
    fabric: Fabric, state: NetworkState, last: tuple[str, Mapping[str, Any]] | None
) -> Unsettled:
    """What a change from ``state`` that was not saved leaves open.

    ``last`` is the journal's last entry: what was recorded, and its details. Raises what
    :func:`~hydra.journal_format.read_state` raises.
    """
    if last is None or last[0] != INTENDED:
        return SETTLED
    return Unsettled.by(state, read_state(fabric, last[1]["target"]))


def rested(
    fabric: Fabric, state: NetworkState, last: tuple[str, Mapping[str, Any]] | None
) -> NetworkState:
    """``state`` with the VLAN-IDs at rest that a change which was not saved may have used.

    ``last`` is as in :func:`interrupted`. Raises what :func:`~hydra.journal_format.read_state`
    raises.
    """
    if last is None or last[0] != INTENDED:
        return state
    return resting_beside(state, read_state(fabric, last[1]["target"]))


@dataclass(eq=False, repr=False)
class Recovery:
    """Courses yield commands and are sent outcomes, as the executor does."""

    _fabric: Fabric
    _memory: Memory
    _switches: Switches
    _care: DeviceCare
    _recorded: bool = field(default=False, init=False)
    """True if the next controller would know which remembered paths this recovery gave up."""
    unlit: Mapping[Circuit, frozenset[PortId]] = field(default_factory=dict, init=False)
    """Circuits that the last recovery gave up, with their ports that have no light."""
    done: bool = field(default=False, init=False)
    """True if the devices have been read since the start, and since a change broke off."""

    def __post_init__(self) -> None:
        self._substrate = substrate_of(self._fabric)

    def begin_anew(self, execution: Execution) -> None:
        """Have the devices read before anything else, since a reconfiguration broke off.

        Switches may hold rules of what it was about, and of paths that are given up for it.
        """
        self._memory.unsettle(Unsettled.by(execution.plan.current, execution.plan.target))
        self._switches.doubt(self._switches.known)
        self._switches.settled = self.done = False

    def run(self) -> Steps:
        """Find out the state that the network is in, and mend what differs from it.

        An error of the journal ends it; it may be run again.
        """
        memory, switches, care = self._memory, self._switches, self._care
        actual, silent = yield from care.read()
        ready = switches.ready()
        untold = {
            name
            for name in switches.closed
            if self._fabric.server_by_name[name].rack not in actual.vlans
        }
        switches.closed = frozenset(
            name
            for name in servers_closed(self._fabric, actual) | untold
            if switches.switch_of[name] not in ready
        )
        dark = yield from care.dark_ports([rack.id for rack in self._fabric.racks], begun=True)
        found = reconcile(
            self._fabric, memory.state, actual, memory.unsettled, switches.closed, dark
        )
        if found.dropped:
            LOG.warning(
                "given up, since devices do not confirm what the journal has: %s",
                self._named(found.dropped),
            )
        if found.unread:
            LOG.warning(
                "kept as the journal has it, since %s did not answer: %s; will look again",
                ", ".join(silent),
                self._named(found.unread),
            )
        self.unlit = found.unlit
        intent = {
            "current": state_record(self._fabric, memory.state),
            "target": state_record(self._fabric, found.state),
        }
        switches.settled = True
        switches.spares_relays = not self._substrate.retags
        self._recorded = False
        memory.settle(found.state)
        if found.mirrors or found.retag:
            # Switches may still send on circuits that are about to go. One that does not connect
            # in time can't be waited for; its pairs are cut off until it does.
            owned = tuple(switches.owned)
            (connected,) = yield Batch("connect", (AwaitSwitches(owned, CONNECT_S),))
            yield from self.bring(connected.value)
        # From here on, a remembered path may end: the next recovery has to know.
        yield Batch("intent", (Record(INTENDED, intent),))
        self._recorded = True
        if found.mirrors or found.retag:
            yield from self._tidy_relays_if_ready()
            yield from care.run_empty(found.standing, sure=found.sure and not silent)
            yield from care.retag(found.retag)
            yield from care.move(found.mirrors)
        yield Batch("save", (SaveState("reconciled"),))
        self.done = True
        yield from self.bring(switches.late())

    def _named(self, circuits: Collection[Circuit]) -> str:
        names = [self._fabric.circuit_name(one) for one in sorted(circuits)]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return ", ".join(names[:_NAMED]) + more

    def bring(self, datapaths: Collection[DatapathId]) -> Steps:
        """Synchronise switches, let their servers onto circuits, and announce these."""
        yield from self._switches.synchronise(datapaths)
        yield from self._welcome(datapaths)

    def bring_beside(self, datapaths: Collection[DatapathId]) -> Steps:
        """The same of slow switches, with other courses and changes in between."""
        brought = yield from self._switches.bring_beside(datapaths)
        if brought:
            yield from self._welcome(brought)

    def _welcome(self, datapaths: Collection[DatapathId]) -> Steps:
        yield from self._care.open_ports(self._care.closed_racks)
        if self._switches.settled:
            brought = frozenset(datapaths)
            servers = tuple(
                entry
                for entry in reachable_on(self._fabric, self._memory.state)
                if self._switches.switch_of[entry[0].name] in brought
            )
            yield Batch("announce", (Announce(servers),))
        yield from self._tidy_relays_if_ready()

    def _tidy_relays_if_ready(self) -> Steps:
        if self._recorded and self._switches.all_ready:
            yield from self._switches.tidy_relays()
