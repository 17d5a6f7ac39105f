"""SONiC databases over RESTCONF: the management framework's server, with TLS, user and password.

Changes are the rpc ``bulk-update``, the one request there that both deletes and adds.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection
from typing import Final

import httpx

from drivers.codecs import sonic_ocs
from drivers.codecs.sonic_ocs import Rows, Table
from drivers.credentials import secret
from drivers.transports.tls import NOT_TRUSTED, TlsOptions, authorities
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import Login

_JSON: Final = "application/yang-data+json"
_NOT_CONNECTED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class RestconfDatabases:
    """:class:`~drivers.transports.sonic_databases.SonicDatabases` over one HTTPS connection.

    ``timeout_s`` covers each step of a request: connecting, sending, the answer's parts.
    """

    def __init__(
        self, device: str, address: str, login: Login, options: TlsOptions, *, timeout_s: float
    ) -> None:
        self._device = device
        self._address = address
        self._login = login
        self._options = options
        self._timeout_s = timeout_s
        self._client: httpx.Client | None = None

    def open(self) -> None:
        if self._client is None:
            self._connected()
            self.read(sonic_ocs.METADATA)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def read(self, table: Table) -> Rows:
        again = self._client is not None
        while True:
            try:
                answer = self._ask("GET", f"data/{table.resource}")
                break
            except httpx.TransportError as error:
                self.close()
                # A connection that the device gave up while nobody used it.
                if not (again and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)):
                    raise self._unavailable(error) from error
                again = False
        if answer.status_code == httpx.codes.NOT_FOUND and table is sonic_ocs.ALARMS:
            return {}
        self._check(answer)
        try:
            return sonic_ocs.parse_resource(table, answer.content)
        except sonic_ocs.SonicError as error:
            raise ProtocolError(self._device, f"{table.name}: {error}") from error

    def write(self, delete: Collection[str], add: Rows) -> None:
        body = sonic_ocs.bulk_update_text(delete, add)
        try:
            answer = self._ask("POST", f"operations/{sonic_ocs.BULK_UPDATE}", body)
        except _NOT_CONNECTED as error:
            self.close()
            raise self._unavailable(error) from error
        except httpx.TransportError as error:
            self.close()
            raise OutcomeUnknown(
                self._device,
                f"a change was sent and not confirmed: {self._reason(error)}; read it back",
            ) from error
        if answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED):
            raise DeviceError(
                self._device,
                f"{self._address} knows no {sonic_ocs.BULK_UPDATE}, by which cross-connects are "
                "changed over RESTCONF; set options.transport to gnmi",
            )
        if answer.is_server_error:
            raise OutcomeUnknown(
                self._device,
                f"a change was sent and not confirmed: {self._refusal(answer)}; read it back",
            )
        self._check(answer)
        try:
            failed = sonic_ocs.parse_bulk_result(answer.content)
        except sonic_ocs.SonicError as error:
            raise OutcomeUnknown(
                self._device, f"a change was sent, and its answer makes no sense: {error}"
            ) from error
        if failed:
            raise OutcomeUnknown(
                self._device, f"the switch did not take all of a change: {', '.join(failed[:8])}"
            )

    def heard_alarms(self) -> tuple[tuple[str, Rows | None], ...]:
        return ()

    def _connected(self) -> httpx.Client:
        if self._client is None:
            roots = authorities(self._device, self._options)
            trusted = ssl.create_default_context(cadata=roots)
            self._client = httpx.Client(
                base_url=f"https://{self._address}/restconf/",
                auth=httpx.BasicAuth(self._login.username, secret(self._device, self._login)),
                verify=trusted,
                timeout=self._timeout_s,
                trust_env=False,
                headers={"Accept": _JSON, "Content-Type": _JSON},
            )
        return self._client

    def _ask(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        name = self._options.server_name
        extensions = {} if name is None else {"sni_hostname": name}
        return self._connected().request(method, path, content=body, extensions=extensions)

    def _check(self, answer: httpx.Response) -> None:
        """Raises DeviceError for a refusal."""
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            raise DeviceError(
                self._device,
                f"{self._address} does not let {self._login.username} in; check login",
            )
        if not answer.is_success:
            raise DeviceError(self._device, f"the switch refuses ({self._refusal(answer)})")

    def _refusal(self, answer: httpx.Response) -> str:
        reason = sonic_ocs.parse_refusal(answer.content) or answer.reason_phrase
        return f"HTTP {answer.status_code}: {reason}"

    def _unavailable(self, error: httpx.TransportError) -> DeviceUnavailable:
        hint = NOT_TRUSTED if "CERTIFICATE_VERIFY_FAILED" in str(error) else ""
        return DeviceUnavailable(self._device, f"can't reach {self._reason(error)}{hint}")

    def _reason(self, error: httpx.TransportError) -> str:
        told = str(error)
        if isinstance(error, httpx.TimeoutException):
            told = f"no answer within {self._timeout_s:g} s"
        return f"{self._address}: {told or type(error).__name__}"
