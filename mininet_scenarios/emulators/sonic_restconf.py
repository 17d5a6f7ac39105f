"""RESTCONF in front of the databases of an emulated SONiC: tables, and the rpc ``bulk-update``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mininet_scenarios.emulators.relayed import GoneError, HttpDoor
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

_JSON: Final = "application/yang-data+json"
_TABLES: Final = {
    f"sonic-ocs:sonic-ocs/{CROSS_CONNECTS}": (
        "CONFIG_DB",
        "OCS_CROSS_CONNECT_LIST",
        "cross_connect_id",
    ),
    f"sonic-ocs:sonic-ocs/{CROSS_CONNECT_STATES}": (
        "STATE_DB",
        "OCS_CROSS_CONNECT_LIST",
        "cross_connect_id",
    ),
    f"sonic-ocs:sonic-ocs/{PORTS}": ("CONFIG_DB", "OCS_PORT_LIST", "simplex_port_id"),
    f"sonic-ocs:sonic-ocs/{PORT_STATES}": ("STATE_DB", "OCS_PORT_LIST", "simplex_port_id"),
    f"sonic-ocs:sonic-ocs/{FACTORY_LOSSES[1]}": (
        "STATE_DB",
        "OCS_FACTORY_INSERTION_LOSS_LIST",
        "cross_connect_id|frequency_THz|temperature_C",
    ),
    f"sonic-device-metadata:sonic-device-metadata/{METADATA}": (
        "CONFIG_DB",
        "DEVICE_METADATA_LIST",
        "name",
    ),
    f"sonic-alarm:sonic-alarm/{ALARMS}": ("EVENT_DB", "ALARM_LIST", "id"),
}
"""Database, list and the leaves of the list's key, by container path."""


class RestconfServer(SonicServer):
    async def serve(self, door: Path) -> None:
        routes = [
            Route("/restconf/data/{path:path}", self._get, methods=["GET"]),
            Route("/restconf/operations/{name}", self._call, methods=["POST"]),
        ]
        self._http = HttpDoor(Starlette(routes=routes), door, self.certificate)
        await self._http.open()

    async def finish(self) -> None:
        await self._http.close()

    async def _get(self, request: Request) -> Response:
        if (refusal := await self._begin(request)) is not None:
            return refusal
        path = request.path_params["path"]
        if path not in _TABLES:
            return _error(404, "invalid-value", f"no resource {path}")
        database, list_name, key_leaves = _TABLES[path]
        table = path.rpartition("/")[2]
        module = path.partition(":")[0]
        rows = self.read(database, table)
        leaves = key_leaves.split("|")
        entries = [
            {**dict(zip(leaves, key.split("|"), strict=True)), **shown_fields(row)}
            for key, row in rows.items()
        ]
        await self.end()
        return _answer({f"{module}:{table}": {list_name: entries}} if entries else {})

    async def _call(self, request: Request) -> Response:
        if (refusal := await self._begin(request)) is not None:
            return refusal
        name = request.path_params["name"]
        if name not in self.agent.operations:
            return _error(404, "invalid-value", f"no operation {name}")
        try:
            given = json.loads(await request.body())["sonic-ocs:input"]
            delete = [str(key) for key in given.get("delete", [])]
            added = given.get("add", [])
            put = {
                entry["cross_connect_id"]: {side: entry[side] for side in ("a_side", "b_side")}
                for entry in added
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            return _error(400, "invalid-value", "not an input of bulk-update")
        try:
            self.change({CROSS_CONNECTS: (delete, put)})
        except RefusedError as error:
            return _error(400, "operation-failed", str(error))
        except GoneError:
            return Response(status_code=503)
        await self.end()
        # The counts are of the request, regardless of the result.
        counts = {"deleted_count": len(delete), "added_count": len(added)}
        return _answer({"sonic-ocs:output": counts})

    async def _begin(self, request: Request) -> Response | None:
        """Check the login and apply faults; returns a refusal, if any."""
        if not self.admits_sender(request):
            return _error(401, "access-denied", "wrong user or password")
        try:
            await self.begin()
        except GoneError:
            return Response(status_code=503)
        return None


def _answer(document: object) -> Response:
    return Response(json.dumps(document), media_type=_JSON)


def _error(status: int, tag: str, message: str) -> Response:
    error = {"error-type": "application", "error-tag": tag, "error-message": message}
    document = {"ietf-restconf:errors": {"error": [error]}}
    return Response(json.dumps(document), status_code=status, media_type=_JSON)
