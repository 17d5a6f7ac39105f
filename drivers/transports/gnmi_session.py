"""One gRPC channel to a gNMI server: Capabilities, Get and Set, with TLS, user and password.

Packages for gRPC and its messages are the extra ``sonic``; they are imported when a device is
connected, so that installations without such a device do not need them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias, TypeVar

from drivers.codecs.yang_json import MAX_JSON_BYTES
from drivers.credentials import secret
from drivers.transports.permit import PermitOverError, remaining_s
from drivers.transports.tls import NOT_TRUSTED, TlsOptions, all_authorities
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, Problem
from hydra.model import Login, Rack

MISSING: Final = (
    "gNMI wants the packages of the extra sonic: pip install 'hydra-hybrid-network[sonic]'"
)
LOST: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL"})
"""Status codes of a call that may have failed on its way back. For calls that change nothing, any
other code counts as a refusal by the server.
"""
_OWN: Final = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "DATA_LOSS",
    }
)
"""Status codes that no library of gRPC makes by itself: the server's logic has refused.

The client's library makes all other codes, from the end of a stream, a gateway's HTTP status, or an
answer that is too large, even if the server has carried out the request (gRPC, "Status codes and
their use", and "HTTP to gRPC Status Code Mapping"). An error does not name its maker.
"""
_NEEDS: Final = ("grpc", "pygnmi")
_MESSAGES: Final = "pygnmi.spec.v080.gnmi_pb2"
_SENDABLE: Final = re.compile(r"[\x20-\x7e]*")
_STUBS: Final = "pygnmi.spec.v080.gnmi_pb2_grpc"

_T = TypeVar("_T")
Message: TypeAlias = Any
"""A message of gNMI, or the messages' module: without types."""


def installed() -> bool:
    """True if the packages of the extra are there."""
    return all(find_spec(name) is not None for name in _NEEDS)


def tor_problems(rack: Rack) -> Iterator[Problem]:
    """Problems of the address, login and options of a rack's ToR, and missing packages."""
    yield from endpoint_problems(rack.tor.address)
    yield from login_problems(rack.tor.login)
    yield from option_problems(TlsOptions, rack.tor.options)
    if not installed():
        yield Problem("driver", MISSING)


class GnmiRefusal(DeviceError):
    """The device refuses the read."""


class GnmiSession:
    """A channel; the next Get reopens a channel closed by the device, for instance after a silence.

    ``timeout_s`` covers one call. Not for several threads at once.
    """

    def __init__(
        self, device: str, address: str, login: Login, options: TlsOptions, *, timeout_s: float
    ) -> None:
        self._device = device
        self._address = address
        self._login = login
        self._options = options
        self._timeout_s = timeout_s
        self._channel: Any = None
        self._stub: Any = None
        self._metadata: tuple[tuple[str, str], ...] = ()
        self.capabilities: Message = None
        """The server's answer about itself; None before the first connection."""

    def open(self) -> None:
        """Connect and log in; a second call on an open channel does nothing."""
        if self._channel is not None:
            return
        if not installed():
            raise DeviceError(self._device, MISSING)
        grpc = import_module("grpc")
        self._metadata = tuple(
            (name, self._sendable(f"login's {name}", value))
            for name, value in (
                ("username", self._login.username),
                ("password", secret(self._device, self._login)),
            )
        )
        settings: list[tuple[str, str | int]] = [
            ("grpc.use_local_subchannel_pool", 1),  # no other device's pauses between attempts
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", MAX_JSON_BYTES),
        ]
        if self._options.server_name is not None:
            settings.append(("grpc.ssl_target_name_override", self._options.server_name))
        roots = all_authorities(self._device, self._options)  # else gRPC would use its own list
        trusted = grpc.ssl_channel_credentials(roots.encode("latin-1"))
        self._channel = grpc.secure_channel(self._address, trusted, settings)
        self._stub = import_module(_STUBS).gNMIStub(self._channel)
        try:
            request = self._messages().CapabilityRequest()
            self.capabilities = self._call(self._stub.Capabilities, request)
        except _CallLost as error:
            self.close()
            hint = NOT_TRUSTED if re.search("handshake|Hostname", str(error)) else ""
            raise DeviceUnavailable(self._device, f"can't connect to {error}{hint}") from error
        except _CallRefused as error:
            self.close()
            raise DeviceError(self._device, str(error)) from error

    def close(self) -> None:
        """Drop the channel; safe to repeat."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._stub = None

    def get(
        self, paths: Collection[Message], encoding: str
    ) -> list[tuple[Message, Message]] | None:
        """Updates about the given paths, each with the prefix of its path; None: NOT_FOUND."""
        request = self._messages().GetRequest(path=paths, encoding=encoding)
        again = self._channel is not None
        while True:
            self.open()
            try:
                answer = self._call(self._stub.Get, request)
                break
            except _CallLost as error:
                self.close()
                # The device had closed the idle connection.
                if not (again and error.code == "UNAVAILABLE"):
                    raise DeviceUnavailable(self._device, str(error)) from error
                again = False
            except _CallRefused as error:
                if error.code == "NOT_FOUND":
                    return None
                raise GnmiRefusal(self._device, str(error)) from error
        return [
            (notice.prefix, update) for notice in answer.notification for update in notice.update
        ]

    def set(self, request: Message) -> None:
        """Send an atomic SetRequest.

        Raises OutcomeUnknown if the answer got lost, or may come from a gateway on the way;
        DeviceError if the server itself refuses, and has changed nothing.
        """
        self.open()
        try:
            self._call(self._stub.Set, request)
        except _CallLost as error:
            self.close()
            raise OutcomeUnknown(
                self._device, f"a change was sent and not confirmed: {error}; read the device back"
            ) from error
        except _CallRefused as error:
            if error.code in _OWN:
                raise DeviceError(self._device, str(error)) from error
            raise OutcomeUnknown(
                self._device,
                f"a change was sent, and the outcome is not known: {error}; read the device back",
            ) from error

    def subscribe(self, requests: Iterator[Message]) -> Message:
        """The stream of answers to the given requests, on the open channel."""
        return self._stub.Subscribe(requests, metadata=self._metadata)

    def _sendable(self, what: str, value: str) -> str:
        """Check a value for gRPC metadata. Raises DeviceError, which does not show the value."""
        if _SENDABLE.fullmatch(value) is None:
            raise DeviceError(
                self._device,
                f"the {what} can't be sent: gNMI permits printable ASCII only; give the "
                "switch another one",
            )
        return value

    def _messages(self) -> Message:
        if not installed():
            raise DeviceError(self._device, MISSING)
        return import_module(_MESSAGES)

    def _call(self, method: Callable[..., _T], request: object) -> _T:
        grpc = import_module("grpc")
        try:
            limit_s = remaining_s(self._timeout_s)
            answer = method(request, timeout=limit_s, metadata=self._metadata)
        except PermitOverError as error:
            raise _CallLost("CANCELLED", f"{self._address}: {error}") from error
        except grpc.RpcError as error:
            code, reason = error.code().name, error.details() or ""
            if code == "DEADLINE_EXCEEDED":
                reason = f"no answer within {limit_s:g} s"
            if code in LOST:
                raise _CallLost(code, f"{self._address}: {reason or code}") from error
            if code == "UNAUTHENTICATED":
                reason = f"does not let {self._login.username} in; check login"
            raise _CallRefused(code, f"the switch refuses ({code}): {reason}") from error
        except ValueError as error:  # the channel was closed meanwhile
            raise _CallLost("UNAVAILABLE", f"{self._address}: {error}") from error
        if answer is None:
            raise _CallLost("INTERNAL", f"{self._address}: an OK without an answer")
        return answer


class _CallLost(Exception):
    """No answer, or an answer that leaves the outcome open."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class _CallRefused(Exception):
    """The server's refusal: nothing was done."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)
