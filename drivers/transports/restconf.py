"""RESTCONF (RFC 8040) with user and password, with or without TLS, in JSON."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, Self

import httpx

from drivers.codecs.yang_json import Json, YangJsonError, parse, parse_refusal
from drivers.credentials import secret
from drivers.transports.permit import PermitOverError, remaining_s
from drivers.transports.tls import NOT_TRUSTED, TlsOptions, authorities
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import Login, Plane

_JSON: Final = "application/yang-data+json"
_NOT_CONNECTED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class RestconfSession:
    """One HTTP connection, opened on first use and again after every failure.

    ``root`` is the path of all resources; ``tls`` None: plain HTTP. ``timeout_s`` covers each step
    of a request: connecting, sending, the answer's parts. Used by one thread at a time.
    """

    def __init__(
        self,
        device: str,
        address: str,
        login: Login,
        root: str,
        *,
        tls: TlsOptions | None,
        timeout_s: float,
    ) -> None:
        self._device = device
        self._address = address
        self._login = login
        self._root = root
        self._tls = tls
        self._timeout_s = timeout_s
        self._client: httpx.Client | None = None

    @classmethod
    def to(
        cls, plane: Plane, root: str, timeout_s: float, *, tls: TlsOptions | None = None
    ) -> Self:
        """The session to a plane's address. Raises DeviceError without a login."""
        if plane.login is None:
            raise DeviceError(plane.name, "RESTCONF wants a login")
        return cls(plane.name, plane.address, plane.login, root, tls=tls, timeout_s=timeout_s)

    @property
    def connected(self) -> bool:
        return self._client is not None

    def close(self) -> None:
        """Drop the connection; safe to repeat."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def get(self, path: str) -> httpx.Response:
        """The answer, with any status. Raises DeviceUnavailable."""
        again = self._client is not None
        while True:
            try:
                return self._ask("GET", path)
            except httpx.TransportError as error:
                self.close()
                # The device had closed the idle connection.
                if not (again and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)):
                    raise self._unavailable(error) from error
                again = False

    def change(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        expected: Collection[int] = (),
    ) -> httpx.Response:
        """The answer to a request that changes the device: a success, or the device's refusal.

        A refusal holds RESTCONF's document of errors (RFC 8040, 7.1). Gateways and proxies answer
        with statuses of their own, also when the device has carried the request out: without such a
        document, only ``expected`` statuses are returned, after which the caller looks at the
        device. Raises DeviceUnavailable if nothing was sent, OutcomeUnknown if the answer got lost
        or may come from a gateway.
        """
        try:
            answer = self._ask(method, path, body, headers)
        except _NOT_CONNECTED as error:
            self.close()
            raise self._unavailable(error) from error
        except httpx.TransportError as error:
            self.close()
            raise self._unconfirmed(self._reason(error)) from error
        refused = answer.is_client_error and bool(parse_refusal(answer.content))
        if not (answer.is_success or refused or answer.status_code in expected):
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                self.close()
            raise self._unconfirmed(self.refusal(answer))
        return answer

    def check(self, answer: httpx.Response) -> None:
        """Raises DeviceError for a refusal; a refused login ends the session."""
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self.close()
            raise DeviceError(
                self._device,
                f"{self._address} does not let {self._login.username} in; check login",
            )
        if not answer.is_success:
            raise DeviceError(self._device, f"the switch refuses ({self.refusal(answer)})")

    def read(self, path: str) -> Json:
        """The document at ``path``; None if the answer is empty.

        Raises DeviceUnavailable, DeviceError for a refusal, ProtocolError for invalid JSON.
        """
        answer = self.get(path)
        self.check(answer)
        try:
            return parse(answer.content) if answer.content else None
        except YangJsonError as error:
            raise ProtocolError(self._device, f"{answer.url.path}: {error}") from error

    def write(self, method: str, path: str, document: Json = None) -> None:
        """Change the device; ``document`` None: a request without a body.

        Raises DeviceUnavailable if nothing was sent, OutcomeUnknown if the answer got lost,
        DeviceError for a refusal.
        """
        body = None if document is None else json.dumps(document).encode()
        self.check(self.change(method, path, body))

    def _connected(self) -> httpx.Client:
        if self._client is None:
            if self._tls is None:  # no authorities are read for nothing
                trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            else:
                trusted = ssl.create_default_context(cadata=authorities(self._device, self._tls))
            # Bytes without the device's acknowledgement are not sent again after this controller's
            # lease.
            unanswered_ms = int(remaining_s(self._timeout_s) * 1000)
            option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, unanswered_ms))
            self._client = httpx.Client(
                base_url=f"http{'' if self._tls is None else 's'}://{self._address}/{self._root}/",
                auth=httpx.BasicAuth(self._login.username, secret(self._device, self._login)),
                transport=httpx.HTTPTransport(verify=trusted, socket_options=[option]),
                timeout=self._timeout_s,
                trust_env=False,
                headers={"Accept": _JSON, "Content-Type": _JSON},
            )
        return self._client

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> httpx.Response:
        name = None if self._tls is None else self._tls.server_name
        extensions = {} if name is None else {"sni_hostname": name}
        try:
            limit_s = remaining_s(self._timeout_s)
        except PermitOverError as error:
            raise httpx.ConnectError(str(error)) from error
        return self._connected().request(
            method,
            path,
            content=body,
            headers=dict(headers),
            extensions=extensions,
            timeout=limit_s,
        )

    def refusal(self, answer: httpx.Response) -> str:
        """An answer's status and reason, for people."""
        reason = parse_refusal(answer.content) or answer.reason_phrase
        return f"HTTP {answer.status_code}: {reason}"

    def _unavailable(self, error: httpx.TransportError) -> DeviceUnavailable:
        hint = NOT_TRUSTED if "CERTIFICATE_VERIFY_FAILED" in str(error) else ""
        return DeviceUnavailable(self._device, f"can't reach {self._reason(error)}{hint}")

    def _unconfirmed(self, reason: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            self._device, f"a change was sent and not confirmed: {reason}; read the device back"
        )

    def _reason(self, error: httpx.TransportError) -> str:
        text = str(error)
        if isinstance(error, httpx.TimeoutException):
            text = f"no answer within {self._timeout_s:g} s"
        return f"{self._address}: {text or type(error).__name__}"
