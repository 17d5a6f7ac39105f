"""Which switches hold the rules of the present state, and which are late, slow or in doubt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, RackId


class SeenPort(Protocol):
    @property
    def up(self) -> bool: ...

    @property
    def number(self) -> int:
        """OpenFlow number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenumberedPort:
    """A port whose OpenFlow number differs from the number in its switch's rules."""

    switch: str
    port: str
    old: tuple[int, ...]
    """Numbers that rules may name; 0: the port had no number."""
    now: int
    """0: the port has no number."""
    rack: RackId

    @property
    def what(self) -> str:
        """A clause that describes the change."""
        old = " or ".join(str(number) if number else "none" for number in self.old)
        return f"port {self.port} of switch {self.switch} has OpenFlow number {self.now}, was {old}"


class Connections(Protocol):
    """OpenFlow connections and ports, as last reported; queries cost nothing."""

    def connected(self) -> frozenset[DatapathId]: ...

    def mute(self) -> frozenset[DatapathId]:
        """Switches with an open connection but without answers; disjoint from :meth:`connected`."""

    def port(self, datapath: DatapathId, name: str) -> SeenPort | None:
        """A port by name, down if the switch has no such port; None before any report."""


class Readiness:
    """For any thread.

    Single operations on sets are atomic, and no more is needed here.
    """

    being_brought: frozenset[DatapathId] = frozenset()
    """Switches on the way to the present state while changes run beside."""

    def __init__(self, fabric: Fabric, connections: Connections) -> None:
        self.fabric = fabric
        self.substrate = substrate_of(fabric)
        self._connections = connections
        self.owned: Final = self.substrate.owned()
        self.known: Final[Mapping[DatapathId, str]] = {**fabric.tor_names, **self.owned}
        """Names of the switches that hold our rules: owned switches, and learning ToRs."""
        self._synchronised: set[DatapathId] = set()
        self._changes_of_synchronised = 0
        """Incremented after each change; simultaneous changes of two threads may count as one."""
        self._ready: tuple[int, frozenset[DatapathId], frozenset[DatapathId]] | None = None
        """Cache of :meth:`ready`: (count of changes, connected switches, ready switches)."""
        self._renewed: set[DatapathId] = set()
        self._untaken: set[DatapathId] = set()
        """Switches not yet mastered by this controller since they connected."""
        self._slow: set[DatapathId] = set()
        """Switches given up that have answered after all."""
        self._untried: set[DatapathId] = set()
        """Slow switches that have answered since the last attempt to bring them, or are being
        brought.
        """
        self._missed: set[DatapathId] = set()
        """Slow switches with a failed attempt to bring them since they were last ready."""
        self._renumbered: dict[DatapathId, Mapping[str, frozenset[int]]] = {}
        """By switch and port name: OpenFlow numbers in rules that may differ from the present
        number. Values are replaced, never changed.
        """
        self._only_renumbered: set[DatapathId] = set()
        """Switches of ``_renumbered`` with the present state's rules except for port numbers."""

    def ready(self) -> frozenset[DatapathId]:
        """Connected switches that hold exactly the intended rules.

        Returns the same object until the set changes.
        """
        connected, changes = self._connections.connected(), self._changes_of_synchronised
        known = self._ready
        if known is None or known[0] != changes or known[1] is not connected:
            ready = frozenset(self._synchronised) & connected
            self._ready = known = changes, connected, ready
        return known[2]

    def late(self) -> frozenset[DatapathId]:
        """Connected, known switches yet to be brought to the present state."""
        return frozenset(
            datapath
            for datapath in self._connections.connected() - frozenset(self._synchronised)
            if self.is_known(datapath)
        )

    def fresh(self) -> frozenset[DatapathId]:
        """Late switches connected since their last try, and not slow."""
        return (self.late() & self.reconnected) - self.slow()

    def slow(self) -> frozenset[DatapathId]:
        """Late switches brought beside changes, so that no change waits for them."""
        some = frozenset(self._slow) | self.being_brought
        return some & self.late() if some else some

    def awaited(self) -> frozenset[DatapathId]:
        """Late switches without a failed attempt: the conductor's next job brings them."""
        return self.late() & (self.reconnected | frozenset(self._untried))

    def soon_ready(self) -> frozenset[DatapathId]:
        """Slow switches about to be brought to the present state. A switch with a failed attempt
        may fail again, however often the switch answers: no change may wait for such a switch.
        """
        return self.slow() & frozenset(self._untried)

    def mute(self) -> frozenset[DatapathId]:
        """Switches with an open connection that may still carry out earlier commands."""
        return self._connections.mute()

    @property
    def all_ready(self) -> bool:
        return self.ready() >= self.owned.keys()

    def is_known(self, datapath: DatapathId) -> bool:
        return datapath in self.known

    @property
    def reconnected(self) -> frozenset[DatapathId]:
        """Switches connected since their last try."""
        return frozenset(self._renewed)

    def _rack_of(self, datapath: DatapathId) -> RackId:
        server = self.fabric.server_by_datapath.get(datapath)
        return self.fabric.rack_by_tor_datapath[datapath].id if server is None else server.rack

    # -- events -----------------------------------------------------------------------------------

    def renewed(self, datapath: DatapathId) -> None:
        """Note that a switch has connected anew, with unknown rules.

        Unknown switches are not recorded, as their number is unbounded.
        """
        if not self.is_known(datapath):
            return
        self._slow.discard(datapath)
        self._untried.discard(datapath)
        self._missed.discard(datapath)
        self._only_renumbered.discard(datapath)
        self._renewed.add(datapath)  # the switch is brought to the ports' present numbers
        self._untaken.add(datapath)
        self._synchronised.discard(datapath)
        self._changes_of_synchronised += 1

    def answers_again(self, datapath: DatapathId) -> None:
        """Note an answer of a switch given up: the switch is slow."""
        self._slow.add(datapath)
        if datapath not in self._missed:
            self._untried.add(datapath)
        self.doubt([datapath])

    def doubt(self, datapaths: Iterable[DatapathId]) -> None:
        """Mark switches as not synchronised, since steps are unconfirmed."""
        datapaths = tuple(datapaths)
        self._synchronised.difference_update(datapaths)
        self._only_renumbered.difference_update(datapaths)
        self._changes_of_synchronised += 1

    def note_tried(self, datapaths: Iterable[DatapathId]) -> None:
        """Note that an attempt to bring switches to the present state begins."""
        self._renewed.difference_update(datapaths)

    def note_mastered(self, datapaths: Iterable[DatapathId]) -> None:
        """Note that this controller is the master of switches."""
        self._untaken.difference_update(datapaths)

    def note_begun_beside(self, datapaths: frozenset[DatapathId]) -> None:
        """Note that switches are being brought to the present state while changes run."""
        self.being_brought |= datapaths

    def note_ended_beside(self, datapaths: frozenset[DatapathId]) -> None:
        """Note the end of such an attempt, whether it brought the switches or not."""
        self._untried -= datapaths
        self._missed |= datapaths - self._synchronised
        self.being_brought -= datapaths

    def renumbered(self, datapath: DatapathId, earlier: Mapping[str, int]) -> None:
        """Note that ports of a connected switch have new OpenFlow numbers; ``earlier``: the numbers
        in rules so far, by port name; 0: none.
        """
        if datapath not in self.owned:
            return  # rules of a learning ToR name no ports
        known = self._renumbered.get(datapath, {})
        added = {name: known.get(name, frozenset()) | {old} for name, old in earlier.items()}
        self._renumbered[datapath] = {**known, **added}
        if datapath in self._synchronised:
            self._only_renumbered.add(datapath)
        elif datapath not in self._only_renumbered:
            self._renewed.add(datapath)  # rules being sent may name the old numbers
        self._synchronised.discard(datapath)
        self._changes_of_synchronised += 1

    def numbers_in_rules(self) -> Mapping[DatapathId, Mapping[str, frozenset[int]]]:
        """By switch and port name: OpenFlow numbers in rules that may differ from the present
        number.
        """
        return self._renumbered.copy()

    def renumbered_and_mastered(self) -> Mapping[DatapathId, Mapping[str, frozenset[int]]]:
        """:meth:`numbers_in_rules` of connected switches mastered by this controller."""
        able = self._connections.connected() - frozenset(self._untaken)
        return {dp: ports for dp, ports in self.numbers_in_rules().items() if dp in able}

    def lacks_only_numbers(self, datapath: DatapathId, ports: Mapping[str, frozenset[int]]) -> bool:
        """True if a switch holds the present state's rules except for the numbers of ``ports``."""
        return datapath in self._only_renumbered and self._renumbered.get(datapath) is ports

    def renumbered_ports(self) -> Sequence[RenumberedPort]:
        """Ports of connected switches whose rules may name old OpenFlow numbers."""
        return [
            port
            for datapath in sorted(self._renumbered.copy())
            if datapath in self._connections.connected()
            for port in self._renumbered_at(datapath)
        ]

    def _renumbered_at(self, datapath: DatapathId) -> list[RenumberedPort]:
        return [
            RenumberedPort(
                switch=self.owned[datapath],
                port=name,
                old=tuple(sorted(old)),
                now=0 if port is None else port.number,
                rack=self._rack_of(datapath),
            )
            for name, old in self._renumbered.get(datapath, {}).items()
            if (port := self._connections.port(datapath, name)) is None or old != {port.number}
        ]

    def _note_ready(
        self, datapaths: Collection[DatapathId], renumbered: Mapping[DatapathId, object]
    ) -> Sequence[RenumberedPort]:
        """Note that switches hold the present state's rules. Returns the ports whose new numbers
        the rules now name, of ``renumbered``, the renumbered ports at the sending of the rules.
        """
        followed: list[RenumberedPort] = []
        for datapath in sorted(datapaths):
            if self._renumbered.get(datapath) is renumbered.get(datapath):
                followed += self._renumbered_at(datapath)
                self._renumbered.pop(datapath, None)
        self._only_renumbered.difference_update(datapaths)
        self._slow.difference_update(datapaths)
        self._missed.difference_update(datapaths)
        self._synchronised.update(datapaths)
        self._changes_of_synchronised += 1
        return followed
