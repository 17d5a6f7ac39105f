"""Servers that end, and peers that are no NETCONF servers."""

from __future__ import annotations

import socket
import time

import pytest
from lxml import etree

from drivers.transports.netconf import NetconfTransport
from drivers.transports.ssh import SshOptions
from hydra.errors import DeviceUnavailable
from hydra.model import Login
from mininet_scenarios.emulators.netconfd import Netconfd
from tests.waiting import PATIENCE_S, SHORT_S

CROSS_CONNECTS = etree.Element("{http://www.polatis.com/yang/optical-switch}cross-connects")


def test_a_server_that_ends_is_unavailable_and_found_again(tmp_path):
    with Netconfd(tmp_path) as server:
        options = SshOptions(host_key=server.host_key)
        transport = NetconfTransport(
            "p1", server.address, server.login, options, timeout_s=PATIENCE_S
        )
        transport.open()
        server.stop()
        with pytest.raises(DeviceUnavailable):  # the end of its session, if already known
            transport.get(CROSS_CONNECTS)
        with pytest.raises(
            DeviceUnavailable, match=r"can't connect to 127\.0\.0\.1:\d+: .*refused"
        ):
            transport.get(CROSS_CONNECTS)
        server.start()
        assert len(transport.get(CROSS_CONNECTS)) == 0
        transport.close()


def test_what_an_earlier_server_left_half_written_is_not_met(tmp_path, monkeypatch):
    left = tmp_path / ".yuma" / "startup-cfg-txid.txt"
    left.parent.mkdir()
    left.touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = tmp_path / "netconfd"
    directory.mkdir()
    with Netconfd(directory) as server:
        server.become_polatis(16)
    assert left.read_text() == ""


@pytest.mark.quiet("tells the driver's time-out from that of the SSH library, 15 s")
def test_a_peer_that_speaks_no_ssh_costs_one_time_out():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        login = Login("root", password_env="HYDRA_TEST_PASSWORD")
        transport = NetconfTransport("p1", address, login, SshOptions(), timeout_s=SHORT_S)
        started = time.monotonic()
        with pytest.raises(DeviceUnavailable, match=r"no answer in time|SSH protocol banner"):
            transport.open()
        assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("text", ["ssh-ed25519", "ssh-ed25519 ???", "", "AAAA"])
def test_what_is_no_host_key_is_refused(text):
    with pytest.raises(ValueError, match="neither a type and a key in base64"):
        SshOptions(host_key=text)
