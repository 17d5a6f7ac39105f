"""Recovery: brings the network to the remembered state after a start or an interrupted change.

HydRA's controller is stateless (section III.C): the devices say what exists, and the journal what
was intended. Circuits are kept if no device denies them and their ToRs have light
(:mod:`hydra.reconfiguration.reconcile`). Switches are brought to the kept circuits, and everything
else on our ports is taken down. A device without an answer is uncertain: its next answer decides.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from hydra.journal_format import INTENDED, read_state
from hydra.model import Circuit, DatapathId, Fabric, NetworkState, PlaneId, PortId
from hydra.policy import OnDrift
from hydra.reconfiguration.commands import (
    Announce,
    AwaitSwitches,
    Batch,
    ConfirmRules,
    Course,
    HeldRules,
    SaveState,
    Steps,
    ask,
)
from hydra.reconfiguration.device_care import DeviceCare
from hydra.reconfiguration.executor import Execution, intent
from hydra.reconfiguration.plan import (
    SETTLED,
    MirrorMove,
    Unsettled,
    pair_named,
    pair_of,
    resting_beside,
)
from hydra.reconfiguration.reconcile import (
    NONE_HELD,
    Held,
    reconcile,
    servers_closed,
    stray_mirrors,
    wrong_vlans,
)
from hydra.reconfiguration.switches import Switches, reachable_on
from hydra.reconfiguration.synchronisation import Synchronisation

LOG: Final = logging.getLogger("hydra.recovery")
CONNECT_S: Final = 5.0
"""Time for switches to connect before circuits possibly in use are taken down."""
_NAMED: Final = 10
"""Most circuits named in one log line; the rest is counted."""


def interrupted(
    fabric: Fabric, state: NetworkState, last: tuple[str, Mapping[str, Any]] | None
) -> Unsettled:
    """Paths and circuits left open by an unsaved change from ``state``.

    ``last``: kind and details of the journal's last entry. Raises the errors of
    :func:`~hydra.journal_format.read_state`.
    """
    if last is None or last[0] != INTENDED:
        return SETTLED
    return Unsettled.by(state, read_state(fabric, last[1]["target"]))


def rested(
    fabric: Fabric, state: NetworkState, last: tuple[str, Mapping[str, Any]] | None
) -> NetworkState:
    """``state`` with the VLAN-IDs of an unsaved change at rest, since the change may have used
    them.

    ``last`` and errors are as in :func:`interrupted`.
    """
    if last is None or last[0] != INTENDED:
        return state
    return resting_beside(state, read_state(fabric, last[1]["target"]))


def _first_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


class Recovery:
    def __init__(
        self, switches: Switches, synchronisation: Synchronisation, care: DeviceCare
    ) -> None:
        self._switches, self._synchronisation, self._care = switches, synchronisation, care
        self._fabric, self._substrate = switches.fabric, switches.substrate
        self._memory = switches.memory
        self._recorded = False
        """True if the journal names to the next controller which remembered paths this recovery
        gave up.
        """
        self.unlit: Mapping[Circuit, frozenset[PortId]] = {}
        """Circuits given up by the last recovery, with their ports without light."""
        self.done = False
        """True if the devices have been read since the start and the last interrupted change."""

    def begin_anew(self, execution: Execution) -> None:
        """Mark all devices as unread, because a reconfiguration broke off: recovery comes next.

        Switches may hold rules of the reconfiguration, and of paths given up for it.
        """
        self._memory.unsettle(execution.unsettled)
        self._switches.doubt(self._switches.known)
        self._switches.settled = self.done = False

    def run(self) -> Steps:
        """Find out the actual state of the network, and repair differences.

        A journal error ends the course; the course may be run again.
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
        held = memory.held
        found = reconcile(
            self._fabric,
            memory.state,
            actual,
            memory.unsettled | Unsettled(begun=held.lanes, circuits=held.circuits),
            switches.closed,
            dark,
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
        before = memory.state
        known = before.topology.circuits | memory.unsettled.circuits | held.circuits
        switches.settled = True
        switches.spares_relays = not self._substrate.retags
        self._recorded = False
        memory.settle(found.state)
        memory.hold(NONE_HELD)
        something_goes = bool(found.mirrors or found.retag or found.passing)
        if something_goes:
            # Switches may still send on circuits that are about to go.
            owned = tuple(switches.owned)
            connected = yield from ask("connect", AwaitSwitches(owned, CONNECT_S))
            yield from self.bring(connected.value_or(frozenset()), hurries=False)
            lanes = frozenset(filter(switches.may_send, found.passing))
            memory.hold(Held(lanes, found.lit).only(lanes))
            care.uncertain_racks |= care.held_racks
            if lanes:
                names = ", ".join(sorted({pair_named(self._fabric, pair_of(p)) for p, _ in lanes}))
                LOG.warning("left standing until switches that may send there answer: %s", names)
                # The change may have taken rules from relays of these paths before it broke off.
                relays, epoch = self._substrate.relays, found.state.epoch
                switches.doubt(dp for path, vlan in lanes for dp in relays(path, vlan, epoch))
        # From here on, a remembered path may end: the next recovery has to know.
        begun = memory.held.only(memory.held.lanes - before.vlans.items())
        intended = intent(self._fabric, before, begun.beside(found.state), ())
        yield Batch("intent", (intended,))
        self._recorded = True
        if something_goes:
            yield from self._tidy_relays_if_ready()
            ending = [lane for lane in found.standing if lane not in memory.held.lanes]
            yield from care.run_empty(ending, sure=found.sure and not silent)
            closed, held = care.beside
            yield from care.retag(
                found.state, wrong_vlans(self._fabric, found.state, actual, closed, held)
            )
            strays = stray_mirrors(self._fabric, found.state, actual.mirrors, held)
            self._report_foreign(strays, known)
            yield from care.move(strays)
        yield Batch("save", (SaveState("reconciled"),))
        self.done = True
        yield from self.bring(switches.late())

    def _report_foreign(
        self, strays: Mapping[PlaneId, MirrorMove], known: Collection[Circuit]
    ) -> None:
        """Log cross-connects that go although no circuit known to the journal had them."""
        own = {
            (circuit.plane, cross)
            for circuit in known
            for cross in self._fabric.cross_connects(circuit)
        }
        foreign = [
            f"{self._fabric.planes[plane].name}: {cross.ingress} to {cross.egress}"
            for plane, move in sorted(strays.items())
            for cross in sorted(move.disconnect)
            if (plane, cross) not in own
        ]
        if foreign:
            LOG.warning(
                "taken down, since the journal has no circuit there (is the journal the fabric's "
                "own?): %s",
                _first_of(foreign),
            )

    def _named(self, circuits: Collection[Circuit]) -> str:
        return _first_of([self._fabric.circuit_name(circuit) for circuit in sorted(circuits)])

    def bring(self, datapaths: Collection[DatapathId], *, hurries: bool = True) -> Steps:
        """Synchronise switches, admit their servers to circuits, and announce the servers.

        ``hurries``: as in :class:`~hydra.reconfiguration.synchronisation.Synchronisation`.
        """
        yield from self._synchronisation.synchronise(datapaths, hurries=hurries)
        yield from self._welcome(datapaths)

    def restore_rules(self, datapaths: Collection[DatapathId]) -> Course[frozenset[DatapathId]]:
        """Read ready switches whose probes are lost, before the next audit, and restore rules that
        third parties have removed, if the policy mends drift. Return the restored switches: a
        switch without rules passes nothing, so lost probes say nothing about links. Switches that
        do not answer the reading are left alone.
        """
        asked = self._switches.ready().intersection(datapaths)
        if not asked or self._switches.policy.now.on_drift is not OnDrift.MEND:
            return frozenset()
        changed = (yield from self._held(asked)).rounds.keys()
        if not changed:
            return frozenset()
        yield from self.bring(changed)
        return (yield from self._held(changed)).exact

    def _held(self, datapaths: Collection[DatapathId]) -> Course[HeldRules]:
        """Compare the rules of switches with the rules of the present state."""
        tables = dict(self._switches.whole_tables(sorted(datapaths)))
        read = yield from ask("confirm", ConfirmRules(tables), alone=True)
        return read.value_or(HeldRules())

    def bring_beside(self, datapaths: Collection[DatapathId]) -> Steps:
        """Like :meth:`bring`, for slow switches, while other courses and changes run."""
        brought = yield from self._synchronisation.bring_beside(datapaths)
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
            yield from self._synchronisation.tidy_relays()
