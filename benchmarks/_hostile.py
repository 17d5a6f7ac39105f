"""Requests to a REST server that no client would send, from several clients at a time.

Malformed heads and bodies, ambiguous framing, bytes that are not HTTP, sent slowly or at once, with
and without tokens; meanwhile another client asks for /readyz. A seed determines each request.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from hydra.access import Role

_CLIENTS: Final = 8
_PATIENCE_S: Final = 15.0
_SILENCE_S: Final = 1.0
_PROBE_EVERY_S: Final = 0.05
_SLOW: Final = 0.02
_STATUS: Final = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
_HOLE: Final = re.compile(r"\{\w+\}")
_NAMES: Final = (
    "r1",
    "h11",
    "p1",
    "1",
    "-1",
    "%00",
    "%2e%2e%2f",
    "%f0%9f",
    "x" * 3000,
    "r1%0d%0ax: y",
)
_METHODS: Final = (
    "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PRI", "get",
)  # fmt: skip
_VALUES: Final = (
    "null", "true", "-1", "0", "1e308", "1e400", "NaN", "-Infinity", "9" * 5000, '"r1"', '"h11"',
    '""', '"\\u0000"', '"\\ud800"', '"\\u202e"', "[]", "{}", '"' + "x" * 60_000 + '"',
    "[" * 900 + "]" * 900, "[" * 30_000, '{"a":' * 20_000, "1970-01-01", '"1970-01-01T00:00:00Z"',
)  # fmt: skip
_KEYS: Final = (
    "src", "dst", "bandwidth_mbps", "start", "end", "priority", "entries", "demand", "racks",
    "demand_matrix", "mbps", "url", "kinds", "backlog_mb", "elephants", "mode", "epoch_s",
    "\\u0000",
)  # fmt: skip
_TYPES: Final = (
    "application/json", "application/json; charset=utf-16", "text/plain", "application/xml",
    "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "\xff/\xfe", "",
)  # fmt: skip
_AMBIGUOUS: Final = (
    ("Content-Length: {n}", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Content-Length: {n}"),
    ("Content-Length: {n}", "Content-Length: 0"),
    ("Content-Length: 0, {n}",),
    ("Content-Length: +{n}",),
    ("Content-Length: 0x{n}",),
    ("Content-Length: -1",),
    ("Content-Length : {n}",),
    ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    ("Transfer-Encoding: xchunked",),
    ("Transfer-Encoding: chunked, gzip",),
    ("Transfer-Encoding : chunked",),
    ("Transfer-Encoding:\x0bchunked",),
    ("X: y\r\n Transfer-Encoding: chunked", "Content-Length: {n}"),
)
_SMUGGLED: Final = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Smuggled: 1\r\n\r\n"


_ALLOWED: Final = (
    ("POST", "/v1/reservations", Role.TENANT),
    ("POST", "/v1/groups", Role.TENANT),
    ("PATCH", "/v1/reservations/1", Role.TENANT),
    ("PUT", "/v1/agents/h11/backlog", Role.AGENT),
)
_ENDLESS: Final = ("/v1/events", "/v1/agents/{server_name}/circuits")


@dataclass(frozen=True, slots=True)
class Request:
    kind: str
    data: bytes
    most_answers: int
    """Number of requests; more answers mean that the server took a part of a request for another
    request.
    """


@dataclass(slots=True)
class Outcome:
    """Outcome of an assault."""

    statuses: Counter[int] = field(default_factory=Counter)
    """0: the connection ended without an answer."""
    requests: Counter[str] = field(default_factory=Counter)
    escapes: list[str] = field(default_factory=list)
    probes_ms: list[float] = field(default_factory=list)
    unanswered_probes: int = 0
    lasted_s: float = 0.0


def operations(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Methods and paths described by an OpenAPI document, without endless streams."""
    return [
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method in item
        if method.upper() in _METHODS and path not in _ENDLESS
    ]


