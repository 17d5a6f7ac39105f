"""Entity tags and preconditions (RFC 9110, section 13), and idempotency keys."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel

from hydra.errors import Changed
from hydra.reservations.reservation import RetryKey


def etag(document: BaseModel) -> str:
    """A strong validator: any change of the document changes the tag."""
    return f'"{_digest(document)[:32]}"'


def _digest(document: BaseModel) -> str:
    return hashlib.sha256(document.model_dump_json().encode()).hexdigest()


def matches(tag: str, header: str) -> bool:
    """Whether ``tag`` is in the list of an If-Match or If-None-Match header."""
    listed = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return tag in listed or listed == ["*"]


def require(if_match: str, document: BaseModel) -> None:
    """Raises Changed unless ``document`` is as the client saw it."""
    if not matches(etag(document), if_match):
        raise Changed(
            "the resource has changed since the client read the ETag: read the resource again"
        )


def retry_key(key: str | None, body: BaseModel) -> RetryKey | None:
    """The key with a digest of the request's body."""
    return None if key is None else RetryKey(key, _digest(body))
