"""Polatis' TL1 over SSH: the session is logged in once SSH is, and wants no ACT-USER."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import asyncssh
import pytest

from drivers.registry import OPTICAL, optical_switch
from hydra.errors import DeviceError
from hydra.model import CrossConnect, Login, Plane, PlaneId
from tests.unit.drivers.scripted import Scripted
from tests.unit.drivers.test_transcripts import completed

VARIABLE = "HYDRA_TEST_SECRET"
EXCHANGES = [
    (b"RLS-ARC-EQPT::REPMGR:1:;\n", completed(1)),
    (b"RTRV-EQPT::SYSTEM:2:::PARAMETER=SIZE;\n", completed(2, "SYSTEM:SIZE=16x16")),
    (b"RTRV-PATCH:::3:;\n", completed(3, "1,17")),
]


class Gate(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("admin", "root")


class SshFront:
    """An SSH server whose shells lead to ``address``, in a thread of its own."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self.host_key = " ".join(self._key.export_public_key().decode().split()[:2])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = self._run(self._listen())
        self.address = f"ssh:127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._server.close()
        self._run(self._server.wait_closed())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self):
        return await asyncssh.create_server(
            Gate, "127.0.0.1", 0, server_host_keys=[self._key], encoding=None,
            process_factory=self._converse, line_editor=False,
        )  # fmt: skip

    async def _converse(self, process) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        ways = ((process.stdin, writer), (reader, process.stdout))
        copies = [asyncio.create_task(_copy(*way)) for way in ways]
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        writer.close()
        process.exit(0)


async def _copy(source, sink) -> None:
    while data := await source.read(1000):
        sink.write(data)


@pytest.fixture
def plane(monkeypatch):
    monkeypatch.setenv(VARIABLE, "root")
    device = Scripted(EXCHANGES)
    front = SshFront(device.address)
    login = Login("admin", password_env=VARIABLE)
    options = {"host_key": front.host_key}
    yield Plane(PlaneId(0), "p1", "polatis-tl1", front.address, 16, 5.0, 1.0, login, options)
    front.stop()
    device.finish()


def test_a_session_over_ssh_is_logged_in_already(plane):
    assert list(OPTICAL["polatis-tl1"].check(plane)) == []
    wrong = dataclasses.replace(plane, login=Login("nobody", password_env=VARIABLE))
    refused = optical_switch(wrong, 5.0)
    with pytest.raises(DeviceError, match="nobody"):
        refused.open()
    switch = optical_switch(plane, 5.0)
    switch.open()
    assert switch.cross_connects() == {CrossConnect(1, 17)}
    switch.close()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"address": "ssh:nowhere"}, "address"),
        ({"login": None}, "login"),
        ({"options": {"baud": 9600}}, "options.baud"),
    ],
)
def test_what_cant_work_is_found_before_anything_connects(change, path):
    plane = Plane(
        PlaneId(0), "p1", "polatis-tl1", "ssh:10.0.0.7:6252", 16, 5.0, 1.0,
        Login("admin", password_env=VARIABLE),
    )  # fmt: skip
    problems = OPTICAL["polatis-tl1"].check(dataclasses.replace(plane, **change))
    assert [problem.path for problem in problems] == [path]
