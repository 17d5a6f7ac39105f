"""The control socket of an emulator: one JSON object a line, one answer each; client and server.

The controller under test never speaks here. Requests: ``{"op": "counters"}``, ``{"op": "fault",
"fault": "refuse", "times": 1}`` (without ``times``: until cleared; ``slow`` takes ``delay_s``),
``{"op": "clear"}``, ``{"op": "block-port", "port": 3}``, ``{"op": "unblock"}``, ``{"op": "alarm",
"port": 3, "severity": "CR", "code": "LOS", "text": "…"}`` (severity ``CL`` ends the alarm),
``{"op": "input-power", "port": 3, "dbm": -20.5}`` (null: no light), ``{"op": "shutter", "port": 3,
"closed": true}``.

Answers have ``"ok": true``, or ``"ok": false`` and an ``"error"``.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mininet_scenarios.emulators.faults import FaultKind, Faults
from mininet_scenarios.emulators.mirrors import PortCounters
from mininet_scenarios.patience import PATIENCE_S

_MAX_LINE_BYTES: Final = 1 << 20
_SHOWN_BYTES: Final = 40
"""Most bytes of an unreadable request in the answer."""

Handler = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, object]]]


class AdminError(Exception):
    """The emulator can't be reached, or does not obey."""


@dataclass(frozen=True, slots=True)
class OcsCounters:
    """Frames and commands of an emulated switch since the start."""

    ports: tuple[PortCounters, ...]
    lost_inside: int
    """Frames that arrived at lit ports and did not leave."""
    moves: int
    cross_connects: int

    @property
    def dark_frames(self) -> int:
        """Frames that reached a dark or unconnected port of this switch."""
        return sum(port.dark_frames for port in self.ports)


class AdminClient:
    """Typed orders to one emulator; blocking, reconnects for each order."""

    def __init__(self, host: str, port: int, *, timeout_s: float = PATIENCE_S) -> None:
        self._endpoint = (host, port)
        self._timeout_s = timeout_s

    def counters(self) -> OcsCounters:
        answer = self._order({"op": "counters"})
        return OcsCounters(
            tuple(PortCounters(**port) for port in answer["ports"]),
            answer["lost_inside"],
            answer["moves"],
            answer["cross_connects"],
        )

    def fault(self, kind: FaultKind, *, times: int | None = None, delay_s: float = 0.0) -> None:
        """Arm a fault for the next ``times`` applicable commands, or until :meth:`clear`."""
        order = {"op": "fault", "fault": kind.value, "times": times, "delay_s": delay_s}
        self._order(order)

    def clear(self) -> None:
        """End all faults."""
        self._order({"op": "clear"})

    def block_port(self, port: int) -> tuple[int, int]:
        """Give a port to a foreign cross-connect; returns the cross-connect as (ingress,
        egress).
        """
        answer = self._order({"op": "block-port", "port": port})
        return answer["ingress"], answer["egress"]

    def link(self, port: int | str, *, up: bool) -> None:
        """Plug in or unplug the device at a ToR port."""
        self._order({"op": "link", "port": port, "up": up})

    def commands(self) -> int:
        """Number of commands since the start by which the emulator changed a ToR switch."""
        count: int = self._order({"op": "commands"})["commands"]
        return count

    def unblock(self) -> None:
        """Remove the cross-connect made by :meth:`block_port`."""
        self._order({"op": "unblock"})

    def alarm(self, port: int, severity: str, code: str, text: str = "") -> None:
        """Raise an alarm of a port (severity CR, MJ or MN); CL ends the alarm of the same code."""
        fields = {"port": port, "severity": severity, "code": code, "text": text}
        self._order({"op": "alarm", **fields})

    def input_power(self, port: int, dbm: float | None) -> None:
        """Set the power at an ingress port; None: no light at the port, and none at its egress
        port.
        """
        self._order({"op": "input-power", "port": port, "dbm": dbm})

    def shutter(self, port: int, *, closed: bool) -> None:
        """Close or open the shutter of a port, as another client may do: light that comes in or
        goes out there is cut.
        """
        self._order({"op": "shutter", "port": port, "closed": closed})

    def _order(self, order: Mapping[str, object]) -> dict[str, Any]:
        where = f"emulator at {self._endpoint[0]}:{self._endpoint[1]}"
        try:
            with socket.create_connection(self._endpoint, timeout=self._timeout_s) as connection:
                connection.sendall(json.dumps(order).encode() + b"\n")
                with connection.makefile("rb") as lines:
                    answer: dict[str, Any] = json.loads(lines.readline(_MAX_LINE_BYTES) or b"null")
        except (OSError, ValueError) as error:
            raise AdminError(f"{where}: {error}") from error
        if not isinstance(answer, dict) or not answer.get("ok"):
            reason = answer.get("error") if isinstance(answer, dict) else "no answer"
            raise AdminError(f"{where} refuses {order['op']}: {reason}")
        return answer


class AdminServer:
    """Hands each request to the handler of the request's ``op``."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Serve; returns the address, with the chosen port if ``port`` is 0."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_LINE_BYTES)
        bound: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the client left, or sent a line without end
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Mapping[str, object]:
        try:
            request = _request(line)
            handler = self._handlers.get(str(request.get("op")))
            if handler is None:
                raise AdminError(
                    f"no op {request.get('op')!r}; there are {', '.join(self._handlers)}"
                )
            return {"ok": True, **await handler(request)}
        except Exception as error:  # an experimenter's mistake must not end the device
            return {"ok": False, "error": f"{error}"}


def _request(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except ValueError:
        request = None
    if not isinstance(request, dict):
        shown = line[:_SHOWN_BYTES].decode(errors="replace").strip()
        raise AdminError(f'a request is a JSON object such as {{"op": "clear"}}, not {shown!r}')
    return request


def arm(faults: Faults, request: Mapping[str, Any], played: Collection[FaultKind]) -> FaultKind:
    """Arm the fault named in a request.

    Raises AdminError for an invalid request, and for a fault not in ``played``, the faults of the
    emulator.
    """
    name = request.get("fault")
    kind = next((kind for kind in played if kind.value == name), None)
    if kind is None:
        known = ", ".join(kind.value for kind in FaultKind if kind in played)
        raise AdminError(f"this emulator has no fault {name!r}; there are {known}")
    times, delay_s = request.get("times"), request.get("delay_s", 0.0)
    if not (times is None or (type(times) is int and times > 0)):
        raise AdminError(f"times must be a positive number or null, not {times!r}")
    if type(delay_s) not in (int, float) or delay_s < 0:
        raise AdminError(f"delay_s must be a number of seconds, not {delay_s!r}")
    faults.arm(kind, times, delay_s)
    return kind
