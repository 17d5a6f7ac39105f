"""Lines to switches, served by the C thread, on sockets of the kernel."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import struct

import pytest

from apps.openflow import _lines
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.takes(15)

LIMITS = {
    "echo_s": 3600.0,
    "unanswered": 2,
    "stalled_s": 3600.0,
    "most_ready": 1 << 17,
    "most_ready_in_all": 1 << 20,
    "most_waiting": 1 << 24,
    "messages_per_s": 1e9,
    "burst": 1e9,
}
ECHO_REQUEST, ECHO_REPLY, BARRIER_REPLY, PACKET_IN, PORT_STATUS = 2, 3, 21, 10, 12


def message(kind: int, xid: int, body: bytes = b"", version: int = 4) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


class Switch:
    """The other end of a line."""

    def __init__(self, lines: Lines, greeting: bytes) -> None:
        self.here, self.there = socket.socketpair()
        for one in (self.here, self.there):  # some kernels hold megabytes by default
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        self.here.settimeout(PATIENCE_S)
        self.line = lines.native.adopt(self.there.fileno(), greeting)

    def read(self) -> tuple[int, int, bytes]:
        """Kind, transaction id and body of the next message."""
        _, kind, length, xid = struct.unpack("!BBHI", self.exactly(8))
        return kind, xid, self.exactly(length - 8)

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.here.recv(count - len(data))
            assert more, "the line was closed"
            data += more
        return data


class Lines:
    """The thread, and the messages taken from each line until its end."""

    def __init__(self, **limits: float) -> None:
        self.native = _lines.Lines(**{**LIMITS, **limits})
        self.taken: dict[int, list[bytes]] = {}
        self.ends: dict[int, tuple[int, int]] = {}
        self.switches: list[Switch] = []

    def connect(self, greeting: bytes = b"") -> Switch:
        """A switch after its greeting and first echo request have been read."""
        switch = Switch(self, greeting)
        self.switches.append(switch)
        if greeting:
            assert switch.exactly(len(greeting)) == greeting
        kind, self.first_xid, body = switch.read()
        assert (kind, body) == (ECHO_REQUEST, b"")
        return switch

    def take(self, lines: int = 10, messages: int = 10) -> bool:
        """Wait for a message or an end, and take it. False if there is none for 20 s."""
        readable, _, _ = select.select([self.native.fileno()], [], [], PATIENCE_S)
        for line, some, end, error in self.native.take(lines, messages):
            assert len(some) <= messages
            self.taken.setdefault(line, []).extend(some)
            if end != _lines.OPEN:
                self.ends[line] = end, error
        return bool(readable)

    def end_of(self, switch: Switch) -> tuple[int, int]:
        while switch.line not in self.ends:
            assert self.take()
        return self.ends[switch.line]

    def messages_of(self, switch: Switch, count: int) -> list[bytes]:
        while len(self.taken.get(switch.line, ())) < count:
            assert self.take()
        return self.taken[switch.line]

    def close(self) -> None:
        for one in self.switches:
            self.native.release(one.line)
            one.here.close()
            one.there.close()
        self.native.close()


@pytest.fixture
def opened():
    """Opens lines with other than the usual limits."""
    every: list[Lines] = []

    def one(**limits):
        every.append(Lines(**limits))
        return every[-1]

    yield one
    for lines in every:
        lines.close()


@pytest.fixture
def lines(opened):
    return opened()


def random_messages(chance: random.Random, count: int) -> list[bytes]:
    sizes = (0, 0, 0, 1, 7, 8, 100, 1500, 65527)
    return [
        message(chance.choice((BARRIER_REPLY, PACKET_IN, 1, 19)), xid,
                chance.randbytes(chance.choice(sizes)), chance.choice((4, 4, 1, 15)))
        for xid in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_messages_come_whole_and_in_order_in_whatever_pieces(lines, seed):
    chance = random.Random(seed)
    switch, sent = lines.connect(), random_messages(chance, 60)
    stream = b"".join(sent)
    while stream:
        size = chance.choice((1, 2, 7, 8, 9, 100, 5000, 200_000))
        switch.here.setblocking(False)
        try:
            stream = stream[switch.here.send(stream[:size]) :]
        except BlockingIOError:
            lines.take()
    assert lines.messages_of(switch, len(sent)) == sent


def test_each_octet_by_itself(lines):
    switch, sent = lines.connect(), [message(PACKET_IN, n, bytes(n)) for n in range(40)]
    for octet in b"".join(sent):
        switch.here.send(bytes([octet]))
    assert lines.messages_of(switch, len(sent)) == sent


def test_echoes_are_answered_while_nobody_takes_what_comes(lines):
    switch = lines.connect(greeting=message(0, 1))
    for number, size in enumerate((0, 1, 900, 65527)):
        body = os.urandom(size)
        switch.here.sendall(message(BARRIER_REPLY, number) + message(ECHO_REQUEST, number, body))
        assert switch.read() == (ECHO_REPLY, number, body)
    assert lines.messages_of(switch, 4) == [message(BARRIER_REPLY, n) for n in range(4)]
    switch.here.sendall(message(ECHO_REQUEST, 7, version=1))
    assert lines.messages_of(switch, 5)[-1] == message(ECHO_REQUEST, 7, version=1), "not its own"


def test_answers_to_its_own_echoes_stay_with_it_and_others_do_not(lines):
    switch = lines.connect()
    asked = lines.first_xid
    switch.here.sendall(message(ECHO_REPLY, asked) + message(ECHO_REPLY, asked ^ 1))
    switch.here.sendall(message(ECHO_REPLY, asked))
    assert lines.messages_of(switch, 2) == [
        message(ECHO_REPLY, asked ^ 1), message(ECHO_REPLY, asked)
    ]  # fmt: skip


@pytest.mark.parametrize("length", range(8))
def test_a_message_shorter_than_its_header_ends_the_line_after_those_before(lines, length):
    switch = lines.connect()
    good = [message(BARRIER_REPLY, n) for n in range(30)]
    bad = struct.pack("!BBHI", 4, BARRIER_REPLY, length, 1)
    switch.here.sendall(b"".join(good) + bad + good[0])
    assert lines.end_of(switch) == (_lines.MALFORMED, length)
    assert lines.taken[switch.line] == good
    assert not lines.native.send(switch.line, b"x")


@pytest.mark.parametrize("first", [0, 0x16, ord("G"), 255])
def test_a_line_that_does_not_begin_as_openflow_ends_at_its_first_byte(lines, first):
    """A TLS greeting may be shorter than the message length in its first bytes."""
    switch = lines.connect()
    switch.here.sendall(bytes([first, 3, 1]))
    assert lines.end_of(switch) == (_lines.FOREIGN, first)


def test_only_the_first_byte_of_a_line_tells_what_it_is(lines):
    switch, sent = (
        lines.connect(),
        [message(BARRIER_REPLY, 1), message(BARRIER_REPLY, 2, version=255)],
    )
    switch.here.sendall(b"".join(sent))
    assert lines.messages_of(switch, 2) == sent


def test_a_line_ends_with_what_came_before_the_end(lines):
    switch, sent = lines.connect(), [message(BARRIER_REPLY, n) for n in range(25)]
    switch.here.sendall(b"".join(sent) + b"\4\25")
    switch.here.close()
    assert lines.end_of(switch)[0] == _lines.CLOSED
    assert lines.taken[switch.line] == sent


def test_one_that_sends_without_end_is_read_no_more_until_it_is_taken(opened):
    lines = opened(most_ready=1000)
    flood, other = lines.connect(), lines.connect()
    flood.here.setblocking(False)
    sent = b""
    barrier = message(BARRIER_REPLY, 5) * 1000
    while len(sent) < 1 << 25:
        try:
            some = barrier[len(sent) % 8 :]
            sent += some[: flood.here.send(some)]
        except BlockingIOError:
            if not select.select([], [flood.here], [], 0.2)[1]:
                break
    assert len(sent) < 1 << 20, "all that was sent was read, and is kept"
    other.here.sendall(message(ECHO_REQUEST, 1) + message(BARRIER_REPLY, 1))
    assert other.read() == (ECHO_REPLY, 1, b"")
    lines.take(lines=2, messages=10)
    assert lines.taken[other.line], "each has its turn"
    taken = lines.messages_of(flood, len(sent) // 8)
    assert set(taken) == {message(BARRIER_REPLY, 5)}


def test_what_all_have_ready_is_bounded_too(opened):
    lines = opened(most_ready_in_all=1)
    one, two = lines.connect(), lines.connect()
    for switch in (one, two):
        switch.here.sendall(message(BARRIER_REPLY, 1))
        switch.here.sendall(message(ECHO_REQUEST, 2))
    lines.messages_of(one, 1)
    assert one.read() == (ECHO_REPLY, 2, b"")
    lines.messages_of(two, 1)
    assert two.read() == (ECHO_REPLY, 2, b"")


def test_one_that_asks_for_echoes_and_reads_none_is_read_no_more(lines):
    switch = lines.connect()
    switch.here.setblocking(False)
    request, sent = message(ECHO_REQUEST, 1, bytes(1000)) * 1000, 0
    while sent < 1 << 25:
        try:
            sent += switch.here.send(request[sent % 1008 :])
        except BlockingIOError:
            if not select.select([], [switch.here], [], 0.2)[1]:
                break
    assert sent < 1 << 20
    switch.here.setblocking(True)
    assert switch.read() == (ECHO_REPLY, 1, bytes(1000))


def test_what_is_sent_goes_out_in_order_while_nobody_reads_and_later(lines):
    switch = lines.connect()
    sent = [os.urandom(random.Random(n).choice((1, 10, 100_000))) for n in range(100)]
    for some in sent:
        assert lines.native.send(switch.line, some)
    other = lines.connect()
    lines.native.send(other.line, message(BARRIER_REPLY, 1))
    assert other.read() == (BARRIER_REPLY, 1, b""), "it does not wait for the first"
    assert switch.exactly(sum(map(len, sent))) == b"".join(sent)


def test_after_its_last_message_a_switch_is_told_so(lines):
    switch = lines.connect()
    assert lines.native.send(switch.line, message(1, 1, bytes(40_000)), True)
    assert not lines.native.send(switch.line, b"more")
    assert switch.read()[0] == 1
    assert switch.here.recv(1) == b""


def test_more_than_may_wait_for_a_switch_ends_its_line(opened):
    lines = opened(most_waiting=1 << 20)
    switch = lines.connect()
    while lines.native.send(switch.line, bytes(1 << 18)):
        pass
    assert lines.end_of(switch) == (_lines.FLOODED, 0)


def test_one_that_reads_nothing_ends_in_time(opened):
    lines = opened(stalled_s=0.3)
    switch, idle = lines.connect(), lines.connect()
    lines.native.send(switch.line, bytes(1 << 23))
    assert lines.end_of(switch) == (_lines.STALLED, 0)
    assert idle.line not in lines.ends


def test_one_that_leaves_echoes_unanswered_ends_and_one_that_answers_does_not(opened):
    lines = opened(echo_s=0.3)
    silent, alive = lines.connect(), lines.connect()
    xid = lines.first_xid
    while silent.line not in lines.ends:
        alive.here.sendall(message(ECHO_REPLY, xid))
        _, xid, _ = alive.read()
        if select.select([lines.native.fileno()], [], [], 0)[0]:
            lines.take()
    assert lines.ends[silent.line] == (_lines.SILENT, 0)
    assert alive.line not in lines.ends
    assert not lines.taken.get(alive.line)
    assert [silent.read()[0] for _ in range(2)] == [ECHO_REQUEST] * 2, "as many as it may leave so"


def test_who_says_too_much_waits_and_others_do_not(opened):
    """The rest waits in the switch's own buffers, once the limit of ready bytes is reached."""
    lines = opened(burst=10.0, messages_per_s=1e-6, most_ready=1 << 10)
    loud, calm = lines.connect(), lines.connect()
    loud.here.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += loud.here.send(message(PORT_STATUS, 1, bytes(1000)))
    assert sent < 1 << 22
    lines.messages_of(loud, 10)
    for xid in range(3):
        calm.here.sendall(message(BARRIER_REPLY, xid))
        assert lines.messages_of(calm, xid + 1)[-1] == message(BARRIER_REPLY, xid)
    assert len(lines.taken[loud.line]) == 10


