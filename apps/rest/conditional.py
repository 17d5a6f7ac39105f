"""Entity tags and preconditions (RFC 9110, section 13), and idempotency keys."""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

from fastapi import Header, Response, status
from pydantic import BaseModel, WithJsonSchema

from hydra.errors import Changed
from hydra.reservations.reservation import RetryKey

_LONGEST_KEY: Final = 255


def etag(document: BaseModel) -> str:
    """A strong validator: any change of the document changes it."""
    digest = hashlib.sha256(document.model_dump_json().encode()).hexdigest()
    return f'"{digest[:32]}"'


def matches(tag: str, header: str) -> bool:
    """Whether ``tag`` is in the list of an If-Match or If-None-Match header."""
    listed = [one.strip().removeprefix("W/") for one in header.split(",")]
    return tag in listed or listed == ["*"]


IfMatch = Annotated[
    str | None,
    WithJsonSchema({"type": "string"}),
    Header(description="Only if the resource still has this ETag (RFC 9110); else 412."),
]
IfNoneMatch = Annotated[
    str | None,
    WithJsonSchema({"type": "string"}),
    Header(description="304 and no body if the resource still has this ETag (RFC 9110)."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="idempotency-key",
        min_length=1,
        max_length=_LONGEST_KEY,
        description="A repeated request with the same key answers with what the first made.",
    ),
]


def require(if_match: str | None, document: BaseModel) -> None:
    """Raises Changed unless ``document`` is what the client saw."""
    if if_match is not None and not matches(etag(document), if_match):
        raise Changed("the resource has changed since it was read: read it again")


def tagged(document: BaseModel, response: Response, if_none_match: str | None) -> Response | None:
    """Gives ``response`` the document's ETag; the answer to send if the client has it already."""
    tag = etag(document)
    if if_none_match is not None and matches(tag, if_none_match):
        return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return None


def retry_key(key: str | None, body: BaseModel) -> RetryKey | None:
    """The key with a digest of what it came with."""
    if key is None:
        return None
    return RetryKey(key, hashlib.sha256(body.model_dump_json().encode()).hexdigest())
