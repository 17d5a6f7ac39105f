"""A driver of your own: an optical switch on HTTP, whose circuits are a list of JSON objects.

``driver.py HOST:PORT`` makes a cross-connect, reads it back, and takes it down again.
"""

import sys
from collections.abc import Collection

import httpx

from drivers.optical.changes import check_ports, difference, not_made, shortfall
from hydra.errors import DeviceUnavailable, OutcomeUnknown
from hydra.model import CrossConnect
from hydra.roles import DeviceIdentity, OpticalCapabilities, PortState


class HttpSwitch:
    """An ``OpticalSwitch`` (``hydra/roles.py``): the controller uses any class with these names."""

    capabilities = OpticalCapabilities(unidirectional=True)
    _list = "/api/data/optical-switch:cross-connects"

    def __init__(self, name: str, address: str, ports: int, timeout_s: float) -> None:
        self.name, self._ports = name, ports
        self._url, self._timeout_s = f"http://{address}", timeout_s

    def open(self) -> None:
        login = ("admin", "root")  # a real one: drivers.credentials.secret
        self._http = httpx.Client(base_url=self._url, auth=login, timeout=self._timeout_s)
        self.cross_connects()

    def close(self) -> None:
        self._http.close()

    def identity(self) -> DeviceIdentity:
        return DeviceIdentity("nobody", "HTTP", "0", "1")

    def size(self) -> tuple[int, int]:
        return self._ports, self._ports

    def port_states(self, ports: Collection[int]) -> dict[int, PortState]:
        return dict.fromkeys(ports, PortState.UNKNOWN)

    def cross_connects(self) -> frozenset[CrossConnect]:
        try:
            answer = self._http.get(self._list).raise_for_status()
        except httpx.HTTPError as error:
            raise DeviceUnavailable(
                self.name, f"it says nothing of its circuits: {error}"
            ) from error
        listed = answer.json()["optical-switch:cross-connects"]["pair"] if answer.content else []
        return frozenset(CrossConnect(one["ingress"], one["egress"]) for one in listed)

    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        check_ports(self.name, self.size(), {*disconnect, *connect})
        change = difference(self.name, self.cross_connects(), disconnect, connect)
        try:
            for old in change.removed:
                self._http.delete(f"{self._list}/pair={old.ingress}").raise_for_status()
            for new in change.added:
                self._http.post(self._list, json={"pair": [new._asdict()]}).raise_for_status()
        except httpx.HTTPError as error:  # from here on nobody knows: the controller reads it back
            raise OutcomeUnknown(self.name, f"a change was begun: {error}") from error
        if problems := shortfall(change, self.cross_connects()):
            raise not_made(self.name, problems)


if __name__ == "__main__":
    switch = HttpSwitch("p1", sys.argv[1], ports=16, timeout_s=10)
    switch.open()
    circuit = CrossConnect(1, 18)
    switch.change([], [circuit])
    print("connected:", *(f"{one.ingress} to {one.egress}" for one in switch.cross_connects()))
    switch.change([circuit], [])
    print("connected:", *switch.cross_connects())
    switch.close()
