"""An emulated Polatis switch: ``python -m mininet_scenarios.emulators.polatis_restconf``.

Protocol: RESTCONF over plain HTTP; the user ``admin`` has the password ``root``. The modules are
``optical-switch.yang`` and ``polatis-switch.yang`` in the folder ``yang``. An ETag covers the whole
configuration, and has no quotes, as recorded from devices. Options and common behaviour:
:mod:`mininet_scenarios.emulators.process`.

``--firmware old`` has the older model, has no ETags, writes a list of one entry without brackets,
has no attenuators, and loses cross-connects in a power cycle.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.emulators.faults import OF_BAD_LINES, OF_SWITCHES, FaultKind
from mininet_scenarios.emulators.ocs import (
    Attenuation,
    BusyPortError,
    CommandError,
    EmulatedOcs,
    NoSuchPortError,
    PowerAlarm,
)
from mininet_scenarios.emulators.process import Product, run
from mininet_scenarios.emulators.relayed import GoneError, HttpDoor, RelayedServer
from mininet_scenarios.emulators.sessions import ReplyLostError, answered

_JSON: Final = "application/yang-data+json"
_CROSS_CONNECTS: Final = "optical-switch:cross-connects"
_ATTENUATORS: Final = "optical-switch:voa"
_THRESHOLDS: Final = "optical-switch:opm-alarm-config"
_MODES: Final = {
    "VOA_MODE_NONE": "NONE",
    "VOA_MODE_FIXED": "FIX",
    "VOA_MODE_MAXIMUM": "MAX",
    "VOA_MODE_ABSOLUTE": "ABS",
    "VOA_MODE_CONVERGED": "CONV",
    "VOA_MODE_RELATIVE": "REL",
}
_PAIR: Final = re.compile(rf"{_CROSS_CONNECTS}/pair=([0-9]{{1,6}})")
_Answer = tuple[int, object]
"""Status and document; None: no body."""
_METHODS: Final = ["GET", "PATCH", "POST", "PUT", "DELETE"]


class _RefusalError(Exception):
    """Status and error-tag of RFC 8040 in place of an answer."""

    def __init__(self, status: int, tag: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.tag = tag


class PolatisRestconf(RelayedServer):
    TAGS: ClassVar[bool] = True
    """True if answers bear ETags, and If-Match is heeded."""
    START: ClassVar[str] = "preserve"
    PORTS: ClassVar[tuple[str, str, str, str]] = (
        "port-config",
        "status",
        "ENABLED",
        "DISABLED",
    )
    """Container and leaf of port states, and the words for the states."""
    ATTENUATES: ClassVar[bool] = True
    """True for a switch with attenuators, and monitors with thresholds, at egress ports."""

    def __init__(self, ocs: EmulatedOcs, serial: str) -> None:
        # Removed when the process ends.
        self._directory = TemporaryDirectory()
        door = Path(self._directory.name) / "door.sock"
        super().__init__(door, EMULATORS["polatis-restconf"], ocs.faults)
        self._ocs = ocs
        self._serial = serial

    async def serve(self, door: Path) -> None:
        routes = [Route("/api/data/{path:path}", self._answer, methods=_METHODS)]
        self._http = HttpDoor(Starlette(routes=routes), door)
        await self._http.open()

    async def finish(self) -> None:
        await self._http.close()

    async def _answer(self, request: Request) -> Response:
        status = 200

        async def carry_out() -> bytes:
            nonlocal status
            try:
                status, document = await self._carry_out(request)
            except _RefusalError as error:
                status, document = error.status, _errors(error)
            return b"" if document is None else json.dumps(document).encode()

        try:
            await self.begin()
            body = await answered(self._faults, carry_out, moves=request.method != "GET")
        except ReplyLostError:
            return self._gone()
        except GoneError:
            return Response(status_code=503)
        tag = {"ETag": self._tag} if self.TAGS else {}
        return Response(body, status, tag, _JSON if body else None)

    def _gone(self) -> Response:
        try:
            self.hang_up()
        except GoneError:
            return Response(status_code=503)

    @property
    def _tag(self) -> str:
        return f"1516-992899-{self._ocs.moves}"

    async def _carry_out(self, request: Request) -> _Answer:
        if not self.admits_sender(request):
            raise _RefusalError(401, "access-denied", "wrong user or password")
        path = request.path_params["path"]
        if request.method == "GET":
            return self._read(path)
        wanted = request.headers.get("if-match")
        if self.TAGS and wanted not in (None, self._tag):
            raise _RefusalError(412, "operation-failed", "the configuration has changed")
        try:
            status = self._write(request.method, path, await request.body())
        except NoSuchPortError as error:
            raise _RefusalError(400, "invalid-value", f"{error}") from error
        except BusyPortError as error:
            raise _RefusalError(409, "data-exists", f"{error}") from error
        except CommandError as error:
            raise _RefusalError(400, "operation-failed", f"{error}") from error
        await self._ocs.settled()
        return status, None

    # --- reading --------------------------------------------------------------------------------

    def _read(self, path: str) -> _Answer:
        size, ports = self._ocs.size, range(1, 2 * self._ocs.size + 1)
        container, leaf, enabled, disabled = self.PORTS
        if path == _CROSS_CONNECTS:
            pairs = sorted(self._ocs.cross_connects.items())
            return self._list("cross-connects", "pair", [_pair(a, b) for a, b in pairs])
        if path == f"optical-switch:{container}":
            states = {p: disabled if self._ocs.disabled(p) else enabled for p in ports}
            entries = [{"port-id": port, leaf: state} for port, state in states.items()]
            return self._list(container, "port", entries)
        if path == "optical-switch:opm-power":
            readings = {port: self._ocs.power_dbm(port) for port in ports}
            entries = [
                {"port-id": port, "power": "-50.00" if dbm is None else f"{dbm:.2f}"}
                for port, dbm in readings.items()
            ]
            return self._list("opm-power", "port", entries)
        if path in (_ATTENUATORS, _THRESHOLDS) and self.ATTENUATES:
            shown = self._attenuator if path == _ATTENUATORS else self._threshold
            name = path.partition(":")[2]
            return self._list(name, "port", [shown(port) for port in ports[size:]])
        if path == "optical-switch:system-config/polatis-switch:startup-mode":
            return 200, {"polatis-switch:startup-mode": self.START}
        if path == "optical-switch:product-information":
            product = {
                "manufacturer": "Polatis",
                "serial-number": self._serial,
                "model-name": f"N-VST-{size}x{size}-LA1-DMHNV-701",
                "software-version": "6.7.3.9",
            }
            return 200, {path: product}
        raise _RefusalError(404, "invalid-value", f"no resource {path}")

    def _list(self, container: str, name: str, entries: list[dict[str, object]]) -> _Answer:
        """A container with a list; for an empty list, an answer without a body."""
        return (200, {f"optical-switch:{container}": {name: entries}}) if entries else (204, None)

    def _attenuator(self, port: int) -> dict[str, object]:
        setting = self._ocs.attenuation(port)
        words = {mode: word for word, mode in _MODES.items()}
        level = {} if setting.level is None else {"atten-level": f"{setting.level:.2f}"}
        return {"port-id": port, "atten-mode": words[setting.mode], **level}

    def _threshold(self, port: int) -> dict[str, object]:
        alarm = self._ocs.power_alarm(port)
        return {
            "port-id": port,
            "mode": f"POWER_ALARM_{'ENABLED' if alarm.on else 'DISABLED'}",
            "signal-low-threshold": f"{alarm.low_dbm:.2f}",
            "signal-high-threshold": f"{alarm.high_dbm:.2f}",
        }

    # --- writing --------------------------------------------------------------------------------

    def _write(self, method: str, path: str, body: bytes) -> int:
        """Status of the answer. Raises CommandError."""
        present = self._ocs.cross_connects
        if method == "DELETE" and path == _CROSS_CONNECTS:
            self._ocs.disconnect(list(present.items()))
            return 204
        if method == "DELETE" and (match := _PAIR.fullmatch(path)):
            if int(match[1]) not in present:
                raise _RefusalError(404, "data-missing", f"no pair {match[1]}")
            self._ocs.disconnect_ingress([int(match[1])])
            return 204
        if path in (_ATTENUATORS, _THRESHOLDS) and self.ATTENUATES and method == "PATCH":
            for port, entry in _settings(body, path).items():
                if path == _ATTENUATORS:
                    self._ocs.attenuate(port, _attenuation(entry))
                else:
                    self._ocs.set_power_alarm(port, _power_alarm(entry))
            return 204
        if path != _CROSS_CONNECTS or method == "DELETE":
            raise _RefusalError(404, "invalid-value", f"no resource {path} to {method}")
        pairs = _pairs(body, posted=method == "POST")
        if method == "PUT":
            self._ocs.connect_only(pairs.items())
            return 204
        if method == "POST":
            self._ocs.connect(pairs.items())
            return 201
        self._merge(pairs)
        return 204

    def _merge(self, pairs: Mapping[int, int]) -> None:
        """Aim the ingress ports of ``pairs``; other ingress ports stay unchanged."""
        present = self._ocs.cross_connects
        kept = {egress for ingress, egress in present.items() if ingress not in pairs}
        if kept & set(pairs.values()) and not self._faults.active(FaultKind.STEAL):
            raise BusyPortError("an egress port is in use")
        moved = [(a, present[a]) for a, b in pairs.items() if a in present and present[a] != b]
        if moved:
            self._ocs.disconnect(moved)
        self._ocs.connect(pairs.items())


class OldPolatisRestconf(PolatisRestconf):
    TAGS = False
    START = "volatile"
    PORTS = ("ports", "port-state", "PC_ENABLED", "PC_DISABLED")
    ATTENUATES = False

    def _list(self, container: str, name: str, entries: list[dict[str, object]]) -> _Answer:
        status, document = super()._list(container, name, entries)
        if len(entries) == 1:
            document = {f"optical-switch:{container}": {name: entries[0]}}
        return status, document


def _pair(ingress: int, egress: int) -> dict[str, object]:
    return {"ingress": ingress, "egress": egress}


def _pairs(body: bytes, *, posted: bool) -> dict[int, int]:
    """Cross-connects in a request; a posted document lacks the container."""
    try:
        document = json.loads(body)
        if not posted:
            document = document.get(_CROSS_CONNECTS) or document["cross-connects"]
        listed = document.get("optical-switch:pair") or document["pair"]
        listed = listed if isinstance(listed, list) else [listed]
        return {int(entry["ingress"]): int(entry["egress"]) for entry in listed}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _RefusalError(400, "malformed-message", "no pairs of ports") from None


def _settings(body: bytes, path: str) -> dict[int, dict[str, object]]:
    """Entries of a list of ports in a request, by port."""
    try:
        listed = json.loads(body)[path]["port"]
        return {int(entry["port-id"]): dict(entry) for entry in listed}
    except (ValueError, KeyError, TypeError):
        raise _RefusalError(400, "malformed-message", "no list of ports") from None


def _attenuation(entry: Mapping[str, object]) -> Attenuation:
    level = entry.get("atten-level")
    mode = _MODES.get(str(entry.get("atten-mode")), "")
    return Attenuation(mode, None if level is None else _dbm(level))


def _power_alarm(entry: Mapping[str, object]) -> PowerAlarm:
    return PowerAlarm(
        entry.get("mode") != "POWER_ALARM_DISABLED",
        _dbm(entry.get("signal-low-threshold")),
        _dbm(entry.get("signal-high-threshold")),
    )


def _dbm(value: object) -> float:
    try:
        return float(f"{value}")
    except ValueError:
        raise _RefusalError(400, "invalid-value", f"not a level: {value}") from None


def _errors(error: _RefusalError) -> object:
    details = {"error-type": "application", "error-tag": error.tag, "error-message": f"{error}"}
    return {"ietf-restconf:errors": {"error": [details]}}


PRODUCT: Final = Product(
    "polatis_restconf",
    __doc__,
    "restconf",
    8008,
    PolatisRestconf,
    OF_SWITCHES | OF_BAD_LINES | {FaultKind.IDLE_LOGOUT},
    {"old": OldPolatisRestconf},
)

if __name__ == "__main__":
    sys.exit(run(PRODUCT))
