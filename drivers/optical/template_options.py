"""Options of the template driver: a device's language.

Patterns are regular expressions of RE2 (no back-references, no look-around), which match in time
linear in the text, for any pattern: a device's output can't stall the controller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Annotated, Final, Literal, Protocol, Self

import re2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_FORMAT: Final = re.compile(r"(0[1-9])?d?", re.ASCII)
_SINGLE: Final = frozenset({"ingress", "egress", "output"})
LISTED: Final = frozenset({"ingresses", "egresses", "outputs", "pairs"})
"""Placeholders for several ports, or pairs of ports."""
_EGRESS: Final = ("egress", "output")
_PORT: Final = ("port", "ingress", *_EGRESS)


def _plain(text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise ValueError("may hold printable ASCII only")
    return text


def placeholders(template: str) -> frozenset[str]:
    """The names in a template such as ``connect {ingress:03} {output}``. Raises ValueError."""
    names: set[str] = set()
    for _, name, form, conversion in Formatter().parse(template):
        if name is None:
            continue
        if conversion or not name.isidentifier() or not _FORMAT.fullmatch(form or ""):
            raise ValueError(f"{{{name}}} is no placeholder: write {{name}} or {{name:03}}")
        names.add(name)
    return frozenset(names)


def _holding(*allowed: str) -> Callable[[str], str]:
    """Make a check that a template has only the allowed placeholders."""

    def check(template: str) -> str:
        strange = sorted(placeholders(template) - set(allowed))
        if strange:
            known = ", ".join(f"{{{name}}}" for name in allowed) or "none"
            raise ValueError(f"has no {{{strange[0]}}} to put in (there are: {known})")
        return template

    return check


class Match(Protocol):
    """The used part of a match; re2 has no types of its own."""

    def __getitem__(self, name: str) -> str: ...

    def groupdict(self) -> dict[str, str | None]: ...


class Compiled(Protocol):
    """A pattern, as RE2 has compiled it."""

    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def search(self, line: str) -> Match | None: ...


def compiled(pattern: str) -> Compiled:
    """The pattern, compiled by RE2. Raises ValueError."""
    options = re2.Options()
    options.log_errors = False
    try:
        made: Compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        words = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"is no regular expression of RE2: {words}") from None
    return made


def _pattern(pattern: str) -> str:
    compiled(pattern)
    return pattern


def _row(groups: Mapping[str, tuple[str, ...]]) -> Callable[[str], str]:
    """Make a check that a pattern has a named group of each kind, and no further groups."""

    def check(pattern: str) -> str:
        found = set(compiled(pattern).groupindex)
        for kind, names in groups.items():
            if not found & set(names):
                wanted = " or ".join(f"(?P<{name}>…)" for name in names)
                raise ValueError(f"has no group for the {kind}: {wanted}")
        known = {name for names in groups.values() for name in names}
        if strange := sorted(found - known):
            raise ValueError(f"has a group {strange[0]!r} without a meaning here")
        return pattern

    return check


Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_plain)]
Template = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_plain)]
Pattern = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_pattern)]
Fixed = Annotated[Template, AfterValidator(_holding())]
Move = Annotated[Template, AfterValidator(_holding(*sorted(_SINGLE | LISTED)))]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LoginStep(_Section):
    """Wait until the device has asked ``expect``, then send."""

    expect: Text
    send: Annotated[Template, AfterValidator(_holding("username", "password"))]


class _Table(_Section):
    """A command, and the content of its reply: rows, and meaningless lines."""

    command: Fixed
    ignore: list[Pattern] = []
    """Patterns of meaningless lines. Any other line that is no row is an error."""


class CrossConnectTable(_Table):
    row: Annotated[
        Pattern, AfterValidator(_row({"ingress port": ("ingress",), "egress port": _EGRESS}))
    ]


class SizeTable(_Table):
    row: Annotated[
        Pattern, AfterValidator(_row({"ingress side": ("inputs",), "egress side": ("outputs",)}))
    ]


class Identity(_Section):
    """Vendor and so on of the device: from here or, with ``command``, from its reply's ``row``."""

    vendor: Text = "unknown"
    model: Text = "unknown"
    command: Fixed | None = None
    row: Pattern | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.command is None) != (self.row is None):
            raise ValueError("command and row go together")
        known = {"vendor", "model", "serial", "firmware"}
        if self.row is not None and not known.issuperset(compiled(self.row).groupindex):
            raise ValueError(f"row may have these groups: {', '.join(sorted(known))}")
        return self


class PowerTable(_Table):
    """``{ports}`` in the command stands for the wanted ports; without it, the reply shows all."""

    command: Annotated[Template, AfterValidator(_holding("ports"))]
    row: Annotated[Pattern, AfterValidator(_row({"port": _PORT, "power": ("dbm",)}))]
    no_reading: list[Text] = []
    """Texts in place of a number where there is no reading."""


class StateTable(_Table):
    command: Annotated[Template, AfterValidator(_holding("ports"))]
    row: Annotated[Pattern, AfterValidator(_row({"port": _PORT, "state": ("state",)}))]
    enabled: list[Text]
    disabled: list[Text] = []
    failed: list[Text] = []


class TemplateOptions(_Section):
    """The language of a device."""

    line_end: Literal["\r\n", "\n", "\r"] = "\r\n"
    prompt: Text | None = None
    """Beginning of the line after each reply. Without a prompt, replies end with ``success``."""
    echo: bool = False
    """True if the device repeats each command before the reply."""
    login: list[LoginStep] = []
    login_refused: Pattern | None = None
    setup: list[Fixed] = []
    """Lines sent once per session, before anything else; their replies are ignored."""
    success: Pattern | None = None
    """Pattern of a line that reports a carried-out command."""
    error: Pattern | None = None
    """Pattern of a line that reports a failed command; ``(?P<reason>…)`` holds the reason for the
    error message.
    """
    connect: Move
    disconnect: Move
    pair: Annotated[Template, AfterValidator(_holding(*sorted(_SINGLE)))] = "{ingress},{egress}"
    """Form of each pair in ``{pairs}``."""
    separator: Annotated[str, Field(min_length=1, max_length=8), AfterValidator(_plain)] = ","
    """Text between ports, and between pairs, in a list."""
    at_most: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    """Largest number of pairs or ports in a command."""
    cross_connects: CrossConnectTable
    size: SizeTable | None = None
    identity: Identity = Identity()
    power: PowerTable | None = None
    port_states: StateTable | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.prompt is None:
            if self.success is None:
                raise ValueError("without a prompt, success must match the last line of a reply")
            if self.login or self.setup:
                raise ValueError("login and setup need a prompt, to know when the device is ready")
        for name in ("connect", "disconnect"):
            self._check_move(name, placeholders(getattr(self, name)))
        return self

    def _check_move(self, name: str, found: frozenset[str]) -> None:
        if found & _SINGLE and found & LISTED:
            raise ValueError(f"{name} names one port and lists several: give either form")
        if "pairs" in found:
            found |= placeholders(self.pair)
        ends = (found & {"ingress", "ingresses"}, found & {*_EGRESS, "egresses", "outputs"})
        if name == "connect" and not all(ends):
            raise ValueError("connect has to name both ports, as in {ingress} {output}")
        if name == "disconnect" and not any(ends):
            raise ValueError("disconnect has to name a port, as in {ingress}")

    @property
    def bulk(self) -> bool:
        """True if one command moves several cross-connects."""
        return all(placeholders(move) & LISTED for move in (self.connect, self.disconnect))
