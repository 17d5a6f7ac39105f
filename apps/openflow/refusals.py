"""Why a connection does not become a switch, in words and with the remedy."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from apps.openflow.limits import ECHO_S

LOG: Final = logging.getLogger("hydra.switchboard")
_LOG_S: Final = 60.0
_LASTS_S: Final = 90.0
"""Time for which a refused connection counts: switches try again sooner."""
_MOST_SUBJECTS: Final = 100
"""Largest number of remembered switches: a neighbour may invent any number of them."""
_TLS_HANDSHAKE: Final = 0x16
VERSIONS: Final = {1: "1.0", 2: "1.1", 3: "1.2", 4: "1.3", 5: "1.4", 6: "1.5"}
"""OpenFlow's versions by their number in messages."""
_NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"}
)
_NO_CERTIFICATE: Final = frozenset(
    {"PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED"}
)


class ForeignProtocol(Exception):
    """A connection whose first byte begins no OpenFlow message."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.first = first


def of_versions(versions: Collection[int]) -> str:
    """Words about a switch that speaks ``versions``, and not 1.3."""
    spoken = ", ".join(
        VERSIONS.get(version, f"version {version:#x}") for version in sorted(versions)
    )
    return (
        f"the switch speaks OpenFlow {spoken}, and not 1.3: set 1.3 on the bridge "
        "(`ovs-vsctl set bridge BRIDGE protocols=OpenFlow13`)"
    )


def of_mismatch(error: BaseException) -> str | None:
    """Words about an error caused by a setting of switch or controller; None for other errors."""
    if isinstance(error, ForeignProtocol) and error.first == _TLS_HANDSHAKE:
        return (
            "the switch speaks TLS, and this port is for OpenFlow without TLS: set the switch's "
            "controller to tcp: instead of ssl:, or give the controller certificates "
            "(controller.openflow_certificate)"
        )
    if isinstance(error, ssl.SSLError):
        if error.reason in _NO_TLS:
            return (
                "the switch speaks no TLS, and this port is for OpenFlow with TLS: set the "
                "switch's controller to ssl: instead of tcp:, and give the switch a certificate "
                "(`hydra ca issue`, `ovs-vsctl set-ssl`)"
            )
        if error.reason in _NO_CERTIFICATE or "ALERT" in (error.reason or ""):
            return (
                f"the certificates of switch and controller do not fit ({error.reason}): give "
                "both certificates of the same authority (`hydra ca issue`, `ovs-vsctl set-ssl`)"
            )
    return None


def refused_second(newcomer: str, older: str) -> str:
    """Words about a refused second connection for a switch, by the addresses of both."""
    return f"refused a second connection, from {newcomer}: the connection from {older} answers"


def replaced_by_second(newcomer: str, older: str) -> str:
    """Words about a silent connection, replaced by a newcomer."""
    return f"no answer from {older} within {ECHO_S:g} s: a new connection, from {newcomer}, is used"


class Refusal(NamedTuple):
    """A switch kept out by a setting of the switch or of the controller."""

    name: str
    """Name of the switch, or the address if nothing else is known."""
    why: str
    """A sentence, with the remedy."""


class Refusals:
    """Switches kept out now; logged one by one, each once a minute. For any thread."""

    def __init__(
        self,
        name_of: Callable[[int], str | None] = lambda _datapath: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``name_of`` gives the name of a datapath id of the fabric; None for other ids."""
        self._name_of = name_of
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def note(self, datapath: int | None, address: str, why: str) -> None:
        """Note a refused connection; the port in ``address`` differs each time."""
        host = address.rpartition(":")[0]
        name = None if datapath is None else self._name_of(datapath)
        subject = host if name is None else name
        now_s = self._clock()
        with self._lock:
            self._seen = {peer: seen for peer, seen in self._seen.items() if seen.until_s > now_s}
            seen = self._seen.get(subject)
            if seen is None and len(self._seen) >= _MOST_SUBJECTS:
                return
            is_news = seen is None or seen.why != why or now_s >= seen.log_s
            log_s = now_s + _LOG_S if seen is None or is_news else seen.log_s
            self._seen[subject] = _Seen(why, until_s=now_s + _LASTS_S, log_s=log_s)
        if is_news:
            where = host if datapath is None else f"{host}, datapath id {datapath:#018x}"
            LOG.warning("%s (%s) is not let in as a switch: %s", subject, where, why)

    def forget(self, datapath: int, address: str) -> None:
        """Note the admission of a switch."""
        with self._lock:
            self._seen.pop(self._name_of(datapath) or "", None)
            self._seen.pop(address.rpartition(":")[0], None)

    def now(self) -> list[Refusal]:
        """Switches with a recent refused connection, by name."""
        now_s = self._clock()
        with self._lock:
            return [
                Refusal(subject, seen.why)
                for subject, seen in sorted(self._seen.items())
                if seen.until_s > now_s
            ]


class _Seen(NamedTuple):
    why: str
    until_s: float
    log_s: float
    """Time of the next log line."""
