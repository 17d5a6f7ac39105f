"""Backlog in real sockets, compared with pyroute2's reading of the same kernel."""

import contextlib
import errno
import socket
import struct
import time
from ipaddress import ip_address
from pathlib import Path

import pytest
from pyroute2 import DiagSocket

from apps.agent.buffers import send_buffers
from apps.agent.sockets import SocketReader, SocketsUnreadable
from hydra.demand.backlog import ConnectionKey
from hydra.errors import HydraError
from tests.ipv6 import needs_ipv6
from tests.waiting import wait_until


@contextlib.contextmanager
def stuffed(address):
    """A connection whose receiver reads nothing, its buffers full."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        socket.create_server((address, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as client,
        server.accept()[0],
    ):
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                client.send(bytes(65536))
        yield


@pytest.mark.parametrize("address", ["127.0.0.9", pytest.param("::1", marks=needs_ipv6)])
def test_it_reads_what_pyroute2_reads(address):
    key = ip_address(address).packed
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with SocketReader() as reader, DiagSocket() as reference, stuffed(address):
        reference.bind()

        def expected():
            return sum(
                one["idiag_wqueue"]
                for one in reference.get_sock_stats(family=family)
                if one["idiag_dst"] == address and one["idiag_state"] == 1
            )

        for _ in range(2):  # twice on the same netlink socket
            deadline = time.monotonic() + 60
            while (before := expected()) != reader.waiting()[key].octets or before != expected():
                assert time.monotonic() < deadline, "acknowledgements do not take so long"
                time.sleep(0.01)
            assert before > 100_000
    with SocketReader() as reader:
        assert key not in reader.waiting()


def test_what_a_connection_has_sent_and_has_waiting():
    with (
        socket.create_server(("127.0.0.9", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
        SocketReader() as reader,
    ):
        client.sendall(bytes(1_000_000 // 8))
        taken = 0
        while taken < 1_000_000 // 8:
            taken += len(accepted.recv(65536))
        key = ConnectionKey(
            ip_address("127.0.0.9").packed, client.getsockname()[1], server.getsockname()[1]
        )
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                client.send(bytes(65536))
        deadline = time.monotonic() + 60
        while reader.waiting()[key.address] != (reader.sending()[key][0], 1):
            assert time.monotonic() < deadline, "acknowledgements do not take so long"
            time.sleep(0.01)
        waiting, sent = reader.sending()[key]
    assert waiting > 100_000
    assert sent >= 1_000_000 // 8


MPTCP = 262
without_mptcp = pytest.mark.skipif(
    not Path("/proc/sys/net/mptcp/enabled").exists(), reason="this kernel has no MPTCP"
)


@contextlib.contextmanager
def multipath(server_protocol):
    """A client with MPTCP whose receiver reads nothing: (its address key, bytes written)."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, server_protocol) as server,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP) as client,
    ):
        server.bind(("127.0.0.9", 0))
        server.listen()
        client.connect(server.getsockname())
        with server.accept()[0]:
            client.setblocking(False)
            written = 0
            with contextlib.suppress(BlockingIOError):
                while True:
                    written += client.send(bytes(65536))
            ports = client.getsockname()[1], server.getsockname()[1]
            yield ConnectionKey(ip_address("127.0.0.9").packed, *ports), written


@without_mptcp
@pytest.mark.parametrize("server_protocol", [MPTCP, socket.IPPROTO_TCP], ids=["both", "one end"])
def test_a_connection_of_mptcp_counts_once_with_all_that_waits(server_protocol):
    """With MPTCP at both ends, the TCP socket below holds next to nothing."""
    with SocketReader() as reader, multipath(server_protocol) as (key, written):
        # The receiver's kernel acknowledges all data it has taken; with MPTCP at one end, data that
        # has not reached TCP yet does not show.
        least = written - 500_000

        def shows_all():
            waiting, sent = reader.sending()[key]
            return (
                reader.waiting()[key.address] == (waiting, 1)
                and least < waiting <= written
                and least < waiting + sent <= written
            )

        wait_until(shows_all)


