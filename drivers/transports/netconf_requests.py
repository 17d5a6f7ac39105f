"""NETCONF over SSH (ncclient): sessions to a device, a subscription, and requests with a deadline.

Base protocol RFC 6241, transport RFC 6242, notifications RFC 5277. Traps that shape this module:

- ``RPCError.type`` of ncclient raises if a reply holds several errors, and its raise modes look at
  the first error only: here all errors are read from replies.
- ncclient looks for output ten times a second. Here its session is woken at once, which takes up
  to 0.1 s off every request.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import paramiko
from lxml import etree
from ncclient import NCClientError
from ncclient.devices.default import DefaultDeviceHandler
from ncclient.manager import Manager
from ncclient.operations import RaiseMode, TimeoutExpiredError
from ncclient.transport.errors import SessionCloseError

from drivers.transports import ssh
from drivers.transports.netconf_session import Link, Session
from drivers.transports.permit import about_to_send
from drivers.transports.ssh import SshOptions
from hydra.errors import DeviceError, DeviceUnavailable, ProtocolError
from hydra.model import Login

Untyped = Any
"""Objects of ncclient, a library without types."""
Element = Any
"""An ``lxml`` element; lxml comes without types."""

NETCONF_NS: Final = "urn:ietf:params:xml:ns:netconf:base:1.0"
_SESSION_ID: Final = re.compile(r"<(?:\w+:)?session-id[^>]*>\s*([1-9][0-9]*)\s*<")
_SHOWN: Final = 3
"""Largest number of a reply's errors in a message."""

_log: Final = logging.getLogger(__name__)
# ncclient logs every message whole, and logs errors with tracebacks, though the caller gets them.
logging.getLogger("ncclient").setLevel(logging.CRITICAL)


class NetconfRefusal(DeviceError):
    """The device answered with ``rpc-error``."""

    def __init__(
        self, device: str, operation: str, errors: Sequence[Any], data: Element | None = None
    ) -> None:
        self.tags = tuple(str(error.tag) for error in errors)
        """Error tags of RFC 6241 appendix A, in order."""
        self.holders = frozenset(
            found[1]
            for error in errors
            if error.tag == "lock-denied"
            and (found := _SESSION_ID.search(str(getattr(error, "info", None))))
        )
        """Ids of sessions that hold the lock asked for."""
        self.paths = tuple(error.path for error in errors)
        """Path of each error in the tree, or None."""
        self.data = data
        """``<data>`` beside the errors, sent by some devices."""
        reasons = "; ".join(_shown(error) for error in errors[:_SHOWN])
        more = f"; and {len(errors) - _SHOWN} more errors" if len(errors) > _SHOWN else ""
        self.reason = f"{operation} is refused: {reasons}{more}"
        super().__init__(device, self.reason)


class SessionLost(Exception):
    """The session broke, or did not answer in time."""


