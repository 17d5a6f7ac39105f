"""Request bodies: parsed and validated outside the event loop; an invalid body costs little.

Large bodies are read in separate threads, neither in the event loop nor in the threads of routes,
so that other requests do not wait.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from hydra import foreign_json
from hydra.names import did_you_mean

MOST_KEYS: Final = 10_000
"""Most keys of one JSON object."""
MOST_ERRORS: Final = 20
"""Most errors reported to a client; further errors are counted."""
_SMALL_BYTES: Final = 4096
_UNKNOWN: Final = "extra_forbidden"
_EXTRA: Final = "Extra inputs are not permitted"
_SHOWN: Final = 60
"""Most characters of a value that a message repeats."""
_READERS: Final = ThreadPoolExecutor(2, "bodies")


class MalformedBody(Exception):
    """A body that is not JSON, or is ambiguous; the message says where."""


class InvalidRequest(RequestValidationError):
    """A body or query of the wrong form; holds the first errors of :attr:`count`."""

    def __init__(self, errors: Sequence[Any], count: int) -> None:
        self.count = count
        super().__init__(errors)


class BodyRoute(APIRoute):
    """A route that gets its body as a model, from :func:`read`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        annotation: Any = self.body_field.field_info.annotation
        model: TypeAdapter[Any] = TypeAdapter(annotation)

        async def reading(request: Request) -> Response:
            body = await request.body()
            if not body:
                return await handle(request)
            if len(body) <= _SMALL_BYTES:
                value = read(body, model)
            else:
                loop = asyncio.get_running_loop()
                value = await loop.run_in_executor(_READERS, read, body, model)
            return await handle(_Read(request, body, value))

        return reading


class _Read(Request):
    """A request whose body has been read and validated: the body is not validated again."""

    def __init__(self, request: Request, body: bytes, value: object) -> None:
        super().__init__(request.scope, request.receive)
        self._body = body
        self._json = value


def read(body: bytes, model: TypeAdapter[Any]) -> object:
    """``body`` as ``model``. Raises MalformedBody, InvalidRequest."""
    try:
        data = foreign_json.loads(body, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise MalformedBody(f"{error.msg} at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise MalformedBody(f"{error.reason} at byte {error.start}") from None
    except foreign_json.TooDeep as error:
        raise MalformedBody(str(error)) from None
    except ValueError:
        raise MalformedBody("a number has too many digits") from None
    try:
        return model.validate_python(data)
    except ValidationError as error:
        details = error.errors(include_url=False)[:MOST_ERRORS]
        details.sort(
            key=lambda item: item["type"] != _UNKNOWN
        )  # often the cause of another, missing field
        raise InvalidRequest(
            [
                {
                    **item,
                    "loc": ("body", *item["loc"]),
                    "known": _fields(model, item["loc"]) if item["type"] == _UNKNOWN else (),
                }
                for item in details
            ],
            error.error_count(),
        ) from None


def unknown_names(source: str, names: Sequence[str], known: Sequence[str]) -> InvalidRequest:
    """The error for ``names`` in ``source`` ("query"), which are not among ``known``."""
    details = [
        {"type": _UNKNOWN, "loc": (source, name[:100]), "msg": _EXTRA, "known": known}
        for name in names[:MOST_ERRORS]
    ]
    return InvalidRequest(details, len(names))


def _fields(model: TypeAdapter[Any], location: Sequence[str | int]) -> Iterable[str]:
    """Names of the fields on the level of ``location``, if the model's schema has them."""
    schema = model.json_schema()
    documents, node = schema.get("$defs", {}), schema
    for step in location[:-1]:
        fields = node.get("properties", {})
        node = node.get("items", {}) if isinstance(step, int) else fields.get(step, {})
        for choice in (node, *node.get("anyOf", ())):
            if "$ref" in choice:
                node = documents[choice["$ref"].rpartition("/")[2]]
    return list(node.get("properties", ()))


def in_words(error: Mapping[str, Any]) -> str:
    """Words about pydantic's error in a field, with the value, if short, and the remedy."""
    words, value = error["msg"], error.get("input")
    if words == "Field required":
        return "is missing"
    if words == _EXTRA:
        name = str(error["loc"][-1])
        if meant := did_you_mean(name, error.get("known", ())):
            return f"is unknown{meant}"
        return "is unknown: leave the field out, or look up the name in /openapi.json"
    if not words.startswith("Input should be "):
        return str(words)
    wanted = words.removeprefix("Input should be ").partition(", unable to parse")[0]
    if isinstance(value, str | int | float | None):
        shown = repr(value) if isinstance(value, str) else json.dumps(value)
        if len(shown) <= _SHOWN:
            return f"must be {wanted}, not {shown}"
    return f"must be {wanted}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_KEYS:
        raise MalformedBody(f"an object has {len(pairs)} keys; the most is {MOST_KEYS}")
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise MalformedBody(
            f"the key {twice[:100]!r} occurs twice in an object: send each key once"
        )
    return found