class Recorded:
    """A netlink socket with a kernel's recorded answers."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def send(self, data):
        self.asked.append(data)

    def recv(self, _size):
        header = struct.unpack_from("=IHHII", self.asked[-1])
        kind, messages = self.answers(self.asked[-1][16:])
        done = struct.pack("=IHHIIi", 20, 3, 2, header[3], 0, kind)
        return (
            b"".join(
                struct.pack("=IHHII", 16 + len(one), 20, 2, header[3], 0) + one for one in messages
            )
            + done
        )


def message(port, waiting, attributes):
    """inet_diag_msg of an IPv4 connection from ``port`` to 10.0.2.1:5201."""
    address = struct.pack("!HH", port, 5201) + bytes(16) + bytes([10, 0, 2, 1]) + bytes(12 + 12)
    return (
        struct.pack("=BBBB", 2, 1, 0, 0)
        + address
        + struct.pack("=5I", 0, 0, waiting, 0, 0)
        + (attributes)
    )


def attribute(kind, payload):
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


MPTCP_INFO = bytes.fromhex(
    "000000020000000002000000b722faf9e62d1f0be7655c0beb80e30ae7655c0b96b7badd9e7f36a6"
    "00000000000000000000000000000000cd3f0100000000000000000000000000cd3f010000000000"
    "0100000068000000680000003c000000"
)
"""By Linux 6.18, for a connection with 3,910,907 bytes waiting and 81,869 acknowledged."""
SUBFLOW = bytes.fromhex(
    "0a0001006d7074637000000058000300080001000000000008000200b722faf908000800c3000000"
    "050009000000000005000a000000000008000300ce3f01000c00040096b7badd9e7f36a608000500"
    "01000000080006006997bb350600070000000000"
)
"""By the same kernel, for the TCP socket below that connection."""


@pytest.mark.parametrize("extended", [False, True])
def test_requests_for_mptcp_and_answers_as_a_kernel_gave_them(extended):
    def answers(request):
        if request[0] != socket.AF_INET:
            return 0, []
        if len(request) > 56:
            assert request[1:3] == bytes([255, 2])
            assert struct.unpack("=HHI", request[56:]) == (8, 3, 262)
            return 0, [message(40000, 0, attribute(2, MPTCP_INFO))]
        assert request[2] == 2, "subflows are told by their ULP, which comes with the information"
        info = attribute(2, bytes(232))
        return 0, [message(40000, 90, info + attribute(19, SUBFLOW)), message(40001, 7, info)]

    reader = SocketReader()
    reader.close()
    reader._netlink = Recorded(answers)
    to = ip_address("10.0.2.1").packed
    if extended:
        assert reader.sending() == {
            ConnectionKey(to, 40000, 5201): (3_910_907, 81_869),
            ConnectionKey(to, 40001, 5201): (7, 0),
        }
    else:
        assert reader.waiting() == {to: (3_910_914, 2)}


def test_a_kernel_that_lists_no_mptcp_is_asked_once(caplog):
    def answers(request):
        return (-errno.ENOENT, []) if len(request) > 56 else (0, [])

    reader = SocketReader()
    reader.close()
    reader._netlink = Recorded(answers)
    assert reader.waiting() == reader.waiting() == {}
    assert [len(one) - 16 for one in reader._netlink.asked] == [64, 56, 56, 56, 56]


def test_a_kernel_that_lists_no_tcp_is_an_error():
    """The error of a dump stands in its last message."""
    reader = SocketReader()
    reader.close()
    reader._netlink = Recorded(lambda _request: (-errno.ENOENT, []))
    with pytest.raises(SocketsUnreadable, match="load the kernel's modules tcp_diag"):
        reader.waiting()


def test_ports_that_are_listened_on():
    with socket.create_server(("127.0.0.9", 0)) as server, SocketReader() as reader:
        assert server.getsockname()[1] in reader.listening()
        assert reader.listening() == sorted(set(reader.listening()))


def test_buffers_are_enlarged_and_restored(tmp_path):
    setting = tmp_path / "tcp_wmem"
    setting.write_text("4096\t16384\t4194304\n")
    with send_buffers(100_000_000, setting, tmp_path / "note"):
        assert setting.read_text().split() == ["4096", "100000000", "100000000"]
    assert setting.read_text().split() == ["4096", "16384", "4194304"]


def test_what_somebody_else_set_meanwhile_stays(tmp_path):
    setting = tmp_path / "tcp_wmem"
    setting.write_text("4096\t16384\t4194304\n")
    with send_buffers(100_000_000, setting, tmp_path / "note"):
        setting.write_text("1 2 3")
    assert setting.read_text() == "1 2 3"


@pytest.fixture
def note(tmp_path):
    return tmp_path / "run" / "note"


class Killed(BaseException):
    pass


def die(*_arguments, **_options):
    raise Killed


def kill_with(octets, setting, note):
    """A killed agent restores nothing, and its note stays."""
    with (
        contextlib.suppress(Killed),
        pytest.MonkeyPatch.context() as patch,
        send_buffers(octets, setting, note),
    ):
        for name in ("read_text", "write_text", "unlink"):
            patch.setattr(Path, name, die)


@pytest.mark.parametrize("killed", [1, 2])
def test_buffers_of_an_agent_that_was_killed_are_restored_by_the_next(tmp_path, note, killed):
    setting = tmp_path / "tcp_wmem"
    setting.write_text("4096\t16384\t4194304\n")
    for octets in (100_000_000, 200_000_000)[:killed]:
        kill_with(octets, setting, note)
        assert setting.read_text().split() == ["4096", str(octets), str(octets)]
    with send_buffers(300_000_000, setting, note):
        assert setting.read_text().split() == ["4096", "300000000", "300000000"]
    assert setting.read_text().split() == ["4096", "16384", "4194304"]
    assert not note.exists()


def test_an_agent_that_is_killed_before_it_has_set_anything_keeps_what_is_noted(tmp_path, note):
    setting = tmp_path / "tcp_wmem"
    setting.write_text("4096\t16384\t4194304\n")
    kill_with(100_000_000, setting, note)
    with contextlib.suppress(Killed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_text", die)
        with send_buffers(200_000_000, setting, note):
            pass
    with send_buffers(300_000_000, setting, note):
        pass
    assert setting.read_text().split() == ["4096", "16384", "4194304"]


def test_what_somebody_set_after_an_agent_was_killed_is_what_is_restored(tmp_path, note):
    setting = tmp_path / "tcp_wmem"
    setting.write_text("4096\t16384\t4194304\n")
    kill_with(100_000_000, setting, note)
    setting.write_text("1\t2\t3\n")
    with send_buffers(300_000_000, setting, note):
        assert setting.read_text().split() == ["1", "300000000", "300000000"]
    assert setting.read_text().split() == ["1", "2", "3"]


def test_a_note_that_is_none_or_can_not_be_written_keeps_no_agent_from_its_work(
    tmp_path, note, caplog
):
    setting = tmp_path / "tcp_wmem"
    setting.write_text("4096\t16384\t4194304\n")
    note.parent.mkdir()
    note.write_text("nonsense")
    with send_buffers(100_000_000, setting, note):
        pass
    assert not caplog.records
    with send_buffers(100_000_000, setting, setting / "note"):
        assert setting.read_text().split() == ["4096", "100000000", "100000000"]
    assert "its send buffers stay" in caplog.text
    assert setting.read_text().split() == ["4096", "16384", "4194304"]


def test_who_may_not_is_told_what_to_do(tmp_path):
    setting, note = tmp_path / "no", tmp_path / "note"
    with pytest.raises(HydraError, match="--socket-buffer-mb"), send_buffers(1, setting, note):
        pass