def requests(
    chance: random.Random, described: Sequence[tuple[str, str]], tokens: Mapping[Role, str]
) -> Iterator[Request]:
    """Requests without end; ``described``: methods, and paths with holes."""
    while True:
        method, path = chance.choice(described)
        path = _HOLE.sub(lambda _: chance.choice(_NAMES), path)
        token = chance.choice(("", "hydra_none_x", "\xff", *tokens.values(), *tokens.values()))
        match chance.randrange(8):
            case 0:
                yield _strange_head(chance, method, path, token)
            case 1:
                yield _ambiguous(chance, path, token)
            case 2:
                yield Request("bytes", chance.randbytes(chance.choice((1, 30, 3000, 100_000))), 1)
            case 3:
                yield _packed(chance, method, path, token)
            case 4 if method == "GET":
                query = "&".join(
                    f"{chance.choice(_KEYS)}={chance.choice(_NAMES)}"
                    for _ in range(chance.choice((1, 5, 300)))
                )
                yield Request("queries", _head(method, f"{path}?{query}", token) + b"\r\n", 1)
            case 5 | 6:
                method, path, role = chance.choice(_ALLOWED)
                yield _with_body(chance, method, path, tokens[role])
            case _:
                yield _with_body(chance, method, path, token)


def _head(method: str, path: str, token: str, *lines: str) -> bytes:
    if token:
        lines = (f"Authorization: Bearer {token}", *lines)
    text = "\r\n".join(
        (f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *lines)
    )
    return text.encode("latin-1", "replace") + b"\r\n"


def _strange_head(chance: random.Random, method: str, path: str, token: str) -> Request:
    count = chance.choice((1, 100, 3000))
    lines = chance.choice(
        (
            [f"X-{number}: y" for number in range(count)],
            ["X: " + "y" * 80 * count],
            ["Host: example.org"],
            ["Cookie: " + "a=b; " * count],
            ["Expect: 100-continue"],
            ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x"],
            ["Accept: " + ",".join(["a/b;q=0.1"] * count)],
            ["If-None-Match: " + ",".join(['"x"'] * count), "If-Match: *"],
            ["Prefer: " + ",".join(["wait=1e9"] * count), "Idempotency-Key: " + "k" * count],
            ["Last-Event-ID: " + "9" * count, "Accept: text/event-stream"],
            ["Origin: null", "Sec-Fetch-Site: cross-site"],
            ["Range: bytes=" + "0-1," * count],
            ["X: \x00\x01\x7f"],
            [": no name", "no colon"],
        )
    )
    method = chance.choice((method, *_METHODS))
    path = chance.choice((path, "*", f"http://x{path}", f"//x/..{path}", path + "#x", "\xff", " "))
    return Request("heads", _head(method, path, token, *lines) + b"\r\n", 2)  # 100, and one


def _ambiguous(chance: random.Random, path: str, token: str) -> Request:
    lines = chance.choice(_AMBIGUOUS)
    body = b"0\r\n\r\n" + _SMUGGLED
    head = _head("POST", path, token, "Content-Type: application/json", *lines)
    head = head.replace(b"Connection: close\r\n", b"").replace(b"{n}", b"%d" % len(body))
    return Request("ambiguous framing", head + b"\r\n" + body, 1)


def _body(chance: random.Random) -> bytes:
    count = chance.choice((1, 3, 3, 200, 5000))
    pairs = ",".join(
        f'"{chance.choice(_KEYS)}":{chance.choice(_VALUES)}' for _ in range(min(count, 9))
    )
    text = chance.choice(
        (
            f"{{{pairs}}}",
            f"[{','.join([chance.choice(_VALUES)] * min(count, 99))}]",
            "{" + ",".join(f'"k{number}":1' for number in range(count)) + "}",
            json.dumps({"demand": [{"src": "r1", "dst": "r2", "mbps": 1}] * count}),
            json.dumps({"entries": [{"src": "h11", "dst": "h21", "bandwidth_mbps": 1}] * count}),
            json.dumps({"src": "h11", "dst": "h21", "bandwidth_mbps": count}),
            chance.choice(_VALUES),
            "1" * 2_000_000,
        )
    )
    data = text.encode(chance.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-32")), "replace")
    if chance.random() < 0.2:
        broken = bytearray(data)
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        data = bytes(broken)
    return data


def _with_body(chance: random.Random, method: str, path: str, token: str) -> Request:
    data, kind = _body(chance), chance.choice((*[_TYPES[0]] * 9, *_TYPES))
    lines = [f"Content-Type: {kind}"]
    if chance.random() < 0.7:
        lines.append(f"Content-Length: {len(data) + chance.choice((0, 0, 0, 0, 0, -1, 1))}")
        return Request("bodies", _head(method, path, token, *lines) + b"\r\n" + data, 1)
    size = chance.choice((1000, 65_536))
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    chunks = b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in parts)
    end = chance.choice((b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"-1\r\n", b"f" * 40 + b"\r\n", b""))
    head = _head(method, path, token, *lines, "Transfer-Encoding: chunked")
    return Request("chunks", head + b"\r\n" + chunks + end, 1)


