"""A former leader sends nothing to devices, even in the middle of a change."""

from __future__ import annotations

import os
import pty
import socket
from contextlib import closing

import pytest

from drivers.codecs import scpi
from drivers.transports.gnmi_session import GnmiSession
from drivers.transports.lines import LineTransport
from drivers.transports.permit import OVER, PermitOverError, permitted, remaining_s
from drivers.transports.restconf import RestconfSession
from drivers.transports.serial_line import SerialOptions, SerialStream
from drivers.transports.stream import ConnectionLostError, Deadline
from drivers.transports.tcp import TcpStream, UnixStream
from drivers.transports.tls import TlsOptions
from hydra.errors import DeviceUnavailable, OutcomeUnknown
from hydra.model import Login
from mininet_scenarios.emulators.certificate import CA, certify

LOGIN = Login("admin", password_env="HYDRA_TEST_PERMIT")
PATIENCE_S = 60.0


class Lease:
    """Remaining time, set by the test."""

    def __init__(self, remaining_s):
        self.remaining_s = remaining_s

    def __call__(self):
        return self.remaining_s


@pytest.fixture(autouse=True)
def password(monkeypatch):
    monkeypatch.setenv("HYDRA_TEST_PERMIT", "secret")


@pytest.fixture
def listener():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


def where(listener):
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_without_a_lease_there_is_no_limit():
    assert remaining_s(5.0) == 5.0
    with permitted(lambda: float("inf")):
        assert remaining_s(5.0) == 5.0
    with permitted(lambda: 2.0):
        assert remaining_s(5.0) == 2.0
    with permitted(lambda: 0.0), pytest.raises(PermitOverError, match=OVER):
        remaining_s(5.0)
    assert remaining_s(5.0) == 5.0


def test_the_kernel_drops_what_the_device_has_not_acknowledged_when_the_lease_ends(listener):
    """Also while the process is stopped, or after its end."""
    stream = TcpStream("p1", where(listener))
    with closing(stream), permitted(Lease(1.5)):
        stream.connect(Deadline(PATIENCE_S))
        stream.send(b"x", Deadline(PATIENCE_S))
        limit_ms = stream._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert limit_ms == 1500


def test_the_rest_of_a_change_is_not_sent_once_the_lease_has_ended(listener):
    """As if the process was stopped between two commands, and goes on."""
    lease = Lease(60.0)
    lines = LineTransport(
        "p1",
        TcpStream("p1", where(listener)),
        decoder=scpi.ReplyDecoder,
        decode_error=scpi.ScpiError,
        timeout_s=PATIENCE_S,
    )
    with closing(lines), permitted(lease):
        lines.open()
        device, _ = listener.accept()
        with closing(device):
            device.settimeout(PATIENCE_S)
            device.sendall(b"1\r")
            assert lines.write(b"first\r\n", follows=True) == "1"
            lease.remaining_s = 0.0
            with pytest.raises(OutcomeUnknown, match=OVER):
                lines.write(b"second\r\n", follows=True)
            assert heard(device) == b"first\r\n"


def heard(device):
    """All bytes received by a device before its peer closed the connection."""
    received = b""
    while data := device.recv(1024):
        received += data
    return received


def test_nor_over_a_unix_socket(tmp_path):
    path = tmp_path / "device"
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen()
        stream = UnixStream("p1", f"unix:{path}")
        with closing(stream):
            stream.connect(Deadline(PATIENCE_S))
            with permitted(Lease(1.0)):
                stream.send(b"first", Deadline(PATIENCE_S))
            with permitted(Lease(0.0)), pytest.raises(ConnectionLostError, match=OVER):
                stream.send(b"second", Deadline(PATIENCE_S))
            device, _ = listener.accept()
            with closing(device):
                assert heard(device) == b"first"


def test_nor_over_a_serial_line():
    ours, theirs = pty.openpty()
    try:
        line = SerialStream("p1", os.ttyname(theirs), SerialOptions())
        with closing(line):
            line.connect(Deadline(PATIENCE_S))
            with permitted(Lease(0.0)), pytest.raises(ConnectionLostError, match=OVER):
                line.send(b"x", Deadline(PATIENCE_S))
    finally:
        os.close(ours)
        os.close(theirs)


def test_nor_over_http(listener):
    session = RestconfSession(
        "p1", where(listener), LOGIN, "restconf", tls=None, timeout_s=PATIENCE_S
    )
    with closing(session), permitted(Lease(0.0)):
        with pytest.raises(DeviceUnavailable, match=OVER):
            session.write("POST", "data")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_nor_over_grpc(tmp_path, listener):
    certify(tmp_path, "test")
    options = TlsOptions(ca_file=str(tmp_path / CA))
    session = GnmiSession("p1", where(listener), LOGIN, options, timeout_s=PATIENCE_S)
    with closing(session), permitted(Lease(0.0)), pytest.raises(DeviceUnavailable, match=OVER):
        session.open()
