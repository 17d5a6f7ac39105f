"""SSH to a device: trusted host keys, by a file in OpenSSH's form or by the options."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import paramiko
import pytest

from drivers.transports import ssh
from drivers.transports.netconf import NetconfTransport
from drivers.transports.ssh import SshOptions
from drivers.transports.ssh_shell import SshShell
from drivers.transports.stream import Deadline
from hydra.errors import DeviceError, DeviceUnavailable
from hydra.model import Login
from tests.unit.drivers.scripted import VARIABLE
from tests.waiting import PATIENCE_S, SHORT_S, wait_until

LOGIN = Login("admin", password_env=VARIABLE)


class Gate(paramiko.ServerInterface):
    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        known = (username, password) == ("admin", "root")
        return paramiko.AUTH_SUCCESSFUL if known else paramiko.AUTH_FAILED


class Busy(Gate):
    """Opens channels, and delays its answers to one kind of channel request until released."""

    def __init__(self, kind: str, let_go: threading.Event) -> None:
        self._kind = kind
        self._let_go = let_go

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_pty_request(self, *_request: object) -> bool:
        return self._kind != "pty" or self._let_go.wait(PATIENCE_S)

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        return self._let_go.wait(PATIENCE_S)

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        return self._let_go.wait(PATIENCE_S)


class Device:
    """Accepts any number of clients, and has a host key of each of two types."""

    def __init__(self, gate: Callable[[], paramiko.ServerInterface] = Gate) -> None:
        self._gate = gate
        self.rsa, self.ecdsa = paramiko.RSAKey.generate(2048), paramiko.ECDSAKey.generate()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.name = f"[127.0.0.1]:{self._listener.getsockname()[1]}"
        self._transports: list[paramiko.Transport] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                transport = paramiko.Transport(client)
                transport.add_server_key(self.rsa)
                transport.add_server_key(self.ecdsa)
                self._transports.append(transport)
                with contextlib.suppress(
                    paramiko.SSHException, EOFError, OSError
                ):  # the client has left
                    transport.start_server(server=self._gate())

    def clients(self) -> list[paramiko.Transport]:
        return [one for one in self._transports if one.is_active()]

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        self._listener.close()
        for client in self.clients():
            client.close()
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def device():
    started = Device()
    yield started
    started.stop()


@pytest.fixture
def known_hosts(device, tmp_path, monkeypatch):
    """Connects with a file of these lines, in which KEY is the device's key, and NAME its name."""
    monkeypatch.setenv(VARIABLE, "root")

    def connect(*lines: bytes) -> None:
        text = b"\n".join(lines).replace(b"NAME", device.name.encode())
        file = tmp_path / "known_hosts"
        file.write_bytes(text.replace(b"KEY", line_of(device.rsa).encode()))
        connected(device, SshOptions(known_hosts=str(file)))

    return connect


def line_of(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.get_base64()}"


def connected(device, options: SshOptions) -> None:
    ssh.connect("r1", device.address, LOGIN, options, time.monotonic() + PATIENCE_S).close()


@pytest.mark.parametrize(
    "other",
    [
        b"@cert-authority *.lab KEY",
        b"@cert-authority * KEY",
        b"@revoked *.lab KEY",
        b"other.lab ssh-rsa AAAA",
        b"other.lab ssh-rsa AAAAB",
        b"other.lab ssh-ed25519 AAAA",
        b"other.lab ssh-rsa",
        b"other.lab",
        b"|1|xx|yy KEY",
        b"|1 KEY",
        b"# K\xe4fig",
        b"\x00\xff",
        b"",
    ],
)
def test_a_line_about_others_is_passed_over(known_hosts, other):
    known_hosts(other, b"NAME KEY")


@pytest.mark.parametrize(
    "line",
    [
        b"NAME,r1 KEY a comment",
        b"r1,NAME\tKEY",
        b"[127.0.0.?]:* KEY",
        b"NAME ssh-rsa AAAA\nNAME KEY",
        b"@revoked NAME ssh-rsa AAAA\r\nNAME KEY\r",
    ],
)
def test_a_line_about_the_device_is_read_as_openssh_does(known_hosts, line):
    known_hosts(line)


