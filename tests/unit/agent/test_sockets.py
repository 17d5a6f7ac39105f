"""What waits in real sockets, held against pyroute2's reading of the same kernel."""

import contextlib
import socket
import time
from ipaddress import ip_address
from pathlib import Path

import pytest
from pyroute2 import DiagSocket

from apps.agent.buffers import send_buffers
from apps.agent.sockets import SocketReader
from hydra.demand.backlog import ConnectionKey
from hydra.errors import HydraError
from tests.ipv6 import needs_ipv6


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
    """An agent that is killed: it restores nothing, and its note stays."""
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
