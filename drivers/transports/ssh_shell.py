"""Terminals over SSH, for devices driven by their command line."""

from __future__ import annotations

import time
from typing import Any, Final

import paramiko

from drivers.transports import ssh
from drivers.transports.permit import about_to_send
from drivers.transports.ssh import SshOptions
from drivers.transports.stream import ConnectionLostError, Deadline
from hydra.errors import DeviceUnavailable
from hydra.model import Login

_RECEIVE_BYTES: Final = 65536
_READS: Final = 8
_COLUMNS: Final = 511
"""Width of the terminal: few devices' lines are long enough to be wrapped."""


class SshShell:
    """A :class:`~drivers.transports.stream.Stream`: the shell channel of an SSH connection."""

    def __init__(self, device: str, address: str, login: Login, options: SshOptions) -> None:
        self._device = device
        self._address = address
        self._login = login
        self._options = options
        self._transport: paramiko.Transport | None = None
        self._channel: Any = None

    @property
    def address(self) -> str:
        return self._address

    @property
    def connected(self) -> bool:
        return self._channel is not None

    def connect(self, deadline: Deadline) -> None:
        """Raises DeviceUnavailable, and DeviceError where host key or login are refused."""
        if self._channel is not None:
            return
        try:
            limit = time.monotonic() + deadline.remaining()
            self._transport = ssh.connect(
                self._device, self._address, self._login, self._options, limit
            )
            channel = self._transport.open_session(timeout=deadline.remaining())
            with ssh.ended_at(limit, self._transport):
                channel.get_pty(term="vt100", width=_COLUMNS)
                channel.invoke_shell()
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.close()
            raise DeviceUnavailable(
                self._device, f"{self._address} gives no terminal: {_reason(error, deadline)}"
            ) from error
        self._channel = channel

    def close(self) -> None:
        """Drop the connection; safe to repeat."""
        if self._transport is not None:
            self._transport.close()
        self._transport = self._channel = None

    def send(self, data: bytes, deadline: Deadline) -> None:
        try:
            if self._transport is not None:
                about_to_send(self._transport.sock)
            self._channel.settimeout(deadline.remaining())
            self._channel.sendall(data)
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.close()
            raise ConnectionLostError(_reason(error, deadline)) from error

    def receive(self, deadline: Deadline) -> bytes:
        try:
            self._channel.settimeout(deadline.remaining())
            data: bytes = self._channel.recv(_RECEIVE_BYTES)
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.close()
            raise ConnectionLostError(_reason(error, deadline)) from error
        if not data:
            self.close()
            raise ConnectionLostError("the device closed the connection")
        return data

    def waiting(self) -> bytes:
        found = bytearray()
        for _ in range(_READS):  # a device that never stops talking must not hold a caller
            if not self._channel.recv_ready():
                break
            found += self._channel.recv(_RECEIVE_BYTES)
        if self._channel.closed or self._channel.eof_received or not self._alive():
            self.close()
            raise ConnectionLostError("the device closed the connection")
        return bytes(found)

    def _alive(self) -> bool:
        return self._transport is not None and bool(self._transport.is_active())


def _reason(error: Exception, deadline: Deadline) -> str:
    if isinstance(error, OSError):
        return deadline.reason(error)
    return str(error) or type(error).__name__
