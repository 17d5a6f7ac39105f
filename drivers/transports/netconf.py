"""NETCONF over SSH (ncclient): a session to a device, bulk edits that are checked and undone.

Base protocol RFC 6241, transport RFC 6242, notifications RFC 5277. Traps that shape this module:

- ``RPCError.type`` of ncclient raises if a reply holds several errors, and its raise modes look at
  the first error only: here all errors are read from replies.
- A ``<validate>`` before ``<commit>`` made some servers' commit do nothing: none is sent, and
  every edit is read back.
- ncclient looks for output ten times a second. Here its session is woken at once, which takes up
  to 0.1 s off every request.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from drivers.transports.permit import about_to_send, remaining_s
from drivers.transports.ssh import SshOptions
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import Login

Untyped = Any
"""Objects of ncclient, a library without types."""
Element = Any
"""An ``lxml`` element; lxml comes without types."""

NETCONF_NS: Final = "urn:ietf:params:xml:ns:netconf:base:1.0"
OPERATION: Final = f"{{{NETCONF_NS}}}operation"
"""Attribute with the effect of an edit on a node."""

_IN_PART: Final = frozenset({"rollback-failed", "partial-operation"})
"""Error tags after which some of a change may stand (RFC 6241, appendix A)."""
_LOCK_RETRY_S: Final = 0.2
_MONITORING: Final = "urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring"
"""RFC 6022."""
_SESSION_ID: Final = re.compile(r"<(?:\w+:)?session-id[^>]*>\s*([1-9][0-9]*)\s*<")
_MOST_LOGGED: Final = 100
"""Largest number of different errors remembered as logged."""
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


class _LostError(Exception):
    """The session broke, or did not answer in time."""


class NetconfTransport:
    """A session, opened on first use and again after every failure; used by one thread at a time.

    With ``stream``, the session subscribes to that event stream. A device without the
    ``:interleave`` capability takes no requests on a session with notifications: then the
    subscription has a second session.

    ``datastore`` is ``candidate``, ``running``, or ``auto``: the candidate if there is one.
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
        datastore: str = "auto",
    ) -> None:
        self._device = device
        self._address = address
        self._login = login
        self._options = options
        self._timeout_s = timeout_s
        self._stream = stream
        self._datastore = datastore
        self._requests: Link | None = None
        self._events: Link | None = None
        self._logged: set[str] = set()
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

    def get(self, *subtrees: Element, whole: bool = False) -> Element:
        """``<data>`` with configuration and state below the given subtree filters.

        Errors beside data are logged, not raised, if each subtree has data or all errors are about
        other parts of the tree. With ``whole``, since a part must not be taken for all, an error
        that names a node within a subtree is raised even beside data. Raises DeviceUnavailable,
        DeviceError or ProtocolError.
        """
        deadline = self._deadline()
        try:
            _, reply = self._begin("get", lambda m: m.get(filter=list(subtrees)), deadline)
        except NetconfRefusal as refusal:
            data = refusal.data
            if data is None or any(_lacks(refusal, data, subtree, whole) for subtree in subtrees):
                raise
            if refusal.reason not in self._logged:
                _log.warning("%s: data came with errors: %s", self._device, refusal.reason)
                self._logged = (
                    {*self._logged, refusal.reason} if len(self._logged) < _MOST_LOGGED else set()
                )
            return data
        if reply.data_ele is None:
            raise ProtocolError(self._device, "the reply to get holds no data")
        return reply.data_ele

    def edit(self, config: Element, verify: Callable[[], None]) -> None:
        """Apply ``config`` (a ``<config>`` element) whole or not at all, under a lock.

        ``verify`` reads back and raises DeviceError if the device did not do as asked; with the
        ``:confirmed-commit`` capability the device then restores its previous configuration. Raises
        DeviceUnavailable or DeviceError when nothing was changed, OutcomeUnknown when the outcome
        is not known.
        """
        with self.bounded() as deadline:
            target = self._target(self._ensure(deadline))
            with self._locked(target, deadline) as link:
                if target == "candidate":
                    self._edit_candidate(link, config, verify, deadline)
                else:
                    self._edit_running(link, {"config": config}, deadline)
                    self._verify(verify)

    def edit_text(self, text: str, verify: Callable[[float], None]) -> None:
        """Apply CLI text to the running configuration in one ``edit-config`` (``<config-text>``).

        ``verify`` gets the seconds left, since the check may read over another session. Raises as
        :meth:`edit`.
        """
        deadline = self._deadline()
        with self._locked("running", deadline) as link:
            self._edit_running(link, {"config": text, "format": "text"}, deadline)
            self._verify(lambda: verify(max(deadline - time.monotonic(), 0.0)))

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
            return self._subscribed(deadline, _half_way_to(deadline))
        except _LostError:
            pass
        try:
            return self._subscribed(deadline, deadline)
        except _LostError as error:
            raise self._unavailable(error) from error

    def _subscribed(self, deadline: float, subscription_deadline: float) -> Link:
        """Raises _LostError where the subscription is not answered."""
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
        """The reply to a request. Raises _LostError, NetconfRefusal or ProtocolError."""
        try:
            about_to_send(link.session.transport.sock)
            link.manager.timeout = ssh.remaining(deadline)
            reply = call(link.manager)
            errors = [error for error in reply.errors if error.severity != "warning"]
        except (TimeoutExpiredError, TimeoutError) as error:
            link.close()
            raise _LostError(f"{operation}: no answer within {self._timeout_s:g} s") from error
        except (NCClientError, paramiko.SSHException, OSError, EOFError) as error:
            link.close()
            raise _LostError(f"{operation}: {_reason(error)}") from error
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
            return link, self._ask(link, operation, call, _half_way_to(deadline))
        except _LostError as error:
            if time.monotonic() >= deadline:
                raise self._unavailable(error) from error
            lost = error
        try:
            link = self._ensure(deadline)
            return link, self._ask(link, operation, call, deadline)
        except (_LostError, DeviceUnavailable) as error:
            raise self._unavailable(lost) from error

    def _harmless(
        self, link: Link, operation: str, call: Callable[[Any], object], deadline: float
    ) -> None:
        """Make a request with no effect that outlives the session."""
        try:
            self._ask(link, operation, call, deadline)
        except _LostError as error:
            raise self._unavailable(error) from error

    def _write(
        self, link: Link, operation: str, call: Callable[[Any], object], deadline: float
    ) -> None:
        try:
            self._ask(link, operation, call, deadline)
        except NetconfRefusal as refusal:
            if _IN_PART.isdisjoint(refusal.tags):
                raise
            raise OutcomeUnknown(
                self._device, f"part of a change may stand: {refusal.reason}; read the device back"
            ) from refusal
        except (_LostError, ProtocolError) as error:
            raise OutcomeUnknown(
                self._device,
                f"a change was sent and the reply lost: {error} ({self._address}); "
                "read the device back",
            ) from error

    # --- edits ----------------------------------------------------------------------------------

    def _target(self, link: Link) -> str:
        if self._datastore != "running":
            if link.has("candidate"):
                return "candidate"
            if self._datastore == "candidate":
                raise DeviceError(
                    self._device,
                    "the device has no candidate datastore: set options.datastore to running",
                )
        if not link.has("writable-running"):
            raise DeviceError(
                self._device,
                "the running datastore can't be written: set options.datastore to candidate",
            )
        return "running"

    @contextmanager
    def _locked(self, target: str, deadline: float) -> Iterator[Link]:
        """Hold the lock of a datastore; wait until the deadline if another session has the lock.

        After half of the time, a leader of several controllers ends lock-holding sessions of its
        own user: such a session belongs to an earlier leader, which may be paused.
        """
        patient_until = _half_way_to(deadline)
        while True:
            try:
                link, _ = self._begin(f"lock of {target}", lambda m: m.lock(target), deadline)
            except NetconfRefusal as refusal:
                if "lock-denied" not in refusal.tags or time.monotonic() + _LOCK_RETRY_S > deadline:
                    raise
                if time.monotonic() > patient_until and math.isfinite(remaining_s()):
                    self._end_sessions(refusal.holders, deadline)
                time.sleep(_LOCK_RETRY_S)
            else:
                break
        try:
            yield link
        finally:
            self._tidy(link, "unlock", lambda m: m.unlock(target), deadline)

    def _end_sessions(self, ids: frozenset[str], deadline: float) -> None:
        """End the given sessions, as far as they are known to belong to this session's user."""
        for holder in sorted(ids):
            try:
                self._end_session(holder, self._ensure(deadline), deadline)
            except (DeviceError, _LostError) as error:
                _log.debug("%s: %s", self._device, error)

    def _end_session(self, holder: str, link: Link, deadline: float) -> None:
        """Raises DeviceError, _LostError."""
        if self._user_of(holder, link, deadline) != self._login.username:
            return
        _log.warning(
            "%s: session %s holds the lock, as user %s: ended, since it is of a controller that "
            "led before",
            self._device,
            holder,
            self._login.username,
        )
        self._ask(link, "kill-session", lambda m: m.kill_session(holder), deadline)

    def _user_of(self, holder: str, link: Link, deadline: float) -> str | None:
        """User of a session by the device's list (RFC 6022); None: the list does not say."""
        names = (f"{{{_MONITORING}}}{name}" for name in ("netconf-state", "sessions", "session"))
        tree = etree.Element(next(names))
        session = tree
        for name in names:
            session = etree.SubElement(session, name)
        etree.SubElement(session, f"{{{_MONITORING}}}session-id").text = holder
        data = self._ask(link, "get", lambda m: m.get(filter=[tree]), deadline).data_ele
        for entry in () if data is None else data.iterfind(f".//{{{_MONITORING}}}session"):
            session_id = entry.findtext(f"{{{_MONITORING}}}session-id", "").strip()
            if session_id == holder:
                return str(entry.findtext(f"{{{_MONITORING}}}username", "")).strip()
        return None

    def _tidy(
        self, link: Link, operation: str, call: Callable[[Any], object], deadline: float
    ) -> None:
        """Make a request whose failure is harmless: the end of the session has the same effect."""
        if not link.connected:
            return
        try:
            self._ask(link, operation, call, deadline)
        except (DeviceError, _LostError):
            link.close()

    def _edit_candidate(
        self, link: Link, config: Element, verify: Callable[[], None], deadline: float
    ) -> None:
        confirmed = link.has("confirmed-commit")
        # Longer than this call: the device must not undo an edit that is still being read.
        limit_s = str(math.ceil(self._timeout_s) + 1)
        first = {"confirmed": True, "timeout": limit_s} if confirmed else {}
        try:
            self._harmless(
                link,
                "edit-config",
                lambda m: m.edit_config(target="candidate", config=config),
                deadline,
            )
            self._write(link, "commit", lambda m: m.commit(**first), deadline)
        except NetconfRefusal:
            self._tidy(link, "discard-changes", lambda m: m.discard_changes(), deadline)
            raise
        if not confirmed:
            self._verify(verify)
            return
        try:
            self._verify(verify)
            if self._requests is not link:
                raise OutcomeUnknown(
                    self._device,
                    "the session broke before a change was confirmed, so the device undoes the "
                    "change; read the device back",
                )
            self._write(link, "confirming commit", lambda m: m.commit(), deadline)
        except OutcomeUnknown:
            raise
        except DeviceError:
            # After a cancel-commit, the device undoes the edit at once; after the end of the
            # session, as soon as the device notices the end (RFC 6241 sections 8.4.4.1 and 8.4.1).
            self._tidy(link, "cancel-commit", lambda m: m.cancel_commit(), deadline)
            link.close()
            raise

    def _edit_running(self, link: Link, config: Mapping[str, object], deadline: float) -> None:
        option = "rollback-on-error" if link.has("rollback-on-error") else None
        try:
            self._write(
                link,
                "edit-config",
                lambda m: m.edit_config(target="running", error_option=option, **config),
                deadline,
            )
        except NetconfRefusal as refusal:
            if option is None:
                raise OutcomeUnknown(
                    self._device,
                    f"{refusal.reason}; the device can't roll back, so part of the change may "
                    "stand: read the device back",
                ) from refusal
            raise

    def _verify(self, verify: Callable[[], None]) -> None:
        try:
            verify()
        except (DeviceUnavailable, ProtocolError, NetconfRefusal) as error:
            raise OutcomeUnknown(
                self._device, f"a change was made and could not be read back: {error}"
            ) from error

    def _unavailable(self, error: Exception) -> DeviceUnavailable:
        return DeviceUnavailable(self._device, f"{error} ({self._address})")

    def _deadline(self) -> float:
        if self._until is not None:
            return self._until
        return time.monotonic() + self._timeout_s


def _half_way_to(deadline: float) -> float:
    return (time.monotonic() + deadline) / 2


def _lacks(refusal: NetconfRefusal, data: Element, subtree: Element, whole: bool) -> bool:
    """True if an error may mean that a part of the subtree is missing."""
    if data.find(subtree.tag) is None:
        return _concerns(refusal, subtree)
    return whole and _names(refusal, subtree)


def _concerns(refusal: NetconfRefusal, subtree: Element) -> bool:
    """True unless all errors are about other parts of the tree."""
    return not all(refusal.paths) or _names(refusal, subtree)


def _names(refusal: NetconfRefusal, subtree: Element) -> bool:
    """True if an error's path leads into the given part of the tree."""
    name = str(etree.QName(subtree).localname)
    return any(name in path for path in refusal.paths if path)


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