class NetconfRequests:
    """Sessions, opened on first use and again after every failure; used by one thread at a time.

    With ``stream``, the session subscribes to that event stream. A device without the
    ``:interleave`` capability takes no requests on a session with notifications: then the
    subscription has a second session.

    ``timeout_s`` covers one call with all its requests; an edit with its reading back; and all
    calls within :meth:`bounded` together.
    """

    def __init__(
        self,
        device: str,
        address: str,
        login: Login,
        options: SshOptions,
        *,
        timeout_s: float,
        stream: str | None = None,
    ) -> None:
        self._device = device
        self._address = address
        self._login = login
        self._options = options
        self._timeout_s = timeout_s
        self._stream = stream
        self._requests: Link | None = None
        self._events: Link | None = None
        self._until: float | None = None

    @property
    def connected(self) -> bool:
        return self._requests is not None and self._requests.connected

    @property
    def capabilities(self) -> frozenset[str]:
        """URIs that the device announced when the session began; empty without a session."""
        if self._requests is None or not self._requests.connected:
            return frozenset()
        return self._requests.capabilities

    def open(self) -> None:
        """Connect and subscribe, unless done already. Raises DeviceUnavailable or DeviceError."""
        self._ensure(self._deadline())

    def close(self) -> None:
        """Drop the sessions, and thereby free their locks; safe to repeat."""
        for link in (self._requests, self._events):
            if link is not None:
                link.close()
        self._requests = self._events = None

    @contextmanager
    def bounded(self) -> Iterator[float]:
        """Give all calls in this block the same deadline, which is yielded (monotonic clock).

        The deadline covers an edit, and the reads before and after.
        """
        before, deadline = self._until, self._deadline()
        self._until = deadline
        try:
            yield deadline
        finally:
            self._until = before

    def notifications(self) -> list[Element]:
        """Elements that arrived inside ``<notification>`` since the last call; never waits."""
        found: list[Element] = []
        while self._events is not None:
            notification = self._events.manager.take_notification(block=False)
            if notification is None:
                break
            found += notification.notification_ele
        return found

    # --- sessions -------------------------------------------------------------------------------

    def _ensure(self, deadline: float) -> Link:
        """The session for requests, with the subscription in place.

        A subscription without an answer in half the time is tried on another session.
        """
        try:
            return self._subscribed(deadline, half_way_to(deadline))
        except SessionLost:
            pass
        try:
            return self._subscribed(deadline, deadline)
        except SessionLost as error:
            raise self._unavailable(error) from error

    def _subscribed(self, deadline: float, subscription_deadline: float) -> Link:
        """Raises SessionLost where the subscription is not answered."""
        link = self._requests
        if link is None or not link.connected:
            link = self._requests = self._connect(deadline)
        if self._stream is not None and (self._events is None or not self._events.connected):
            carrier = link if link.has("interleave") else self._connect(deadline)
            self._events = self._subscribe(carrier, self._stream, subscription_deadline)
        return link

    def _connect(self, deadline: float) -> Link:
        transport = ssh.connect(self._device, self._address, self._login, self._options, deadline)
        handler = DefaultDeviceHandler()
        session = Session(handler, transport)
        try:
            session.start_session(deadline, self._timeout_s)
        except (NCClientError, paramiko.SSHException, OSError, EOFError) as error:
            session.close()
            raise DeviceUnavailable(
                self._device, f"{self._address} starts no NETCONF session: {_reason(error)}"
            ) from error
        return Link(session, Manager(session, handler, raise_mode=RaiseMode.NONE))

    def _subscribe(self, link: Link, stream: str, deadline: float) -> Link:
        try:
            self._ask(
                link,
                f"subscription to stream {stream}",
                lambda m: m.create_subscription(stream_name=stream),
                deadline,
            )
        except DeviceError:
            link.close()
            raise
        return link

    def _ask(
        self, link: Link, operation: str, call: Callable[[Any], Any], deadline: float
    ) -> Untyped:
        """The reply to a request. Raises SessionLost, NetconfRefusal or ProtocolError."""
        try:
            about_to_send(link.session.transport.sock)
            link.manager.timeout = ssh.remaining(deadline)
            reply = call(link.manager)
            errors = [error for error in reply.errors if error.severity != "warning"]
        except (TimeoutExpiredError, TimeoutError) as error:
            link.close()
            raise SessionLost(f"{operation}: no answer within {self._timeout_s:g} s") from error
        except (NCClientError, paramiko.SSHException, OSError, EOFError) as error:
            link.close()
            raise SessionLost(f"{operation}: {_reason(error)}") from error
        except etree.XMLSyntaxError as error:
            link.close()
            raise ProtocolError(
                self._device, f"{operation}: the reply is no XML: {error}"
            ) from error
        if errors:
            data = etree.fromstring(reply.xml.encode()).find(f"{{{NETCONF_NS}}}data")
            raise NetconfRefusal(self._device, operation, errors, data)
        return reply

    def _begin(
        self, operation: str, call: Callable[[Any], Any], deadline: float
    ) -> tuple[Link, Untyped]:
        """Make the first request of a call; return the session that answered, and the reply.

        The request changes nothing that outlives its session. So if the session has ended unnoticed
        since the last call, or does not answer in half the time, another session is asked.
        """
        link = self._ensure(deadline)
        try:
            return link, self._ask(link, operation, call, half_way_to(deadline))
        except SessionLost as error:
            if time.monotonic() >= deadline:
                raise self._unavailable(error) from error
            lost = error
        try:
            link = self._ensure(deadline)
            return link, self._ask(link, operation, call, deadline)
        except (SessionLost, DeviceUnavailable) as error:
            raise self._unavailable(lost) from error

    def _unavailable(self, error: Exception) -> DeviceUnavailable:
        return DeviceUnavailable(self._device, f"{error} ({self._address})")

    def _deadline(self) -> float:
        if self._until is not None:
            return self._until
        return time.monotonic() + self._timeout_s


def half_way_to(deadline: float) -> float:
    return (time.monotonic() + deadline) / 2


def _shown(error: Untyped) -> str:
    message = " ".join((error.message or "").split())
    path = f" at {error.path.strip()}" if error.path else ""
    reason = f" ({error.app_tag})" if error.app_tag else ""
    text = f"{error.tag}{reason}{': ' if message else ''}{message}{path}"
    return text if len(text) <= 200 else f"{text[:197]}..."


def _reason(error: Exception) -> str:
    if isinstance(error, SessionCloseError | EOFError):
        return "the device closed the session"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
