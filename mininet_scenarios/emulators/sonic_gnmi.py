"""gNMI in front of the databases of an emulated SONiC: Capabilities, Get, Set and Subscribe.

Follows SONiC's server and generic config updater: NOT_FOUND is the answer for a table without rows,
and for all missing keys and databases of Redis; a Set is a JSON patch, refused as a whole if the
patch adds below a table without rows, or leaves a table without rows; a deleted row is reported as
an update without fields.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
import redis
from pygnmi.spec.v080 import gnmi_pb2 as messages

from mininet_scenarios.emulators.relayed import GoneError
from mininet_scenarios.emulators.sonic_databases import NUMBERS, PubSub
from mininet_scenarios.emulators.sonic_orchagent import (
    ALARMS,
    CROSS_CONNECT_STATES,
    CROSS_CONNECTS,
    FACTORY_LOSSES,
    METADATA,
    PORT_STATES,
    PORTS,
    shown_fields,
)
from mininet_scenarios.emulators.sonic_switch import RefusedError, SonicServer

_ORIGINS: Final = ("sonic-db", "")
_VERSION: Final = "0.8.0"
_TABLES: Final = {
    "CONFIG_DB": {CROSS_CONNECTS, PORTS, METADATA, "PORT", "VLAN", "VLAN_MEMBER"},
    "STATE_DB": {
        CROSS_CONNECT_STATES, PORT_STATES, *FACTORY_LOSSES, "PORT_TABLE", "VLAN_MEMBER_TABLE",
    },
    "EVENT_DB": {ALARMS},
}  # fmt: skip
_WRITTEN: Final = {CROSS_CONNECTS, "VLAN", "VLAN_MEMBER"}

_Message = Any
_Context = Any


class _Bad(Exception):
    """A request that can't be answered, with the status code of the refusal."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        self.code = code
        super().__init__(message)


class GnmiServer(SonicServer):
    """The server; several clients, with changes one after another."""

    async def serve(self, door: Path) -> None:
        certificate, key = (path.read_bytes() for path in self.certificate)
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        self._grpc = grpc.aio.server()
        self._grpc.add_generic_rpc_handlers((_Service(self).handler(),))
        self._grpc.add_secure_port(f"unix:{door}", credentials)
        await self._grpc.start()

    async def finish(self) -> None:
        await self._grpc.stop(None)


class _Service:
    """The remote procedures of ``gnmi.gNMI``."""

    def __init__(self, switch: GnmiServer) -> None:
        self._switch = switch

    def handler(self) -> grpc.GenericRpcHandler:
        """The procedures by name, with the readers and writers of messages."""
        single, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        found = {
            name: make(
                work,
                getattr(messages, f"{message}Request").FromString,
                getattr(messages, f"{message}Response").SerializeToString,
            )
            for name, make, work, message in (
                ("Capabilities", single, self._capabilities, "Capability"),
                ("Get", single, self._get, "Get"),
                ("Set", single, self._set, "Set"),
                ("Subscribe", stream, self._follow, "Subscribe"),
            )
        }
        return grpc.method_handlers_generic_handler("gnmi.gNMI", found)

    async def _capabilities(self, _request: _Message, context: _Context) -> _Message:
        await self._begin(context)
        model = messages.ModelData(name="sonic-db", organization="SONiC", version="0.1.0")
        return messages.CapabilityResponse(
            supported_models=[model], supported_encodings=["JSON_IETF"], gNMI_version=_VERSION
        )

    async def _get(self, request: _Message, context: _Context) -> _Message:
        await self._begin(context)
        try:
            asked = [_place(request.prefix, path) for path in request.path]
            updates = [
                self._update(path, *rest) for path, rest in zip(request.path, asked, strict=True)
            ]
            for (_, table, keys), update in zip(asked, updates, strict=True):
                if not keys and update.val.json_ietf_val == b"{}":
                    raise _Bad(grpc.StatusCode.NOT_FOUND, f"no rows in {table}")
        except _Bad as error:
            await context.abort(error.code, str(error))
        except redis.RedisError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        await self._switch.end()
        notice = messages.Notification(timestamp=time.time_ns(), update=updates)
        return messages.GetResponse(notification=[notice])

    async def _set(self, request: _Message, context: _Context) -> _Message:
        await self._begin(context)
        answers = []
        try:
            patches: dict[str, _Patch] = {}
            for path in request.delete:
                table, key = _row_to_write(request.prefix, path)
                self._patch(patches, table).remove(key)
                answers.append(messages.UpdateResult(path=path, op="DELETE"))
            for kind in ("replace", "update"):
                for update in getattr(request, kind):
                    table, key = _row_to_write(request.prefix, update.path)
                    self._patch(patches, table).add(key, update.val)
                    answers.append(messages.UpdateResult(path=update.path, op=kind.upper()))
            self._switch.change({table: patch.result() for table, patch in patches.items()})
        except _Bad as error:
            await context.abort(error.code, str(error))
        except RefusedError as error:
            await context.abort(grpc.StatusCode.ABORTED, str(error))
        except GoneError:
            await _abandon(context)
        await self._switch.end()
        return messages.SetResponse(timestamp=time.time_ns(), response=answers)

    def _patch(self, patches: dict[str, _Patch], table: str) -> _Patch:
        if table not in patches:
            patches[table] = _Patch(table, self._switch.read("CONFIG_DB", table))
        return patches[table]

    async def _follow(
        self, requests: AsyncIterator[_Message], context: _Context
    ) -> AsyncIterator[_Message]:
        await self._begin(context)
        asked = (await anext(aiter(requests))).subscribe
        try:
            places = [
                (entry.path, *_place(asked.prefix, entry.path)) for entry in asked.subscription
            ]
        except _Bad as error:
            await context.abort(error.code, str(error))
        outgoing: asyncio.Queue[_Message] = asyncio.Queue()
        listeners = [asyncio.create_task(_wait_for_end(requests, outgoing))]
        for path, database, table, _ in places:
            notices = await self._switch.databases.changes(database, table)
            work = self._publish(notices, path, database, table, outgoing)
            listeners.append(asyncio.create_task(work))
        try:
            yield _notice(update=[self._update(*place) for place in places])
            yield messages.SubscribeResponse(sync_response=True)
            if asked.mode == messages.SubscriptionList.STREAM:
                while (notice := await outgoing.get()) is not None:
                    yield notice
        finally:
            for listener in listeners:
                listener.cancel()

    async def _publish(
        self,
        notices: PubSub,
        path: _Message,
        database: str,
        table: str,
        outgoing: asyncio.Queue[_Message],
    ) -> None:
        async with notices:
            async for message in notices.listen():
                key = message["channel"].partition("|")[2]
                row = self._switch.databases.row(database, table, key) or {}
                outgoing.put_nowait(_notice(update=[_update(path, {key: shown_fields(row)})]))

    async def _begin(self, context: _Context) -> None:
        """Check the login, and meet faults."""
        given = dict(context.invocation_metadata())
        if not self._switch.admits(given.get("username", ""), given.get("password", "")):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong user or password")
        try:
            await self._switch.begin()
        except GoneError:
            await _abandon(context)

    def _update(self, path: _Message, database: str, table: str, keys: Iterable[str]) -> _Message:
        rows = self._switch.read(database, table)
        value: object = {key: shown_fields(row) for key, row in rows.items()}
        for key in keys:
            if not isinstance(value, dict) or key not in value:
                raise _Bad(grpc.StatusCode.NOT_FOUND, f"no {key} in {table}")
            value = value[key]
        return _update(path, value)


