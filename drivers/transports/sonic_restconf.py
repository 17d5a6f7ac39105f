"""SONiC databases over RESTCONF: the management framework's server, with TLS, user and password.

Changes are the rpc ``bulk-update``, the only request there that both deletes and adds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import httpx

from drivers.codecs import sonic_ocs
from drivers.codecs.sonic_ocs import Rows, Table
from drivers.codecs.yang_json import YangJsonError, parse_refusal
from drivers.transports.restconf import RestconfSession
from drivers.transports.tls import TlsOptions
from hydra.errors import DeviceError, OutcomeUnknown, ProtocolError
from hydra.model import Login

_UNKNOWN_OPERATION: Final = (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)


class RestconfDatabases:
    """:class:`~drivers.transports.sonic_databases.SonicDatabases` over one HTTPS connection.

    ``timeout_s`` covers each step of a request: connecting, sending, the answer's parts.
    """

    def __init__(
        self, device: str, address: str, login: Login, options: TlsOptions, *, timeout_s: float
    ) -> None:
        self._device = device
        self._address = address
        self._session = RestconfSession(
            device, address, login, "restconf", tls=options, timeout_s=timeout_s
        )

    def open(self) -> None:
        if not self._session.connected:
            self.read(sonic_ocs.METADATA)

    def close(self) -> None:
        self._session.close()

    def read(self, table: Table) -> Rows:
        answer = self._session.get(f"data/{table.resource}")
        if answer.status_code == httpx.codes.NOT_FOUND and table.optional:
            return {}
        self._session.check(answer)
        try:
            return sonic_ocs.parse_resource(table, answer.content)
        except YangJsonError as error:
            raise ProtocolError(self._device, f"{table.name}: {error}") from error

    def write(self, delete: Collection[str], add: Rows) -> None:
        body = sonic_ocs.bulk_update_text(delete, add)
        resource = f"operations/{sonic_ocs.BULK_UPDATE}"
        answer = self._session.change("POST", resource, body, expected=_UNKNOWN_OPERATION)
        if answer.status_code in _UNKNOWN_OPERATION:
            refused = bool(parse_refusal(answer.content))
            raise (DeviceError if refused else OutcomeUnknown)(
                self._device,
                f"{self._address} knows no {sonic_ocs.BULK_UPDATE}, the call that changes "
                f"cross-connects over RESTCONF ({self._session.refusal(answer)}); set "
                "options.transport to gnmi",
            )
        self._session.check(answer)
        try:
            failed = sonic_ocs.parse_bulk_result(answer.content)
        except YangJsonError as error:
            raise OutcomeUnknown(
                self._device, f"a change was sent, and the answer is malformed: {error}"
            ) from error
        if failed:
            raise OutcomeUnknown(
                self._device, f"the switch did not take all of a change: {', '.join(failed[:8])}"
            )

    def received_alarms(self) -> tuple[tuple[str, Rows | None], ...]:
        return ()