def test_who_was_silent_for_a_while_is_heard_again(opened):
    lines = opened(burst=300.0, messages_per_s=2000.0)
    loud = lines.connect()
    said = [message(BARRIER_REPLY, xid) for xid in range(1000)]
    loud.here.sendall(b"".join(said))
    assert lines.messages_of(loud, 1000) == said


def test_the_end_of_a_line_that_rests_is_told(opened):
    lines = opened(burst=1.0, messages_per_s=1e-6)
    loud = lines.connect()
    loud.here.sendall(message(BARRIER_REPLY, 1) * 5)
    loud.here.close()
    assert lines.end_of(loud) == (_lines.CLOSED, 0)


def test_of_a_stranger_nothing_but_echoes_is_heard(lines):
    stranger, other = lines.connect(), lines.connect()
    stranger.here.sendall(message(BARRIER_REPLY, 1))
    assert lines.messages_of(stranger, 1) == [message(BARRIER_REPLY, 1)]
    lines.native.ignore(stranger.line)
    for xid in range(3):
        stranger.here.sendall(message(PORT_STATUS, xid, bytes(72)) * 100)
        stranger.here.sendall(message(ECHO_REQUEST, xid, b"who lives"))
        assert stranger.read() == (ECHO_REPLY, xid, b"who lives")
    stranger.here.sendall(
        message(ECHO_REPLY, 99)
    )  # another part of the program has sent the request
    assert lines.messages_of(stranger, 2)[1:] == [message(ECHO_REPLY, 99)]
    other.here.sendall(message(BARRIER_REPLY, 2))
    assert lines.messages_of(other, 1) == [message(BARRIER_REPLY, 2)]
    assert len(lines.taken[stranger.line]) == 2
    stranger.here.close()
    assert lines.end_of(stranger) == (_lines.CLOSED, 0)


