"""The kernel as a cross-connect: redirected frames take effect at once, or go nowhere."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_scenarios.emulators.redirections import RedirectionError, Redirections
from mininet_scenarios.emulators.rtnetlink import KernelRequests, RequestRefused, request
from mininet_scenarios.testbed.links import Cable, lay
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.ovs

ENDS = ("hyTo1", "hyTo2", "hyTo3")
"""Names of the sending ends of the cables to ``hyTt1`` and so on."""
ETH_P_ALL = 3
FRAME = bytes.fromhex("020000000002 020000000001 8100 0064 88b5") + bytes(60)


@pytest.fixture(scope="module", autouse=True)
def cables(switches):
    made = [Cable(end.replace("o", "t"), end) for end in ENDS]
    try:
        lay(made)
        yield
    finally:
        for cable in made:
            subprocess.run(["ip", "link", "del", cable.a], check=True)


@pytest.fixture
def redirections(one_processor):
    found = Redirections(ENDS)
    yield found
    found.remove(ENDS)
    found.close()


@pytest.fixture
def one_processor() -> Iterator[None]:
    """Frames sent by this process wait in a single queue, that of its processor."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    yield
    os.sched_setaffinity(0, everywhere)


def arrives(source, target):
    """True if frames from ``source`` reach ``target``, and no other end."""
    others = [f"hyTt{n}" for n in (1, 2, 3) if f"hyTt{n}" != source]
    before = {name: received(name) for name in others}
    for _ in range(2):  # one after the other: once the second arrives, the first is through
        send_until_heard(source)
    reached = {name for name in others if received(name) > before[name]}
    assert reached <= {target}
    return reached == {target}


def send_until_heard(source):
    """Send a frame to the mirror until the frame arrives: a busy kernel is late, and drops frames
    without room in a queue.
    """
    deadline = time.monotonic() + PATIENCE_S
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as mirror,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender,
    ):
        mirror.bind((source.replace("t", "o"), ETH_P_ALL))
        mirror.settimeout(0.5)  # timed: then the frame is sent again
        sender.bind((source, 0))
        while time.monotonic() < deadline:
            sender.send(FRAME)
            try:
                while mirror.recv(len(FRAME))[:12] != FRAME[:12]:
                    pass
            except TimeoutError:
                continue
            return
    raise AssertionError(f"no frame from {source} came to the mirror")


def received(name):
    return int(Path(f"/sys/class/net/{name}/statistics/rx_packets").read_text())


def test_frames_go_where_a_redirection_says(redirections):
    redirections.add({"hyTo1": "hyTo2", "hyTo2": "hyTo1"})
    assert arrives("hyTt1", "hyTt2")
    assert arrives("hyTt2", "hyTt1")
    assert not arrives("hyTt3", "hyTt1")
    redirections.add({"hyTo1": "hyTo3"})
    assert arrives("hyTt1", "hyTt3"), "one that stands is replaced"
    assert redirections.cross_connects() == {"hyTo1": "hyTo3", "hyTo2": "hyTo1"}
    redirections.remove(["hyTo1", "hyTo3"])
    assert not arrives("hyTt1", "hyTt3")
    assert redirections.cross_connects() == {"hyTo2": "hyTo1"}


def test_they_outlive_who_made_them(redirections):
    redirections.add({"hyTo1": "hyTo2"})
    again = Redirections(ENDS)
    assert again.cross_connects() == {"hyTo1": "hyTo2"}
    again.remove(["hyTo1"])
    again.close()
    assert redirections.cross_connects() == {}


def test_an_interface_that_is_not_there_is_named():
    with pytest.raises(RedirectionError, match="there is no interface hyTnone"):
        Redirections(["hyTo1", "hyTnone"])


def test_the_first_refusal_is_told_after_all_have_been_tried():
    kernel = KernelRequests()
    index = socket.if_nametoindex("hyTo1")
    down, up, nowhere = (
        request(lambda batch, i=i, s=s: batch.link("set", index=i, state=s))
        for i, s in ((index, "down"), (index, "up"), (0x7FFF_FFFF, "up"))
    )
    try:
        with pytest.raises(RequestRefused) as refused:
            kernel.make([down, nowhere, up])
        assert refused.value.errno == errno.ENODEV
        assert str(refused.value) == "No such device"
        kernel.make([down, nowhere, up] * 200, unless={errno.ENODEV})
    finally:
        kernel.close()
    flags = int(Path("/sys/class/net/hyTo1/flags").read_text(), 16)
    assert flags & 1, "the last request was made"
