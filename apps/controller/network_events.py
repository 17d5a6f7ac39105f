"""Events of switches and probes, turned into jobs for the conductor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from apps.controller.conductor import Conductor
from apps.controller.mastership import Mastership
from apps.controller.reach import Reach
from apps.controller.surveillance import Prober
from apps.controller.upkeep import Upkeep
from apps.controller.withdrawals import Withdrawals
from apps.openflow.fleet import Fleet
from apps.openflow.interface import PortInfo
from apps.process.metrics import Metrics
from hydra.faults.server_links import Dead
from hydra.faults.surveillance import LostPath
from hydra.model import DatapathId, Fabric, NetworkState, Pair
from hydra.policy import Policy
from hydra.reconfiguration.switches import Switches


class NetworkEvents:
    """Methods are for the OpenFlow hub's thread, but :meth:`synchronise` for the conductor's."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: Policy,
        fleet: Fleet,
        standing: Callable[[], tuple[NetworkState, Collection[Pair]]],
        reach: Reach,
        metrics: Metrics,
        conductor: Conductor,
        switches: Switches,
        mastership: Mastership,
        upkeep: Upkeep,
        withdrawals: Withdrawals,
    ) -> None:
        """``standing`` returns the present state and the moving pairs."""
        self._fabric, self._conductor, self._switches = fabric, conductor, switches
        self._mastership, self._upkeep, self._withdrawals = mastership, upkeep, withdrawals
        self.prober = Prober(
            fabric=fabric,
            policy=policy,
            fleet=fleet,
            standing=standing,
            able=reach.on_circuits,
            report=self.paths_lost,
            metrics=metrics,
            linked=switches.linked,
            report_links=self.uplinks_one_way,
        )
        fleet.watch(
            self.switch_connected,
            self.port_changed,
            switches.answers_again,
            self.switch_answers,
            self.ports_renumbered,
        )

    def synchronise_soon(self) -> None:
        """Queue :meth:`synchronise`. For any thread."""
        self._conductor.put_once(self.synchronise)

    async def synchronise(self) -> None:
        """Bring switches to the present state, in passes; waiting jobs come in between."""
        if await self._upkeep.synchronise():
            self.synchronise_soon()
        elif self._withdrawals.due:  # a missing switch of an attempt may be there now
            await self._withdrawals.of_dead_circuits()

    async def _follow_numbers(self) -> None:
        if await self._upkeep.follow_numbers():
            await self.synchronise()

    async def _follow_uplinks(self) -> None:
        if restored := await self._upkeep.follow_uplinks():
            self.prober.acquit_links(restored)

    def switch_connected(self, datapath: DatapathId) -> None:
        self._mastership.forget(datapath)  # before the conductor takes the switch anew
        self._switches.renewed(datapath)
        self._conductor.put_once(self.synchronise, first=True)
        self._look_at_tor(datapath)

    def switch_answers(self, datapath: DatapathId) -> None:
        """Bring a switch with a late answer to the present state. Where attempts at the switch have
        failed, the next attempt comes at its time.
        """
        self.synchronise_soon()
        self._look_at_tor(datapath)

    def _look_at_tor(self, datapath: DatapathId) -> None:
        """Withdraw dead circuits, if a ToR has lost carrier or can report carrier again."""
        if datapath in self._fabric.rack_by_tor_datapath:
            self._conductor.put_once(
                self._withdrawals.of_dead_circuits,
                first=True,
                meanwhile=self._upkeep.dead.divert_meanwhile,
            )

    def port_changed(self, datapath: DatapathId, port: PortInfo) -> None:
        if self._switches.is_of_uplink(datapath, port.name):
            self._conductor.put_once(
                self._follow_uplinks,
                first=True,
                meanwhile=self._upkeep.follow_uplinks_meanwhile,
            )
        if not port.up:
            self._look_at_tor(datapath)

    def ports_renumbered(self, datapath: DatapathId, earlier: Mapping[str, int]) -> None:
        self._switches.renumbered(datapath, earlier)
        self._conductor.put_once(
            self._follow_numbers, first=True, meanwhile=self._upkeep.follow_numbers_meanwhile
        )

    def paths_lost(self, lost: Sequence[LostPath]) -> None:
        self._conductor.put(
            lambda: self._withdrawals.of_lost_paths(lost),
            first=True,
            meanwhile=lambda: self._withdrawals.divert_meanwhile(lost),
        )

    def uplinks_one_way(self, dead: Dead) -> None:
        self._upkeep.note_one_way_uplinks(dead)
        self._conductor.put_once(
            self._follow_uplinks, first=True, meanwhile=self._upkeep.follow_uplinks_meanwhile
        )
