"""Keeps ToRs from flooding: announces every server's place before the ToRs' memory runs out."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection

from apps.openflow.fleet import Fleet
from hydra.forwarding.frames import announcement
from hydra.forwarding.substrate import Substrate
from hydra.model import DatapathId, Server
from hydra.reconfiguration.switches import Announced


class Announcer:
    """Announces on demand and every third of the ToRs' ageing time.

    Suspended while circuits drain, whose counters have to stand still.
    """

    def __init__(
        self,
        *,
        fleet: Fleet,
        substrate: Substrate,
        current: Callable[[], Announced],
        interval_s: float,
    ) -> None:
        self._fleet = fleet
        self._substrate = substrate
        self._current = current
        self._interval_s = interval_s
        self._switch_of: dict[str, DatapathId] = {}
        self._numbers = itertools.count()
        self._stop = threading.Event()
        self._running = threading.Lock()
        """Held while a round is sent, and while rounds are suspended."""
        self._thread = threading.Thread(target=self._repeat, name="announcer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def suspended(self) -> threading.Lock:
        """The lock that holds up periodic announcements: ``with announcer.suspended:``."""
        return self._running

    def announce(self, servers: Announced) -> Collection[DatapathId]:
        """Send each server's addresses wherever switches learn: on the VLANs to the server,
        untagged in the server's rack, and electrically. Returns the switches of the servers.
        """
        number = next(self._numbers)
        frames: dict[DatapathId, list[tuple[int, bytes]]] = {}
        for server, vlans in servers:
            frames.setdefault(self._steering(server), []).extend(
                (port, announcement(mac, vlan, number))
                for mac in server.macs
                for port, vlan in self._substrate.announced(server, vlans)
            )
        self._fleet.send_frames(frames)
        return frames

    def _steering(self, server: Server) -> DatapathId:
        """The switch that sends a server's frames."""
        if server.name not in self._switch_of:
            for switch in self._substrate.steering(server.rack):
                self._switch_of |= dict.fromkeys(
                    (server.name for server in switch.servers), switch.datapath
                )
        return self._switch_of[server.name]

    def _repeat(self) -> None:
        while not self._stop.wait(self._interval_s):
            with self._running:
                self.announce(self._current())
