"""Switches: readiness, uplinks, whole tables, and refusals of rules."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from hydra.failures import Failure, FailureKind
from hydra.forwarding.rules import FlowRule
from hydra.model import DatapathId, Fabric, NetworkState, Pair, Path, Server, VlanId
from hydra.policy import CurrentPolicy, OnSilence
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import pair_named, pair_of
from hydra.reconfiguration.readiness import Connections, RenumberedPort
from hydra.reconfiguration.whole_tables import Memory, WholeTables

LOG: Final = logging.getLogger("hydra.switches")
Announced = Sequence[tuple[Server, tuple[VlanId, ...]]]


def _is_refusal(failure: Failure) -> bool:
    """True if a steering switch has refused rules of a change."""
    return failure.kind is FailureKind.REFUSED and failure.step in ("push", "activate")


def reachable_on(fabric: Fabric, state: NetworkState) -> Announced:
    """Every server with the VLANs of paths to its rack."""
    vlans: dict[int, set[VlanId]] = {rack.id: set() for rack in fabric.racks}
    for path in state.topology.paths:
        for rack in (path.src, path.dst):
            vlans[rack].add(state.vlans[path])
    ordered = {rack: tuple(sorted(some)) for rack, some in vlans.items()}
    return [(server, ordered[server.rack]) for server in fabric.servers]


class Switches(WholeTables):
    """The controller's knowledge of switches. Courses of
    :class:`~hydra.reconfiguration.courses.Courses` bring the switches to the present state.

    Attributes of :class:`~hydra.reconfiguration.readiness.Readiness` are for any thread.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        memory: Memory,
        connections: Connections,
        added_rules: Callable[[DatapathId], Iterable[FlowRule]] = lambda _datapath: (),
        followed: Callable[[Sequence[RenumberedPort]], None] = lambda _ports: None,
    ) -> None:
        """``added_rules``: rules that a switch holds beside the substrate's. ``followed``: called
        in a course's thread with renumbered ports, once all rules have the new numbers.
        """
        super().__init__(
            fabric=fabric,
            policy=policy,
            memory=memory,
            connections=connections,
            added_rules=added_rules,
        )
        self._report_followed = followed
        self.settled = False
        """True if the present state is known, and switches may be brought there."""
        self.refused: Mapping[DatapathId, Failure] = {}
        """Steering switches that refuse circuit rules; each change makes a new mapping."""

    @property
    def hurries(self) -> bool:
        """True if going around a dead part skips switches far slower than the rest, if few. Such
        switches are brought to the present state once they answer (decision 36).
        """
        closes = self.policy.now.on_silent_vswitch is OnSilence.CLOSE
        return self.substrate.retags and not closes

    def learn(self, execution: Execution) -> None:
        """Take over the unconfirmed steps of a reconfiguration."""
        unconfirmed = execution.unconfirmed
        self.doubt(
            datapath
            for datapath, name in self.owned.items()
            if name in unconfirmed
            or (datapath in self.steering and self.steering[datapath].name in unconfirmed)
        )
        self._dead -= execution.activated
        self.vacated &= self.memory.state.vlans.keys()
        refused = {failure.subject: failure for failure in execution.silent if _is_refusal(failure)}
        self.note_refused(
            {
                dp: refused[steering.name]
                if refused[steering.name].step == "push"
                else self.refusal(dp, refused[steering.name])
                for dp, steering in self.steering.items()
                if steering.name in refused
            }
        )
        moving_racks = {rack for pair in execution.moving for rack in pair}
        self.doubt(dp for dp in self.electrical if self.steering[dp].rack in moving_racks)

    def note_lost(self, diverted: Collection[Pair], vacated: Collection[Path]) -> None:
        """Note pairs that are electrical because their circuits or paths died, and lost paths whose
        traffic goes over surviving paths.
        """
        self._dead = self._dead.union(diverted)
        self.vacated = self.vacated.union(vacated)

    def note_refused(
        self, refused: Mapping[DatapathId, Failure], taken: Collection[DatapathId] = ()
    ) -> None:
        """Note steering switches refusing rules of circuits; remove ``taken`` switches."""
        remaining = {dp: refusal for dp, refusal in self.refused.items() if dp not in taken}
        self.refused = remaining | {
            dp: refusal for dp, refusal in refused.items() if dp in self.steering
        }

    def refuses(self, datapath: DatapathId, error: Failure) -> bool:
        """True if a steering switch has refused its rules."""
        return error.kind is FailureKind.REFUSED and datapath in self.steering

    def note_failure(self, datapath: DatapathId, error: Failure) -> None:
        """Log that a switch did not take its whole table, and doubt the switch."""
        self.doubt([datapath])
        if not self.refuses(datapath, error):
            LOG.error("switch %#x was not synchronised: %s", datapath, error)
        elif datapath in self.electrical:
            LOG.error("%s refuses even rules without circuits: %s", self.known[datapath], error)
        elif datapath not in self.refused:
            refusal = self.refusal(datapath, error)
            LOG.error(
                "%s; traffic from there is electrical until the switch accepts rules", refusal
            )

    def refusal(self, datapath: DatapathId, error: Failure) -> Failure:
        """A refusal of a whole table, with the rack pairs whose traffic the switch sends."""
        switch = self.steering[datapath]
        paths = self.memory.state.topology.paths
        pairs = {pair for pair in map(pair_of, paths) if switch.rack in pair}
        named = ", ".join(pair_named(self.fabric, pair) for pair in sorted(pairs))
        reason = f"{switch.name} refuses the rules of {named or 'its rack'} ({error})"
        return Failure("synchronise", switch.name, FailureKind.REFUSED, reason)

    def note_brought(
        self, datapaths: Collection[DatapathId], renumbered: Mapping[DatapathId, object]
    ) -> None:
        """Note that switches hold the present state's rules. Report the followed ports of
        ``renumbered``, the renumbered ports at the sending of the rules.
        """
        followed = self._note_ready(datapaths, renumbered)
        if self.all_ready:
            self._common_in, self._common = None, {}
        if followed:
            self._report_followed(followed)
