"""The kernel as a cross-connect: frames go where a redirection says, at once, or nowhere."""

from __future__ import annotations

import errno
import socket
import subprocess
from pathlib import Path

import pytest

from mininet_scenarios.emulators.redirections import RedirectionError, Redirections
from mininet_scenarios.emulators.rtnetlink import KernelRequests, RequestRefused, request
from mininet_scenarios.testbed.links import Cable, lay

pytestmark = pytest.mark.ovs

ENDS = ("hyTo1", "hyTo2", "hyTo3")
"""Of the cables to ``hyTt1`` and so on, where frames come from."""
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
def redirections():
    found = Redirections(ENDS)
    yield found
    found.remove(ENDS)
    found.close()


def arrives(source, target):
    """Whether a frame that ``source`` sends reaches ``target``, and nobody else."""
    others = [f"hyTt{n}" for n in (1, 2, 3) if f"hyTt{n}" != source]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.bind((source, 0))
        before = {name: received(name) for name in others}
        sender.send(FRAME)
    reached = {name for name in others if received(name) > before[name]}
    assert reached <= {target}
    return reached == {target}


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
