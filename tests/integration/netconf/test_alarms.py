"""Alarms reported by a Polatis switch whose server takes no other requests during a
subscription.
"""

from __future__ import annotations

import asyncio
import threading

import asyncssh
import pytest
from lxml import etree

from drivers.optical.polatis_netconf import Options, PolatisNetconf
from hydra.model import Login
from hydra.roles import Alarm, Severity
from tests.waiting import PATIENCE_S, wait_until

NETCONF = "urn:ietf:params:xml:ns:netconf:base:1.0"
SWITCH = "http://www.polatis.com/yang/optical-switch"
END = b"]]>]]>"
CAPABILITIES = (
    "urn:ietf:params:netconf:base:1.0",
    "urn:ietf:params:netconf:capability:writable-running:1.0",
    "urn:ietf:params:netconf:capability:notification:1.0",
)


class Gate(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("admin", "root")


class AlarmServer:
    """NETCONF without ``:interleave``: a session with a subscription only receives."""

    def __init__(self) -> None:
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._ready = threading.Event()
        self._listeners: list[asyncssh.SSHServerProcess] = []
        self.requests: list[tuple[bool, str]] = []
        """(Session with a subscription or not, operation)."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def notify(self, name: str, port: int, dbm: str) -> None:
        event = f'<{name} xmlns="{SWITCH}"><port-id>{port}</port-id><power>{dbm}</power></{name}>'
        text = (
            '<notification xmlns="urn:ietf:params:xml:ns:netconf:notification:1.0">'
            f"<eventTime>2026-01-01T00:00:00Z</eventTime>{event}</notification>"
        )
        for process in self._listeners:
            self._loop.call_soon_threadsafe(process.stdout.write, text.encode() + END)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await self._listen()
        self._ready.set()
        await self._over.wait()
        server.close()
        for connection in self._connections:
            connection.abort()
            await connection.wait_closed()
        await server.wait_closed()

    async def _listen(self) -> asyncssh.SSHAcceptor:
        key = asyncssh.generate_private_key("ssh-ed25519")
        self.host_key = " ".join(key.export_public_key().decode().split()[:2])
        server = await asyncssh.create_server(
            Gate, "127.0.0.1", 0, server_host_keys=[key], process_factory=self._serve, encoding=None
        )
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _serve(self, process: asyncssh.SSHServerProcess) -> None:
        listed = "".join(f"<capability>{uri}</capability>" for uri in CAPABILITIES)
        self._connections.add(process.get_extra_info("connection"))
        hello = f'<hello xmlns="{NETCONF}"><capabilities>{listed}</capabilities>'
        process.stdout.write(f"{hello}<session-id>1</session-id></hello>".encode() + END)
        pending = b""
        while data := await process.stdin.read(65536):
            *messages, pending = (pending + data).split(END)
            for message in messages:
                self._answer(process, etree.fromstring(message))

    def _answer(self, process: asyncssh.SSHServerProcess, root: etree.Element) -> None:
        if etree.QName(root).localname != "rpc":
            return
        operation = etree.QName(root[0]).localname
        self.requests.append((process in self._listeners, operation))
        if operation == "create-subscription":
            self._listeners.append(process)
        body = "<data/>" if operation == "get" else "<ok/>"
        number = root.get("message-id")
        reply = f'<rpc-reply xmlns="{NETCONF}" message-id="{number}">{body}</rpc-reply>'
        process.stdout.write(reply.encode() + END)


@pytest.fixture
def server():
    server = AlarmServer()
    yield server
    server.stop()


def test_alarms_come_while_requests_go_on(server, monkeypatch):
    monkeypatch.setenv("HYDRA_TEST_POLATIS", "root")
    login = Login("admin", password_env="HYDRA_TEST_POLATIS")
    switch = PolatisNetconf(
        "p1", server.address, login, Options(host_key=server.host_key), timeout_s=PATIENCE_S
    )
    switch.open()
    server.notify("port-power-alarm", 12, "-60.00")
    server.notify("activity-log-notification", 3, "0.00")
    server.notify("port-power-alarm-clear", 12, "-3.50")
    assert switch.cross_connects() == frozenset()
    assert switch.alarms() == ()
    heard: list[Alarm] = []
    wait_until(lambda: heard.extend(switch.reports()) or len(heard) == 2)
    assert heard == [
        Alarm(Severity.MAJOR, 12, "port-power-alarm", "port-id 12, power -60.00"),
        Alarm(Severity.CLEARED, 12, "port-power-alarm", "port-id 12, power -3.50"),
    ]
    assert switch.reports() == ()
    # The mode, cross-connects, and alarms at the start.
    assert server.requests == [
        (False, "create-subscription"), (False, "get"), (False, "get"), (False, "get"),
    ]  # fmt: skip
    switch.close()
