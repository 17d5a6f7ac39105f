"""Admission of connections: counted in all and by address, with reserved descriptors."""

from __future__ import annotations

import errno
import logging
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from hydra.errors import HydraError

OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
RETRY_S: Final = 1.0
"""Pause of an accept loop when the system has no resources for another connection."""
_ANEW_S: Final = 60.0
_NETWORK_BITS: Final = 64
"""Bits of an IPv6 address that distinguish peers: the owner of a network may use all addresses in
the network.
"""


class Sparing(logging.Filter):
    """Lets each message (before its arguments are filled in) through once a minute.

    Records for which ``concerns`` is false always pass.
    """

    def __init__(
        self,
        concerns: Callable[[logging.LogRecord], bool] = lambda _: True,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._concerns = concerns
        self._clock_s = clock_s
        self._next_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._concerns(record):
            return True
        now_s = self._clock_s()
        key = str(record.msg)
        if now_s < self._next_s.get(key, now_s):
            return False
        self._next_s = {text: at_s for text, at_s in self._next_s.items() if at_s > now_s}
        self._next_s[key] = now_s + _ANEW_S
        return True


LOG = logging.getLogger("hydra.doors")
LOG.addFilter(Sparing())


class Door:
    """Counts open connections; for any thread. ``key``: the configuration's key of ``most``."""

    def __init__(self, name: str, most: int, most_per_address: int, key: str) -> None:
        self._name = name
        self._most = most
        self._most_per_address = most_per_address
        self._key = key
        self._lock = threading.Lock()
        self._inside: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """True if a connection from ``address`` is admitted, until :meth:`leave`."""
        place = _place(address)
        with self._lock:
            total, here = self._inside.total(), self._inside[place]
            if total < self._most and here < self._most_per_address:
                self._inside[place] += 1
                return True
        if here >= self._most_per_address:
            LOG.warning(
                f"{self._name}: no more than %s connections from %s are let in (%s)",
                self._most_per_address,
                place,
                self._key,
            )
        else:
            LOG.warning(f"{self._name}: no more than %s connections (%s)", self._most, self._key)
        return False

    def leave(self, address: str) -> None:
        place = _place(address)
        with self._lock:
            self._inside[place] -= 1
            if not self._inside[place]:
                del self._inside[place]

    def failed(self, error: OSError) -> None:
        """Log a connection that could not be accepted."""
        LOG.error(f"{self._name}: a connection can't be accepted (%s)", error.strerror)


def _place(address: str) -> str:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ip_network((found, _NETWORK_BITS), strict=False))
    return str(found)


def reserve_descriptors(needed: int, subject: str) -> None:
    """Make sure that this process may open ``needed`` files and sockets.

    Raises HydraError, with the purpose ``subject``, if the hard limit forbids so many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise HydraError(
            f"{needed} descriptors are needed ({subject}), and this process may have {hard}: raise "
            "LimitNOFILE in the systemd unit (ulimit -Hn in a shell), or lower "
            "controller.connections"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
