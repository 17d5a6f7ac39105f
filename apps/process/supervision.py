"""Reports to systemd that the controller is ready and alive; does nothing without systemd.

The protocol is that of sd_notify(3): datagrams to the socket named by ``NOTIFY_SOCKET``.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Final

LOG = logging.getLogger("hydra.supervision")
_SEND_S: Final = 1.0
_PER_INTERVAL: Final = 3
"""Signs of life per watchdog interval; sd_watchdog_enabled(3) asks for at least two."""


def notify(message: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send ``message`` to the service manager; False if there is none, or none listens."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # the abstract name space
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(_SEND_S)  # the socket's queue may be full and unread
            sender.sendto(message.encode(), address)
    except OSError as error:
        LOG.warning("the service manager at NOTIFY_SOCKET does not listen: %s", error)
        return False
    return True


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Seconds between signs of life wanted by the service manager; None without a watchdog."""
    micros = environment.get("WATCHDOG_USEC", "")
    process = environment.get("WATCHDOG_PID", str(os.getpid()))
    if not micros.isdecimal() or int(micros) == 0 or process != str(os.getpid()):
        return None
    return int(micros) / 1e6


class Heart:
    """Beats while ``alive`` is true and the OpenFlow hub runs posted functions.

    The conductor's progress does not count: a device, or a person at a patch panel, may keep the
    conductor waiting for longer than any watchdog should wait, and a restart would not help.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        alive: Callable[[], bool],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._post = post
        self._alive = alive
        self._environment = environment
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heart", daemon=True)

    def start(self) -> None:
        notify("READY=1", self._environment)
        if watchdog_s(self._environment) is not None:
            self._thread.start()

    def stop(self) -> None:
        notify("STOPPING=1", self._environment)
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        interval_s = (watchdog_s(self._environment) or 0.0) / _PER_INTERVAL
        while not self._stop.is_set():
            answered = threading.Event()
            self._post(answered.set)
            if answered.wait(interval_s) and self._alive():
                notify("WATCHDOG=1", self._environment)
            else:
                LOG.error("the controller's own check got no answer: no sign of life for systemd")
            self._stop.wait(interval_s)
