"""NETCONF 1.0 of switches without YANG: ``edit-config`` carries command-line text (RFC 4741)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from lxml import etree

from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.g8264_cli import HungUpError
from mininet_scenarios.emulators.g8264_switch import G8264, CommandError

_NS: Final = "urn:ietf:params:xml:ns:netconf:base:1.0"
_BASE: Final = "urn:ietf:params:netconf:base:1.0"
_CAPABILITY: Final = "urn:ietf:params:netconf:capability:"
_Element = Any
"""lxml comes without types."""
_END: Final = b"]]>]]>"
_MAX_MESSAGE_BYTES: Final = 1 << 20
_PARSER: Final = etree.XMLParser(resolve_entities=False, no_network=True)


class _RpcError(Exception):
    """An error in place of ``<ok/>``: a tag, and a message for people."""

    def __init__(self, tag: str, message: str) -> None:
        self.tag = tag
        super().__init__(message)


class Locks:
    """The session, if any, with a lock on the running configuration."""

    def __init__(self) -> None:
        self.holder: TextNetconf | None = None


class TextNetconf:
    """A session; the sessions of a switch share ``locks``. ``read`` and ``write`` carry bytes."""

    def __init__(
        self,
        switch: G8264,
        locks: Locks,
        number: int,
        read: Callable[[], Awaitable[bytes]],
        write: Callable[[bytes], None],
    ) -> None:
        self._switch = switch
        self._locks = locks
        self._number = number
        self._read = read
        self._write = write

    async def run(self) -> None:
        """Serve until the client leaves. Raises HungUpError to break the session."""
        abilities = ("writable-running:1.0", "rollback-on-error:1.0")
        names = [_BASE, *(f"{_CAPABILITY}{ability}" for ability in abilities)]
        listed = "".join(f"<capability>{name}</capability>" for name in names)
        hello = f'<hello xmlns="{_NS}"><capabilities>{listed}</capabilities>'
        self._send(f"{hello}<session-id>{self._number}</session-id></hello>")
        pending = b""
        try:
            while data := await self._read():
                *messages, pending = (pending + data).split(_END)
                if len(pending) > _MAX_MESSAGE_BYTES:
                    raise HungUpError
                for message in messages:
                    self._answer(message)
        finally:
            if self._locks.holder is self:
                self._locks.holder = None

    def _answer(self, message: bytes) -> None:
        root = etree.fromstring(message, _PARSER)
        if etree.QName(root).localname != "rpc" or not len(root):
            return  # the client's hello
        if self._switch.faults.active(FaultKind.MUTE):
            return
        operation = root[0]
        edits = etree.QName(operation).localname == "edit-config"
        if edits and self._switch.faults.strikes(FaultKind.KILL):
            raise HungUpError
        try:
            self._carry_out(operation)
            body = "<ok/>"
        except _RpcError as error:
            body = (
                f"<rpc-error><error-type>application</error-type><error-tag>{error.tag}</error-tag>"
                f"<error-severity>error</error-severity><error-message>{error}</error-message>"
                f"</rpc-error>"
            )
        if edits and self._switch.faults.strikes(FaultKind.LOSE_REPLY):
            raise HungUpError
        number = root.get("message-id")
        self._send(f'<rpc-reply xmlns="{_NS}" message-id="{number}">{body}</rpc-reply>')

    def _carry_out(self, operation: _Element) -> None:
        match etree.QName(operation).localname:
            case "lock":
                if self._locks.holder not in (None, self):
                    raise _RpcError("lock-denied", "another session holds the lock")
                self._locks.holder = self
            case "unlock":
                self._locks.holder = None
            case "edit-config":
                if self._locks.holder not in (None, self):
                    raise _RpcError("in-use", "another session holds the lock")
                self._edit(operation.findtext(".//{*}configuration-text") or "")
            case name:
                raise _RpcError("operation-not-supported", name)

    def _edit(self, text: str) -> None:
        try:
            self._switch.apply(text)
        except CommandError as error:
            raise _RpcError("operation-failed", str(error)) from error

    def _send(self, message: str) -> None:
        self._write(message.encode() + _END)
