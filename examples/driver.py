"""A driver of your own: an optical switch on HTTP, whose circuits are a list of JSON objects.

``driver.py HOST:PORT`` logs in as ``admin``, with the password that the environment variable
``P1_PASSWORD`` holds, and shows what is connected.
"""

import sys

from drivers.optical.simple import SimpleSwitch
from drivers.transports.restconf import RestconfSession
from hydra.model import CrossConnect, Login, Plane, PlaneId

LIST = "optical-switch:cross-connects"


class HttpSwitch(SimpleSwitch[RestconfSession]):
    """What the controller asks for beyond this, the base class does."""

    def _reach(self) -> RestconfSession:
        return RestconfSession.to(self._plane, "api", self._timeout_s)

    def _listed(self) -> list[tuple[int, int]]:
        answer = self._session.read(f"data/{LIST}") or {LIST: {"pair": []}}
        return [(one["ingress"], one["egress"]) for one in answer[LIST]["pair"]]

    def _disconnect(self, old: CrossConnect) -> None:
        self._session.tell("DELETE", f"data/{LIST}/pair={old.ingress}")

    def _connect(self, new: CrossConnect) -> None:
        self._session.tell("POST", f"data/{LIST}", {"pair": [new._asdict()]})


if __name__ == "__main__":
    login = Login("admin", "P1_PASSWORD")
    # 16 ports on either side, 25 ms to move a mirror, 100 Mb/s
    plane = Plane(PlaneId(0), "p1", "http", sys.argv[1], 16, 25, 100, login=login)
    with HttpSwitch(plane, timeout_s=10) as switch:
        print("connected:", *(f"{a} to {b}" for a, b in switch.cross_connects()))
