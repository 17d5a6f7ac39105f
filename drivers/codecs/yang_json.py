"""JSON of YANG models (RFC 7951), as RESTCONF (RFC 8040) and gNMI carry it; RESTCONF's errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from hydra import foreign_json

MAX_JSON_BYTES: Final = 16 << 20
"""Longest accepted text: 1024 ports on each side take less than 1 MiB a list."""
_SHOWN: Final = 60

Json: TypeAlias = Any


class YangJsonError(Exception):
    """Text or values outside a model."""


def parse(text: bytes) -> Json:
    if len(text) > MAX_JSON_BYTES:
        raise YangJsonError(f"{len(text)} bytes of JSON, more than {MAX_JSON_BYTES}")
    try:
        return foreign_json.loads(text)
    except foreign_json.TooDeep as error:
        raise YangJsonError(str(error)) from None
    except ValueError:
        raise YangJsonError(f"not JSON: {shown(text[:_SHOWN].decode('latin-1'))}") from None


def as_object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise YangJsonError(f"not an object: {shown(str(value))}")
    return value


def as_array(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise YangJsonError(f"not a list: {shown(str(value))}")
    return value


def member(value: Mapping[str, Json], module: str, name: str) -> Json:
    """A member with or without its module's name."""
    for spelt in (f"{module}:{name}", name):
        if spelt in value:
            return value[spelt]
    raise YangJsonError(f"no {name} in {shown(', '.join(value))}")


def parse_refusal(text: bytes) -> str:
    """The reason in a RESTCONF error; empty if there is no readable reason."""
    try:
        errors = as_object(member(as_object(parse(text)), "ietf-restconf", "errors"))
        reasons = [as_object(error) for error in as_array(errors.get("error", []))]
    except YangJsonError:
        return ""
    messages = (error.get("error-message") or error.get("error-tag") for error in reasons)
    return "; ".join(str(reason) for reason in messages if reason)


def shown(text: str) -> str:
    """The beginning of a text, for an error message."""
    return repr(text[:_SHOWN])
