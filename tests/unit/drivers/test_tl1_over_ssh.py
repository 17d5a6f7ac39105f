"""Polatis' TL1 over SSH: the SSH login is the session's login, without ACT-USER."""

from __future__ import annotations

import dataclasses

import paramiko
import pytest

from drivers.registry import OPTICAL, optical_switch
from hydra.errors import DeviceError
from hydra.model import CrossConnect, Login, Plane, PlaneId
from tests.unit.drivers.scripted import VARIABLE, completed
from tests.unit.drivers.ssh_front import SshFront
from tests.waiting import PATIENCE_S

EXCHANGES = [
    (b"RLS-ARC-EQPT::REPMGR:1:;\n", completed(1)),
    (b"RTRV-EQPT::SYSTEM:2:::PARAMETER=SIZE;\n", completed(2, "SYSTEM:SIZE=16x16")),
    (b"RTRV-PATCH:::3:;\n", completed(3, "1,17")),
]


def answer(channel: paramiko.Channel) -> None:
    """The device: expects exactly these commands, and never a log-out."""
    for command, reply in EXCHANGES:
        got = b""
        while len(got) < len(command) and (data := channel.recv(len(command) - len(got))):
            got += data
        assert got == command
        channel.sendall(reply)
    assert channel.recv(100) == b""


@pytest.fixture
def plane(monkeypatch):
    monkeypatch.setenv(VARIABLE, "root")
    front = SshFront(answer)
    login = Login("admin", password_env=VARIABLE)
    options = {"host_key": front.host_key}
    address = f"ssh:{front.address}"
    yield Plane(PlaneId(0), "p1", "polatis-tl1", address, 16, 5.0, 1.0, login, options)
    front.stop()


def test_a_session_over_ssh_is_logged_in_already(plane):
    assert list(OPTICAL["polatis-tl1"].check(plane)) == []
    wrong = dataclasses.replace(plane, login=Login("nobody", password_env=VARIABLE))
    refused = optical_switch(wrong, PATIENCE_S)
    with pytest.raises(DeviceError, match="nobody"):
        refused.open()
    switch = optical_switch(plane, PATIENCE_S)
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