def test_a_hashed_name_is_known(known_hosts, device):
    known_hosts(paramiko.HostKeys.hash_host(device.name).encode() + b" KEY")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), "is not known"),
        ((b"[127.0.0.2]:22 KEY",), "is not known"),
        ((b"*,!NAME KEY",), "is not known"),
        ((b"@cert-authority NAME KEY",), "is not known"),
        ((b"NAME ssh-rsa AAAA",), "another host key"),
        ((b"NAME KEY", b"@revoked NAME KEY"), "has revoked"),
        ((b"@revoked * KEY", b"NAME ssh-rsa AAAA"), "has revoked"),
    ],
)
def test_a_key_that_no_line_vouches_for_is_refused(known_hosts, lines, reason):
    with pytest.raises(DeviceError, match=reason):
        known_hosts(*lines)


def test_a_file_that_is_not_there_knows_nobody(device, tmp_path):
    with pytest.raises(DeviceError, match="is not known"):
        connected(device, SshOptions(known_hosts=str(tmp_path / "none")))
    with pytest.raises(DeviceError, match=r"can't read .*: Is a directory"):
        connected(device, SshOptions(known_hosts=str(tmp_path)))


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_a_device_with_several_keys_is_asked_for_the_one_that_is_known(device, kind, monkeypatch):
    monkeypatch.setenv(VARIABLE, "root")
    connected(device, SshOptions(host_key=line_of(getattr(device, kind))))


def test_another_key_than_the_options_say_is_refused(device):
    other = line_of(paramiko.ECDSAKey.generate())
    with pytest.raises(DeviceError, match=r"another host key than options\.host_key"):
        connected(device, SshOptions(host_key=other))


def test_whatever_goes_wrong_no_connection_is_left(device, monkeypatch):
    def fails(*_arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(ssh, "_check_host_key", fails)
    with pytest.raises(ZeroDivisionError):
        connected(device, SshOptions())
    wait_until(lambda: not device.clients())


class Endless:
    """A channel with endless output."""

    closed = eof_received = False

    def __init__(self, left: float) -> None:
        self.left = left

    def recv_ready(self) -> bool:
        return self.left > 0

    def recv(self, most: int) -> bytes:
        self.left -= 1
        return b"x"

    def is_active(self) -> bool:
        return True


def test_a_device_that_never_stops_talking_holds_nobody():
    shell = SshShell("r1", "127.0.0.1:22", LOGIN, SshOptions())
    shell._transport = shell._channel = Endless(left=100)
    assert shell.waiting() == b"x" * 8
    shell._channel.left = 3
    assert shell.waiting() == b"xxx"
    assert shell.waiting() == b""


@pytest.mark.parametrize("kind", ["pty", "shell", "subsystem"])
def test_a_device_that_opens_a_channel_and_says_no_more_costs_one_time_out(kind, monkeypatch):
    monkeypatch.setenv(VARIABLE, "root")
    let_go = threading.Event()
    busy = Device(lambda: Busy(kind, let_go))
    options, failures = SshOptions(host_key=line_of(busy.rsa)), list[DeviceUnavailable]()

    def reach() -> None:
        with pytest.raises(DeviceUnavailable, match=r"no answer (in time|within 2 s)") as failed:
            if kind == "subsystem":
                NetconfTransport("p1", busy.address, LOGIN, options, timeout_s=SHORT_S).open()
            else:
                SshShell("p1", busy.address, LOGIN, options).connect(Deadline(SHORT_S))
        failures.append(failed.value)

    driver = threading.Thread(target=reach, daemon=True)
    driver.start()
    driver.join(PATIENCE_S)
    let_go.set()
    driver.join(PATIENCE_S)
    busy.stop()
    assert len(failures) == 1
