"""Checks of devices by drivers before any connection.

A driver reports objections as :class:`~hydra.errors.Problem`, with ``path`` relative to the device:
``address``, ``login.password_env``, ``options.baud``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from hydra.config.patterns import suggest
from hydra.errors import Problem
from hydra.model import Login, Plane, Rack

PlaneCheck = Callable[[Plane], Iterable[Problem]]
RackCheck = Callable[[Rack], Iterable[Problem]]

_ENDPOINT: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?))"
    r":(?P<port>[0-9]{1,5})"
)
_LONGEST_LABEL: Final = 63
"""Characters between two dots of a name (RFC 1035)."""


def parse_endpoint(text: str) -> tuple[str, int] | None:
    """Parse ``host:port`` with the port in 1..65535; IPv6 hosts stand in brackets."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65535 or _odd_label(text) is not None:
        return None
    return match["v6"] or match["host"], int(match["port"])


def endpoint_problems(address: str) -> Iterator[Problem]:
    """Problems of the address of a network device, which must be ``host:port``."""
    if address and parse_endpoint(address) is None:
        odd = _odd_label(address)
        yield Problem("address", f"{address!r} is not host:port{'' if odd is None else odd}")


def _odd_label(address: str) -> str | None:
    """Describe the mistake in a label of a host name."""
    match = _ENDPOINT.fullmatch(address)
    labels = () if match is None or match["host"] is None else match["host"].split(".")
    if "" in labels:
        return ": the host has two dots in a row"
    if any(len(label) > _LONGEST_LABEL for label in labels):
        return f": a part of the host, between dots, has more than {_LONGEST_LABEL} characters"
    return None


def no_login_problems(login: Login | None) -> Iterator[Problem]:
    """Problems of a login for a protocol without users."""
    if login is not None:
        yield Problem("login", "this driver's protocol has no users: remove `login`")


def login_problems(login: Login | None, *, keys: bool = False) -> Iterator[Problem]:
    """Problems of a login with a user and exactly one secret; ``keys``: SSH keys are permitted."""
    ways = "password_env or password_file" + (" or key_file" if keys else "")
    if login is None:
        yield Problem("login", f"is missing: this device wants a username, and {ways}")
        return
    if login.key_file is not None and not keys:
        yield Problem("login.key_file", "this device takes no keys: remove `key_file`")
    given = [login.password_env, login.password_file] + ([login.key_file] if keys else [])
    if sum(way is not None for way in given) != 1:
        yield Problem("login", f"needs exactly one of {ways}")


class NoOptions(BaseModel):
    """Options of drivers that need only an address."""

    model_config = ConfigDict(extra="forbid")


def option_problems(model: type[BaseModel], options: Mapping[str, object]) -> Iterator[Problem]:
    """Problems of a device's ``options`` found by ``model``, which must forbid extra keys."""
    try:
        model.model_validate(dict(options))
    except ValidationError as error:
        for detail in error.errors():
            where = ".".join(map(str, ("options", *detail["loc"])))
            if detail["type"] == "extra_forbidden":
                key = str(detail["loc"][-1])
                hint = suggest(key, sorted(model.model_fields))
                yield Problem(where, f"is not an option of this driver; {hint}")
            else:
                yield Problem(where, f"{detail['msg'][:1].lower()}{detail['msg'][1:]}")
