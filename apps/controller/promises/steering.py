"""Switches that steer the traffic of a request's ends into circuits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from apps.controller.reach import Reach
from hydra.errors import DeviceMissing
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric
from hydra.names import rack_of
from hydra.reservations.requests import check
from hydra.reservations.reservation import ReservationRequest


class Steering:
    """For any thread."""

    def __init__(self, fabric: Fabric, reach: Reach) -> None:
        self._fabric, self._reach = fabric, reach
        self._substrate = substrate_of(fabric)

    def missing(self, requests: Sequence[ReservationRequest]) -> Collection[str]:
        """Ends of requests to begin now whose switches are not ready."""
        starting = [request for request in requests if request.start_unix_s is None]
        names = {name for request in starting for name in (request.src, request.dst)}
        ready = self._reach.ready_switches() if names else frozenset[DatapathId]()
        return {name for name in names if ready.isdisjoint(self._switches(name))}

    def check(self, request: ReservationRequest) -> None:
        """Raise DeviceMissing if no switch is ready that steers the traffic of an end, or for a
        wrong request the errors of :func:`hydra.reservations.requests.check`.
        """
        ready = self._reach.ready_switches()
        for name in (request.src, request.dst):
            switches = self._switches(name)
            if ready.isdisjoint(switches):
                check(self._fabric, request)
                problems = "; ".join(map(self._reach.why_not_ready, switches))
                raise DeviceMissing(
                    f"{name}: {problems}",
                    in_public=f"{name}: the switch that steers its traffic is not ready: ask again",
                )

    def _switches(self, name: str) -> Sequence[DatapathId]:
        """Switches that steer the traffic of a rack or a server. Raises UnknownName."""
        server = self._fabric.server_by_name.get(name)
        return [
            switch.datapath
            for switch in self._substrate.steering(rack_of(self._fabric, name))
            if server is None or server in switch.servers
        ]
