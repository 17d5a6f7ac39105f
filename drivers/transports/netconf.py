"""NETCONF over SSH (ncclient): reads, and bulk edits that are checked and undone.

Base protocol RFC 6241. A ``<validate>`` before ``<commit>`` made some servers' commit do nothing:
none is sent, and every edit is read back.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from lxml import etree

from drivers.transports.netconf_requests import (
    NETCONF_NS,
    Element,
    NetconfRefusal,
    NetconfRequests,
    SessionLost,
    half_way_to,
)
from drivers.transports.netconf_session import Link
from drivers.transports.permit import remaining_s
from drivers.transports.ssh import SshOptions
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import Login

OPERATION: Final = f"{{{NETCONF_NS}}}operation"
"""Attribute with the effect of an edit on a node."""

_IN_PART: Final = frozenset({"rollback-failed", "partial-operation"})
"""Error tags after which some of a change may stand (RFC 6241, appendix A)."""
_LOCK_RETRY_S: Final = 0.2
_MONITORING: Final = "urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring"
"""RFC 6022."""
_MOST_LOGGED: Final = 100
"""Largest number of different errors remembered as logged."""

_log: Final = logging.getLogger(__name__)


class NetconfTransport(NetconfRequests):
    """Reads a device, and edits the configuration atomically.

    ``datastore`` is ``candidate``, ``running``, or ``auto``: the candidate if there is one.
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
        super().__init__(device, address, login, options, timeout_s=timeout_s, stream=stream)
        self._datastore = datastore
        self._logged: set[str] = set()

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
        """Apply ``config`` (a ``<config>`` element) atomically, under a lock.

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

    def _harmless(
        self, link: Link, operation: str, call: Callable[[Any], object], deadline: float
    ) -> None:
        """Make a request with no effect that outlives the session."""
        try:
            self._ask(link, operation, call, deadline)
        except SessionLost as error:
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
        except (SessionLost, ProtocolError) as error:
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
        patient_until = half_way_to(deadline)
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
            except (DeviceError, SessionLost) as error:
                _log.debug("%s: %s", self._device, error)

    def _end_session(self, holder: str, link: Link, deadline: float) -> None:
        """Raises DeviceError, SessionLost."""
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
        except (DeviceError, SessionLost):
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
