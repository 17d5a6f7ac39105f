"""Sockets of containers: other, real network namespaces of this machine."""

import contextlib
import os
import subprocess
import sys
from ipaddress import ip_address

import pytest

from apps.agent.namespaces import OtherNamespaces, ServerSockets, _Paced
from apps.agent.sockets import SocketReader, SocketsUnreadable
from hydra.demand.backlog import Waiting

from .test_sockets import stuffed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")
TO = ip_address("127.0.0.9").packed
STUFF = """
import contextlib, socket, sys
with socket.create_server(("127.0.0.9", 0)) as server:
    client = socket.create_connection(server.getsockname())
    accepted = server.accept()[0]
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            client.send(bytes(65536))
    print("full", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def container():
    """A process in a separate network, with much data waiting for 127.0.0.9."""
    script = 'ip link set lo up && exec "$@"'
    command = ["unshare", "--net", "sh", "-c", script, "sh", sys.executable, "-c", STUFF]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"full\n"
        yield process.pid
        process.stdin.close()
        process.wait(60)


class Proc:
    """A /proc with these processes only: this machine may have other containers."""

    def __init__(self, path):
        self.path = path
        self.add("self", os.getpid())
        self.add("1", os.getpid())

    def add(self, name, process):
        (self.path / name / "ns").mkdir(parents=True)
        (self.path / name / "ns" / "net").symlink_to(f"/proc/{process}/ns/net")

    def remove(self, name):
        (self.path / name / "ns" / "net").unlink()


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def test_a_containers_sockets_count_with_the_machines(proc):
    clock = Clock()
    with ServerSockets(clock, proc.path) as sockets, container() as process:
        assert TO not in sockets.waiting()
        proc.add("77", process)
        clock.now_s += 6
        # No further writes: the backlog shrinks as the receiver's buffer grows.
        sending = sum(one.waiting for one in sockets.sending().values())
        of_container = sockets.waiting()[TO]
        assert of_container.octets > 100_000
        assert of_container.connections == 1
        assert sending >= of_container.octets
        with stuffed("127.0.0.9"):
            both = sockets.waiting()[TO]
        assert both.connections == 2
        assert both.octets > of_container.octets + 100_000
        proc.remove("77")
        clock.now_s += 6
        assert sockets.waiting().get(TO, Waiting(0, 0)).connections == 0
        assert sockets._others.readers() == [], "an open socket would keep the namespace alive"


def test_an_agent_in_a_container_reports_for_that_alone(tmp_path):
    with container() as process:
        proc = Proc(tmp_path)
        proc.remove("1")
        (tmp_path / "1" / "ns" / "net").symlink_to(f"/proc/{process}/ns/net")
        with ServerSockets(proc=proc.path) as sockets:
            assert TO not in sockets.waiting()


def test_who_may_not_look_into_others_is_told_what_it_takes(caplog):
    os.seteuid(65534)
    try:
        with ServerSockets() as sockets:
            sockets.waiting()
            sockets.waiting()
    finally:
        os.seteuid(0)
    (told,) = caplog.messages
    assert "give the agent CAP_SYS_PTRACE and CAP_SYS_ADMIN" in told


def test_many_namespaces_are_read_a_twentieth_of_the_time(proc):
    """A reading that took 50 ms is reused for one second."""
    clock = Clock()
    read = []

    def slowly(reader):
        read.append(reader)
        clock.now_s += 0.05
        return {TO: Waiting(len(read), 1)}

    with container() as process:
        proc.add("77", process)
        others = OtherNamespaces(clock, proc.path)
        paced = _Paced(clock, slowly)
        assert paced.read(others) == [{TO: Waiting(1, 1)}]
        clock.now_s += 0.9
        assert paced.read(others) == [{TO: Waiting(1, 1)}]
        clock.now_s += 0.2
        assert paced.read(others) == [{TO: Waiting(2, 1)}]
        others.close()


def test_a_namespace_that_can_not_be_read_is_left_out(proc, monkeypatch):
    clock = Clock()

    def fails(_reader):
        raise SocketsUnreadable("no")

    with container() as process:
        proc.add("77", process)
        others = OtherNamespaces(clock, proc.path)
        assert _Paced(clock, fails).read(others) == []
        assert others.readers() == []
        clock.now_s += 6
        (found,) = _Paced(clock, SocketReader.waiting).read(others)
        assert found[TO].connections == 1
        others.close()
