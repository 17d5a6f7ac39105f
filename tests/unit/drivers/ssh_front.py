"""An SSH server for a single connection, for drivers over SSH: users ``admin`` and ``root``."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Callable

import paramiko

from tests.waiting import PATIENCE_S

_LOOK_S = 0.1
"""Interval of checks whether a client without a channel has left."""


@functools.cache
def _key() -> paramiko.PKey:
    """The host key of all fronts: an RSA key takes long to make."""
    return paramiko.RSAKey.generate(2048)


class SshFront:
    """Gives the channel of the first logged-in client to ``serve``, in a separate thread.

    Clients with a wrong login are turned away before.
    """

    def __init__(self, serve: Callable[[paramiko.Channel], None]) -> None:
        self._serve = serve
        self.host_key = f"{_key().get_name()} {_key().get_base64()}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):  # the server has stopped
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        self._listener.close()
        assert not self._thread.is_alive()

    def _run(self) -> None:
        channel = None
        while channel is None:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            transport, gate = paramiko.Transport(client), _Gate()
            transport.add_server_key(_key())
            with contextlib.suppress(paramiko.SSHException, EOFError):
                transport.start_server(server=gate)
                while channel is None and transport.is_active():
                    channel = transport.accept(_LOOK_S)
            if channel is None:
                transport.close()
        gate.begun.wait(PATIENCE_S)
        channel.settimeout(PATIENCE_S)
        try:
            self._serve(channel)
        finally:
            transport.close()


class _Gate(paramiko.ServerInterface):
    def __init__(self) -> None:
        self.begun = threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        known = (username, password) == ("admin", "root")
        return paramiko.AUTH_SUCCESSFUL if known else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_pty_request(self, *_request: object) -> bool:
        return True

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        self.begun.set()
        return True

    def check_channel_subsystem_request(self, channel: paramiko.Channel, name: str) -> bool:
        self.begun.set()
        return name == "netconf"