def test_a_line_that_was_released_is_nobodys(lines):
    switch = lines.connect()
    switch.here.sendall(message(BARRIER_REPLY, 1))
    select.select([lines.native.fileno()], [], [], PATIENCE_S)
    lines.native.release(switch.line)
    assert lines.native.take(10, 10) == []
    assert not lines.native.send(switch.line, b"x")
    lines.native.release(switch.line)
    fresh = lines.connect()
    assert fresh.line != switch.line
    assert not lines.native.send(switch.line, b"x")


def test_lines_come_and_go(lines):
    """Descriptors are reused at once: no data of one line reaches another line."""
    chance = random.Random(1)
    there: list[Switch] = []
    for number in range(600):
        if there and chance.random() < 0.4:
            gone = there.pop(chance.randrange(len(there)))
            lines.native.release(gone.line)
            gone.here.close()
            gone.there.close()
            continue
        one = lines.connect()
        there.append(one)
        one.here.sendall(message(BARRIER_REPLY, number) + message(ECHO_REQUEST, number))
        assert lines.messages_of(one, 1) == [message(BARRIER_REPLY, number)]
        assert one.read() == (ECHO_REPLY, number, b"")


@pytest.mark.parametrize(
    ("limits", "error"),
    [({"echo_s": 0.0}, ValueError), ({"most_ready": 0}, ValueError), ({"unanswered": 16}, OSError)],
)
def test_limits_are_looked_at(opened, limits, error):
    with pytest.raises(error):
        opened(**limits)


def test_what_is_no_socket_is_refused(lines):
    with pytest.raises(OSError, match="Bad file descriptor"):
        lines.native.adopt(-1, b"")
    with pytest.raises(ValueError, match="at least one"):
        lines.native.take(1, 0)


def test_closed_lines_say_so():
    native = _lines.Lines(**LIMITS)
    native.close()
    native.close()
    with pytest.raises(ValueError, match="closed"):
        native.take(1, 1)
