"""The courses that bring switches and devices to the present state, with a common memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hydra.forwarding.rules import FlowRule
from hydra.model import DatapathId, Fabric, PlaneId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.audit import Audit
from hydra.reconfiguration.device_care import DeviceCare
from hydra.reconfiguration.failover import Failover
from hydra.reconfiguration.port_renumbering import PortRenumbering
from hydra.reconfiguration.readiness import Connections, RenumberedPort
from hydra.reconfiguration.recovery import Recovery
from hydra.reconfiguration.switches import Switches
from hydra.reconfiguration.switching_over import UNPROTECTED, Protection
from hydra.reconfiguration.synchronisation import Synchronisation
from hydra.reconfiguration.uplink_detours import UplinkDetours
from hydra.reconfiguration.whole_tables import Memory


class Courses:
    """Upkeep of a network: the state of :attr:`switches`, and the courses that write their rules;
    :attr:`care` of devices, :attr:`recovery`, :attr:`audit`.
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: CurrentPolicy,
        memory: Memory,
        connections: Connections,
        added_rules: Callable[[DatapathId], Iterable[FlowRule]] = lambda _datapath: (),
        protection: Protection = UNPROTECTED,
        followed: Callable[[Sequence[RenumberedPort]], None] = lambda _ports: None,
        by_people: frozenset[PlaneId] = frozenset(),
    ) -> None:
        """``added_rules``, ``followed``: as in :class:`~hydra.reconfiguration.switches.Switches`;
        ``by_people``: planes whose changes are tasks for people.
        """
        switches = self.switches = Switches(
            fabric=fabric,
            policy=policy,
            memory=memory,
            connections=connections,
            added_rules=added_rules,
            followed=followed,
        )
        self.failover = Failover(switches, protection)
        self.renumbering = PortRenumbering(switches)
        detours = self.detours = UplinkDetours(switches)
        self.synchronisation = Synchronisation(switches, detours)
        care = self.care = DeviceCare(switches, detours, by_people)
        self.recovery = Recovery(switches, self.synchronisation, care)
        self.audit = Audit(
            switches=switches, failover=self.failover, care=care, recovery=self.recovery
        )
