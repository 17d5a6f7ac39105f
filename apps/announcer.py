"""Keeps ToRs from flooding: announces where every server is, before their memory runs out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from apps.fleet import Fleet
from hydra.frames import announcement
from hydra.model import Fabric, NetworkState, Server, VlanId
from hydra.pipeline import Port

Announced = Sequence[tuple[Server, tuple[VlanId, ...]]]


def reachable_on(fabric: Fabric, state: NetworkState) -> Announced:
    """Every server with the VLANs that lead to it."""
    vlans: dict[int, set[VlanId]] = {rack.id: set() for rack in fabric.racks}
    for path in state.topology.paths:
        for rack in (path.src, path.dst):
            vlans[rack].add(state.vlans[path])
    return [(server, tuple(sorted(vlans[server.rack]))) for server in fabric.servers]


class Announcer:
    """Announces on demand and every third of the ToRs' ageing time.

    Suspended while circuits drain, whose counters have to stand still.
    """

    def __init__(
        self,
        fleet: Fleet,
        untagged: Sequence[Port],
        current: Callable[[], Announced],
        interval_s: float,
    ) -> None:
        """``untagged``: the ports that lead to the server's rack and to the electrical network."""
        self._fleet = fleet
        self._untagged = untagged
        self._current = current
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._running = threading.Lock()
        """Held while a round is sent, and by whoever suspends the rounds."""
        self._thread = threading.Thread(target=self._repeat, name="announcer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def suspended(self) -> threading.Lock:
        """``with announcer.suspended:`` no periodic announcement is sent."""
        return self._running

    def announce(self, servers: Announced) -> None:
        """Send each server's address on its VLANs, untagged in its rack, and electrically."""
        self._fleet.send_frames(
            {
                server.vswitch.datapath_id: self._frames_of(server, vlans)
                for server, vlans in servers
            }
        )

    def _repeat(self) -> None:
        while not self._stop.wait(self._interval_s):
            with self._running:
                self.announce(self._current())

    def _frames_of(self, server: Server, vlans: Iterable[VlanId]) -> Iterator[tuple[Port, bytes]]:
        for vlan in vlans:
            yield Port.OPTICAL, announcement(server.mac, vlan)
        for port in self._untagged:
            yield port, announcement(server.mac, None)
