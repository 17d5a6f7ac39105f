"""A NETCONF session on an SSH connection, and ncclient's requests on the session."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections import deque
from dataclasses import dataclass
from queue import Queue
from typing import Any, Final

import paramiko
from ncclient.devices.default import DefaultDeviceHandler
from ncclient.transport import SSHSession

from drivers.transports import ssh

CAPABILITY: Final = "urn:ietf:params:netconf:capability:"


_MAX_NOTIFICATIONS: Final = 1000


class _Recent(Queue[Any]):
    """A queue that keeps the latest notifications if nobody fetches them."""

    def _init(self, maxsize: int) -> None:
        del maxsize
        self.queue: deque[Any] = deque(maxlen=_MAX_NOTIFICATIONS)


class Session(SSHSession):  # type: ignore[misc]  # ncclient is untyped
    """ncclient's session on an established connection, woken when there is work to do."""

    def __init__(self, handler: DefaultDeviceHandler, transport: paramiko.Transport) -> None:
        super().__init__(handler)
        self._transport = transport
        self._notification_q = _Recent()
        self._bell, self._ear = socket.socketpair()
        self._ear.setblocking(False)

    def start_session(self, deadline: float, timeout_s: float) -> None:
        """Ask for the NETCONF subsystem and exchange hellos; ``timeout_s`` limits each sending."""
        self._channel = self._transport.open_session(timeout=ssh.remaining(deadline))
        self._channel.settimeout(timeout_s)
        with ssh.ended_at(deadline, self._transport):
            self._channel.invoke_subsystem("netconf")
        self._connected = True
        self._post_connect(ssh.remaining(deadline))

    def send(self, message: str) -> None:
        super().send(message)
        with contextlib.suppress(OSError):  # closed meanwhile: the reply will be missing
            self._bell.send(b"!")

    def close(self) -> None:
        super().close()
        self._bell.close()
        self._ear.close()

    def _transport_register(self, selector: selectors.BaseSelector, event: int) -> None:
        super()._transport_register(selector, event)
        selector.register(self._ear, selectors.EVENT_READ)
        select = selector.select

        def select_from_device(timeout: float | None = None) -> list[Any]:
            ready = select(timeout)
            if any(key.fileobj is self._ear for key, _ in ready):
                self._ear.recv(4096)
            return [item for item in ready if item[0].fileobj is not self._ear]

        # ncclient makes the selector itself, and takes any ready object for the device.
        selector.select = select_from_device  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class Link:
    """A session, with ncclient's requests on it."""

    session: Session
    manager: Any

    @property
    def connected(self) -> bool:
        return bool(self.session.connected)

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset(self.manager.server_capabilities)

    def has(self, capability: str) -> bool:
        """True if the device announced this capability of RFC 6241, in any version."""
        prefix = f"{CAPABILITY}{capability}:"
        return any(uri.startswith(prefix) for uri in self.manager.server_capabilities)

    def close(self) -> None:
        self.session.close()
