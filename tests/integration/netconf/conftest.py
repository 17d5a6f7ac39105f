"""Real NETCONF servers, one per datastore and test module; a second client besides the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from lxml import etree
from ncclient import manager
from ncclient.operations import RPCError

from mininet_scenarios.emulators.netconfd import Netconfd
from tests.waiting import PATIENCE_S

SIZE = 16
MONITORING = "urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring"
PORTS = [f"Ethernet{number}" for number in range(1, 65)]
LAG = "Port-Channel1"


class Stranger:
    """A second client of the same server, by ncclient alone."""

    def __init__(self, server: Netconfd) -> None:
        host, _, port = server.address.partition(":")
        self.session = manager.connect_ssh(
            host, int(port), username="root", key_filename=server.login.key_file,
            hostkey_verify=False, allow_agent=False, look_for_keys=False, timeout=PATIENCE_S,
        )  # fmt: skip

    def end_other_sessions(self) -> None:
        for number in self._other_sessions():
            with contextlib.suppress(RPCError):  # the server has ended by itself meanwhile
                self.session.kill_session(number)

    def _other_sessions(self) -> list[str]:
        root = etree.Element(f"{{{MONITORING}}}netconf-state")
        etree.SubElement(root, f"{{{MONITORING}}}sessions")
        data = self.session.get(filter=("subtree", root)).data_ele
        found = [element.text for element in data.iter("{*}session-id")]
        return [number for number in found if number != self.session.session_id]

    def close(self) -> None:
        self.session.close_session()


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Netconfd]:
    """netconfd, written through its candidate datastore unless the module says otherwise."""
    datastore = getattr(request, "param", "candidate")
    with Netconfd(tmp_path_factory.mktemp("netconfd"), datastore) as server:
        server.become_polatis(SIZE)
        server.become_switch(PORTS, [LAG])
        yield server


@pytest.fixture(scope="module")
def stranger(server: Netconfd) -> Iterator[Stranger]:
    client = Stranger(server)
    yield client
    client.close()
