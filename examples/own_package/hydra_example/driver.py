"""A driver: an optical switch on HTTP, whose circuits are a list of JSON objects."""

from drivers.optical.simple import SimpleSwitch
from drivers.transports.restconf import RestconfSession
from hydra.model import CrossConnect

LIST = "optical-switch:cross-connects"


class HttpSwitch(SimpleSwitch[RestconfSession]):
    """What the controller asks for beyond this, the base class does."""

    def _reach(self) -> RestconfSession:
        return RestconfSession.to(self._plane, "api", self._timeout_s)

    def _listed(self) -> list[tuple[int, int]]:
        answer = self._session.read(f"data/{LIST}") or {LIST: {"pair": []}}
        return [(pair["ingress"], pair["egress"]) for pair in answer[LIST]["pair"]]

    def _disconnect(self, old: CrossConnect) -> None:
        self._session.write("DELETE", f"data/{LIST}/pair={old.ingress}")

    def _connect(self, new: CrossConnect) -> None:
        self._session.write("POST", f"data/{LIST}", {"pair": [new._asdict()]})
