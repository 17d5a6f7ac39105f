"""A driver of your own: an optical switch on HTTP, whose circuits are a list of JSON objects.

``driver.py HOST:PORT`` makes a cross-connect, reads it back, and takes it down again. The
environment variable ``P1_PASSWORD`` holds the password of ``admin``.
"""

import sys

from drivers.optical.simple import SimpleSwitch
from drivers.transports.restconf import RestconfSession
from hydra.model import CrossConnect, Login, Plane, PlaneId

LIST = "data/optical-switch:cross-connects"


class HttpSwitch(SimpleSwitch[RestconfSession]):
    """What the controller asks for beyond this, the base class does."""

    def _reach(self) -> RestconfSession:
        return RestconfSession.to(self._plane, "api", self._timeout_s)

    def _listed(self) -> list[tuple[int, int]]:
        answer = self._session.read(LIST) or {"optical-switch:cross-connects": {"pair": []}}
        listed = answer["optical-switch:cross-connects"]["pair"]
        return [(one["ingress"], one["egress"]) for one in listed]

    def _disconnect(self, old: CrossConnect) -> None:
        self._session.tell("DELETE", f"{LIST}/pair={old.ingress}")

    def _connect(self, new: CrossConnect) -> None:
        self._session.tell("POST", LIST, {"pair": [new._asdict()]})


if __name__ == "__main__":
    login = Login("admin", "P1_PASSWORD")  # the name of the variable
    plane = Plane(
        PlaneId(0), "p1", "http", sys.argv[1], ports=16, switching_ms=25, rate_mbps=100, login=login
    )
    with HttpSwitch(plane, timeout_s=10) as switch:
        for disconnect, connect in ([], [CrossConnect(1, 18)]), ([CrossConnect(1, 18)], []):
            switch.change(disconnect, connect)
            print("connected:", *(f"{a} to {b}" for a, b in switch.cross_connects()))