async def _abandon(context: _Context) -> NoReturn:
    """End a call whose connection is gone."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection is gone")
    raise AssertionError("unreachable")


async def _wait_for_end(requests: _Message, outgoing: asyncio.Queue[_Message]) -> None:
    """End the subscription once the client closes its side."""
    async for _ in requests:
        pass
    outgoing.put_nowait(None)


def _notice(**content: _Message) -> _Message:
    notice = messages.Notification(timestamp=time.time_ns(), **content)
    return messages.SubscribeResponse(update=notice)


def _update(path: _Message, value: object) -> _Message:
    text = json.dumps(value).encode()
    return messages.Update(path=path, val=messages.TypedValue(json_ietf_val=text))


def _place(prefix: _Message, path: _Message) -> tuple[str, str, list[str]]:
    """Database, table, and the rest of a path."""
    origin = path.origin or prefix.origin
    names = [element.name for element in (*prefix.elem, *path.elem)]
    if origin not in _ORIGINS:
        raise _Bad(grpc.StatusCode.INVALID_ARGUMENT, f"no origin {origin}")
    if len(names) < 3 or names[0] not in NUMBERS or names[1] != "localhost":
        path_text = "/".join(names)
        raise _Bad(grpc.StatusCode.INVALID_ARGUMENT, f"not DATABASE/localhost/TABLE: {path_text}")
    database, _, table, *rest = names
    if table not in _TABLES[database]:
        raise _Bad(grpc.StatusCode.NOT_FOUND, f"no table {table} in {database}")
    return database, table, rest


class _Patch:
    """A JSON patch of a table."""

    def __init__(self, table: str, rows: Mapping[str, dict[str, str]]) -> None:
        self._table = table
        self._present = rows
        self._rows = {**rows} or None
        """None: the configuration has no such table."""

    def remove(self, key: str | None) -> None:
        """Take away a row, or the table (None); a missing row or table is skipped."""
        if key is None:
            self._rows = None
        elif self._rows is not None:
            self._rows.pop(key, None)

    def add(self, key: str | None, value: _Message) -> None:
        """Put a row, or the whole table (None) in place of the present table."""
        try:
            given = json.loads(value.json_ietf_val or value.json_val)
        except ValueError:
            given = None
        if key is None and isinstance(given, dict):
            self._rows = {name: _row(row) for name, row in given.items()}
        elif key is None:
            raise _Bad(grpc.StatusCode.INVALID_ARGUMENT, "a table is an object of rows")
        elif self._rows is None:
            raise _Bad(grpc.StatusCode.UNKNOWN, f"member '{self._table}' not found")
        else:
            self._rows[key] = _row(given)

    def result(self) -> tuple[set[str], dict[str, dict[str, str]]]:
        """Keys of deleted rows, and new or changed rows."""
        if self._rows == {}:
            raise _Bad(
                grpc.StatusCode.UNKNOWN,
                "given patch is not valid because it will result in empty tables which is not "
                f"allowed in ConfigDb. Table: {self._table}",
            )
        wanted = self._rows or {}
        put = {key: row for key, row in wanted.items() if self._present.get(key) != row}
        return self._present.keys() - wanted.keys(), put


def _row_to_write(prefix: _Message, path: _Message) -> tuple[str, str | None]:
    """Table and key of a row; None for the whole table."""
    database, table, rest = _place(prefix, path)
    if database != "CONFIG_DB" or table not in _WRITTEN or len(rest) > 1:
        raise _Bad(grpc.StatusCode.UNIMPLEMENTED, f"{table} of {database} is not written here")
    return table, rest[0] if rest else None


def _row(row: object) -> dict[str, str]:
    if not isinstance(row, dict) or not all(isinstance(field, str) for field in row.values()):
        raise _Bad(grpc.StatusCode.INVALID_ARGUMENT, "a row is an object of strings")
    return row
