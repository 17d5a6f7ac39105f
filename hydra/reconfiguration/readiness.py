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


@dataclass(frozen=True, slots=True)
class MovedPort:
    """A port that has another OpenFlow number than rules in its switch's tables name."""

    switch: str
    port: str
    old: tuple[int, ...]
    """Numbers that rules may name; 0: it had none."""
    now: int
    """0: it has none."""
    rack: RackId

    @property
    def what(self) -> str:
        """A clause that tells the change."""
        old = " or ".join(str(one) if one else "none" for one in self.old)
        return f"port {self.port} of switch {self.switch} has OpenFlow number {self.now}, was {old}"


class Connections(Protocol):
    """OpenFlow connections and ports, as last heard of; asking costs nothing."""

    def connected(self) -> frozenset[DatapathId]: ...

    def mute(self) -> frozenset[DatapathId]:
        """Switches whose connection stands, and that do not answer: none of those connected."""

    def port(self, datapath: DatapathId, name: str) -> SeenPort | None:
        """A port by name, down if the switch has none such; None while nothing is heard of it."""


class Readiness:
    """For any thread.

    Single operations of sets are atomic, which is all that is asked of them here.
    """

    being_brought: frozenset[DatapathId] = frozenset()
    """Switches that are being brought to the present state beside changes."""

    def __init__(self, fabric: Fabric, connections: Connections) -> None:
        self._fabric = fabric
        self._substrate = substrate_of(fabric)
        self._connections = connections
        self.owned: Final = self._substrate.owned()
        self.known: Final[Mapping[DatapathId, str]] = {**fabric.tor_names, **self.owned}
        """Names of the switches that hold rules of ours: those, and learning ToRs."""
        self._synchronised: set[DatapathId] = set()
        self._changes_of_synchronised = 0
        """Counted after each change; those of two threads may count as one."""
        self._ready: tuple[int, frozenset[DatapathId], frozenset[DatapathId]] | None = None
        """Switches that are ready, after which changes and of which connected ones."""
        self._renewed: set[DatapathId] = set()
        self._untaken: set[DatapathId] = set()
        """Switches that this controller has not become the master of since they connected."""
        self._slow: set[DatapathId] = set()
        """Switches that were given up, and have answered after all."""
        self._untried: set[DatapathId] = set()
        """Slow switches that have not been tried since they answered, or are being tried."""
        self._missed: set[DatapathId] = set()
        """Slow switches that an attempt to bring them has failed at, since they were ready last."""
        self._moved: dict[DatapathId, Mapping[str, frozenset[int]]] = {}
        """Ports with other OpenFlow numbers than rules in the tables may name, by name, and these
        numbers. Values are replaced, never changed.
        """
        self._only_moved: set[DatapathId] = set()
        """Switches among them that hold the present state's rules but for these numbers."""

    def ready(self) -> frozenset[DatapathId]:
        """Switches that are connected and hold exactly the rules that they should.

        The same object, as long as they stay the same.
        """
        connected, changes = self._connections.connected(), self._changes_of_synchronised
        known = self._ready
        if known is None or known[0] != changes or known[1] is not connected:
            ready = frozenset(self._synchronised) & connected
            self._ready = known = changes, connected, ready
        return known[2]

    def late(self) -> frozenset[DatapathId]:
        """Switches that are connected, known, and yet to be brought to the present state."""
        return frozenset(
            datapath
            for datapath in self._connections.connected() - frozenset(self._synchronised)
            if self._is_known(datapath)
        )

    def fresh(self) -> frozenset[DatapathId]:
        """Late switches that have connected since they were last tried, and are not slow."""
        return (self.late() & frozenset(self._renewed)) - self.slow()

    def slow(self) -> frozenset[DatapathId]:
        """Late switches that others do not wait for: they are brought beside changes."""
        some = frozenset(self._slow) | self.being_brought
        return some & self.late() if some else some

    def awaited(self) -> frozenset[DatapathId]:
        """Late switches that no attempt to bring to the present state has failed at: the next job
        of the conductor brings them.
        """
        return self.late() & (frozenset(self._renewed) | frozenset(self._untried))

    def soon_ready(self) -> frozenset[DatapathId]:
        """Slow switches that are about to be brought to the present state. Those that an attempt
        has failed at may fail again, however often they answer: nobody is to wait for them.
        """
        return self.slow() & frozenset(self._untried)

    def mute(self) -> frozenset[DatapathId]:
        """Switches whose connection stands, and that may yet do what they were told on it."""
        return self._connections.mute()

    @property
    def all_ready(self) -> bool:
        return self.ready() >= self.owned.keys()

    def _is_known(self, datapath: DatapathId) -> bool:
        return datapath in self.known

    def _rack_of(self, datapath: DatapathId) -> RackId:
        server = self._fabric.server_by_datapath.get(datapath)
        return self._fabric.rack_by_tor_datapath[datapath].id if server is None else server.rack

    # -- what is heard ----------------------------------------------------------------------------

    def renewed(self, datapath: DatapathId) -> None:
        """Note that a switch has connected anew, with whatever rules it holds.

        Nothing is kept of strangers, of whom there may be any number.
        """
        if not self._is_known(datapath):
            return
        self._slow.discard(datapath)
        self._untried.discard(datapath)
        self._missed.discard(datapath)
        self._only_moved.discard(datapath)
        self._renewed.add(datapath)  # it is brought to whatever numbers its ports have now
        self._untaken.add(datapath)
        self._synchronised.discard(datapath)
        self._changes_of_synchronised += 1

    def answers_again(self, datapath: DatapathId) -> None:
        """Note that a switch has answered that was given up: it is slow."""
        self._slow.add(datapath)
        if datapath not in self._missed:
            self._untried.add(datapath)
        self.doubt([datapath])

    def doubt(self, datapaths: Iterable[DatapathId]) -> None:
        """Have switches that did not confirm something synchronised."""
        datapaths = tuple(datapaths)
        self._synchronised.difference_update(datapaths)
        self._only_moved.difference_update(datapaths)
        self._changes_of_synchronised += 1

    def renumbered(self, datapath: DatapathId, earlier: Mapping[str, int]) -> None:
        """Note that ports of a connected switch have other OpenFlow numbers from now on;
        ``earlier`` has the number that rules name so far, by port name; 0: none.
        """
        if datapath not in self.owned:
            return  # rules of a learning ToR name no ports
        known = self._moved.get(datapath, {})
        added = {name: known.get(name, frozenset()) | {old} for name, old in earlier.items()}
        self._moved[datapath] = {**known, **added}
        if datapath in self._synchronised:
            self._only_moved.add(datapath)
        elif datapath not in self._only_moved:
            self._renewed.add(datapath)  # what it is just being sent may name the old numbers
        self._synchronised.discard(datapath)
        self._changes_of_synchronised += 1

    def moved_ports(self) -> Sequence[MovedPort]:
        """Ports of connected switches whose rules may name other OpenFlow numbers."""
        return [
            port
            for datapath in sorted(self._moved.copy())
            if datapath in self._connections.connected()
            for port in self._moved_at(datapath)
        ]

    def _moved_at(self, datapath: DatapathId) -> list[MovedPort]:
        return [
            MovedPort(
                self.owned[datapath],
                name,
                tuple(sorted(old)),
                0 if port is None else port.number,
                self._rack_of(datapath),
            )
            for name, old in self._moved.get(datapath, {}).items()
            if (port := self._connections.port(datapath, name)) is None or old != {port.number}
        ]

    def _note_ready(
        self, datapaths: Collection[DatapathId], moved: Mapping[DatapathId, object]
    ) -> Sequence[MovedPort]:
        """Note that switches hold the present state's rules; returns the ports that had ``moved``
        before these were sent, and that rules name by their present numbers now.
        """
        followed: list[MovedPort] = []
        for datapath in sorted(datapaths):
            if self._moved.get(datapath) is moved.get(datapath):
                followed += self._moved_at(datapath)
                self._moved.pop(datapath, None)
        self._only_moved.difference_update(datapaths)
        self._slow.difference_update(datapaths)
        self._missed.difference_update(datapaths)
        self._synchronised.update(datapaths)
        self._changes_of_synchronised += 1
        return followed