def _packed(chance: random.Random, method: str, path: str, token: str) -> Request:
    data = gzip.compress(chance.choice((b"[" * 10_000_000, b'{"demand": []}', b"0" * 1000)), 1)
    lines = ["Content-Type: application/json", "Content-Encoding: gzip"]
    head = _head(method, path, token, *lines, f"Content-Length: {len(data)}")
    return Request("gzip", head + b"\r\n" + data, 1)


def _receive(connection: socket.socket) -> bytes:
    """The next bytes; if the server is silent, ends the request's side of the connection."""
    try:
        return connection.recv(65536)
    except TimeoutError:
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(_PATIENCE_S)
        return connection.recv(65536)


def _exchange(port: int, request: Request, slowly: bool, chance: random.Random) -> bytes:
    """All bytes until the end of the connection. Raises TimeoutError if the connection stays
    open.
    """
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S) as connection:
        with suppress(ConnectionError):
            data = request.data
            while slowly and data and len(request.data) < 5000:
                size = chance.randrange(1, 200)
                connection.sendall(data[:size])
                data = data[size:]
                time.sleep(0.005)
            connection.sendall(data)
        connection.settimeout(_SILENCE_S)
        with suppress(ConnectionError):
            while more := _receive(connection):
                if len(answer) < 1 << 20:
                    answer += more
    return answer


def assault(
    port: int,
    described: Sequence[tuple[str, str]],
    tokens: Mapping[Role, str],
    count: int,
    seed: int,
    advance: Callable[[], object] = lambda: None,
) -> Outcome:
    """Send ``count`` requests to the server on loopback, and ask for /readyz meanwhile."""
    outcome, over, lock = Outcome(), threading.Event(), threading.Lock()
    numbers = iter(range(count))

    def attack(number: int) -> None:
        chance = random.Random(_CLIENTS * seed + number)
        stream = requests(chance, described, tokens)
        while True:
            with lock:
                if next(numbers, None) is None:
                    return
            request = next(stream)
            statuses, escape = [0], ""
            try:
                answer = _exchange(port, request, chance.random() < _SLOW, chance)
                found = _STATUS.findall(answer.partition(b"X-Smuggled")[0])
                statuses = [int(status) for status in found] or [0]
                if 500 in statuses:
                    escape = "answered with 500"
                elif len(found) > request.most_answers:
                    escape = f"{len(found)} answers"
            except TimeoutError:
                escape = f"no end within {_PATIENCE_S:g} s"
            except OSError:
                pass
            with lock:
                outcome.requests[request.kind] += 1
                outcome.statuses.update(statuses)
                if escape:
                    outcome.escapes.append(f"{escape}: {request.data[:300]!r}")
                advance()

    def probe() -> None:
        while not over.wait(_PROBE_EVERY_S):
            began_s = time.monotonic()
            asked = Request(
                "", b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 1
            )
            with suppress(OSError):
                if _STATUS.match(_exchange(port, asked, False, random.Random(0))):
                    outcome.probes_ms.append(1000 * (time.monotonic() - began_s))
                    continue
            outcome.unanswered_probes += 1

    began_s = time.monotonic()
    prober = threading.Thread(target=probe)
    prober.start()
    attackers = [threading.Thread(target=attack, args=(number,)) for number in range(_CLIENTS)]
    for thread in attackers:
        thread.start()
    for thread in attackers:
        thread.join()
    over.set()
    prober.join()
    outcome.lasted_s = time.monotonic() - began_s
    return outcome
