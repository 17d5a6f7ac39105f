"""Schema of the configuration file: a model per section, before the expansion of patterns.

The field names are the keys of the file. The schema limits single values; checks of several values
are in :mod:`hydra.config.checks` and :mod:`hydra.config.addresses`.
"""

from __future__ import annotations

import copy
import reprlib
import typing
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache
from itertools import islice
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    PlainValidator,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from hydra.config.patterns import MAX_NAME_LENGTH, suggest
from hydra.config.problems import MOST_REPORTED
from hydra.config.source import Path
from hydra.model import SubstrateKind
from hydra.policy import NotNegative, Policy, Positive, policy_keys
from hydra.settings import ControllerSettings, WorkerSettings

_CONTROLLER: Final = ControllerSettings()
_WORKERS: Final = WorkerSettings()
_MOST_ERRORS: Final = 10_000
_CLOSE: Final = 0.8
"""Similarity, up to 1, from which an unknown key is a typing error rather than a misplaced key."""
_MOST_LISTED: Final = 1024
"""Largest number of addresses, prefixes, subnets or patterns in a list."""


def _whole(value: object) -> int | str:
    """An integer, or a template for an integer."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("whole_type", "neither a whole number nor text")
    return value


def _number_or_word(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """A number or a permitted word: reports a single error instead of an error for each
    alternative.
    """
    try:
        return handler(value)
    except ValidationError as error:
        limits: dict[str, Any] = {}
        for detail in error.errors(include_url=False):
            limits |= detail.get("ctx", {})
        word = str(limits.pop("expected"))
        bounds = {"ge": "at least", "gt": "greater than", "le": "at most"}
        numbers = [f"{bounds[name]} {limit}" for name, limit in limits.items()]
        expected = f"{word} or a whole number {' and '.join(numbers)}".strip()
        raise PydanticCustomError(
            "number_or_word", "must be {expected}", {"expected": expected}
        ) from error


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Text = Annotated[str, Field(min_length=1, pattern=r"^[^\t\n\r]*$")]
"""A line; the YAML reader refuses other invisible characters."""
Texts = Annotated[list[Text], Field(min_length=1, max_length=_MOST_LISTED)]
Names = Annotated[Texts, BeforeValidator(_listed)]
"""A pattern, or a list of patterns."""
Whole = Annotated[int | str, PlainValidator(_whole)]


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class VSwitchEntry(_Section):
    datapath_id: Whole
    bridge: Text
    host_port: Text
    optical_port: Text | None = None
    electrical_port: Text | None = None
    uplink_port: Text | None = None
    """The only uplink, in place of the two uplinks above."""


class ServerEntry(_Section):
    names: Text
    addresses: Texts
    mac: Text
    tor_port: Text
    vswitch: VSwitchEntry | None = None
    """Only if servers tag frames for circuits."""
    guests: Annotated[list[Text], Field(max_length=_MOST_LISTED)] | None = None
    """MAC addresses of guests bridged to the server's port; None: no guests."""


class LoginSection(_Section):
    """A device login, and the location of the secret, which is never in the configuration file."""

    username: Text
    password_env: Text | None = None
    password_file: Text | None = None
    key_file: Text | None = None


class TorEntry(_Section):
    driver: Text
    address: Text
    bridge: str = ""
    """Only if an address serves several switches, such as an OVSDB."""
    datapath_id: Whole | None = None
    native_vlan: Whole | None = None
    """Only if ToR ports have VLANs."""
    electrical_port: Text | None = None
    """Only if servers have a single uplink: the port leads to the electrical network."""
    most_vlans: Annotated[int, Field(ge=1, le=4094)] = 4094
    protected_ports: bool = False
    """Only if OpenFlow alone controls the ToR."""
    login: LoginSection | None = None
    options: Annotated[dict[str, Any], Field(max_length=64)] = {}
    """Keys defined by the driver."""


class RackEntry(_Section):
    names: Text
    kind: Literal["rack", "spine"] = "rack"
    prefixes: Annotated[list[Text], Field(max_length=_MOST_LISTED)] = []
    tor: TorEntry
    servers: list[ServerEntry] = []


class PlaneEntry(_Section):
    names: Text
    driver: Text
    address: Text
    ports: Annotated[int, Field(ge=1, le=100_000)]
    switching_ms: NotNegative
    rate_mbps: Positive
    login: LoginSection | None = None
    options: Annotated[dict[str, Any], Field(max_length=64)] = {}
    """Keys defined by the driver."""


class WiringEntry(_Section):
    racks: Names
    planes: Names
    tor_port: Text
    ingress: Whole
    egress: Whole
    rate_mbps: Positive | None = None
    """Rate of the ToR port, if different from the plane's rate."""


class ElectricalSection(_Section):
    rate_mbps: Positive


class VlanSection(_Section):
    circuits: Text
    """First and last VLAN-ID, ``100-199``."""
    parking: int | None = None
    """Only if ToR ports have VLANs."""


class EtcdTlsSection(_Section):
    authority: Text
    certificate: Text | None = None
    key: Text | None = None


class EtcdSection(_Section):
    endpoints: Annotated[list[Text], Field(min_length=1, max_length=16)]
    prefix: Text = "/hydra/"
    tls: EtcdTlsSection | None = None
    user: LoginSection | None = None
    lease_s: Annotated[int, Field(ge=1, le=60)] = 2


class StoreSection(_Section):
    """The store shared by several controllers, in place of a journal file."""

    etcd: EtcdSection


class WorkersSection(_Section):
    """Processes that hold the connections of switches for the controller."""

    listen: Text
    shards: Annotated[int, Field(ge=1, le=4096)] = _WORKERS.shards
    lease_s: Annotated[float, Field(ge=1, le=60)] = _WORKERS.lease_s
    key: Text | None = None
    known: Text | None = None


class ControllerSection(_Section):
    openflow: Text = f"{_CONTROLLER.openflow_host}:{_CONTROLLER.openflow_port}"
    rest: Text = f"{_CONTROLLER.rest_host}:{_CONTROLLER.rest_port}"
    journal: Text = _CONTROLLER.journal
    tokens: Text | None = None
    tls_certificate: Text | None = None
    tls_key: Text | None = None
    openflow_certificate: Text | None = None
    openflow_key: Text | None = None
    openflow_authority: Text | None = None
    url: Text | None = None
    authority: Text | None = None
    requests_per_s: Positive = _CONTROLLER.requests_per_s
    hosts: Annotated[list[Text], Field(max_length=_MOST_LISTED)] = []
    webhook_networks: Annotated[list[Text], Field(max_length=_MOST_LISTED)] = []
    connections: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    connections_per_address: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    audit_log: Text | None = None
    journal_days: Positive = _CONTROLLER.journal_days
    store: StoreSection | None = None
    workers: WorkersSection | None = None


_ModelT = TypeVar("_ModelT", bound=BaseModel)
_SettingsT = TypeVar("_SettingsT")


def policy_model(
    settings: type[Any] = Policy, only: Container[str] | None = None
) -> Callable[[type[_ModelT]], type[_ModelT]]:
    """Decorator that adds the keys of a class in :mod:`hydra.policy` to a model: all keys, or
    ``only``.

    A section becomes a separate model, named after its key.
    """
    keys: dict[str, Any] = {}
    for key in policy_keys(settings):
        if only is not None and key.name not in only:
            continue
        if is_dataclass(key.default):
            empty: type[_Section] = type(f"{key.name.title()}Section", (_Section,), {})
            section = policy_model(type(key.default))(empty)
            keys[key.name] = section, Field(section(), description="Keys left out stay.")
        else:
            about = None if key.null is None else f"Null: {key.null.meaning}."
            strict = False if isinstance(key.default, Enum) else None
            kind = key.type
            if any(get_origin(part) is Literal for part in get_args(kind)):
                kind = Annotated[kind, WrapValidator(_number_or_word)]
            keys[key.name] = kind, Field(key.default, description=about, strict=strict)

    def with_keys(model: type[_ModelT]) -> type[_ModelT]:
        return create_model(
            model.__name__,
            __base__=model,
            __doc__=model.__doc__,
            __module__=model.__module__,
            **keys,
        )

    return with_keys


@policy_model()
class PolicySection(_Section):
    pass


def _frozen(settings: type[_SettingsT], section: BaseModel) -> _SettingsT:
    return settings(
        **{
            key.name: _frozen(type(key.default), value) if isinstance(value, BaseModel) else value
            for key, (_, value) in zip(policy_keys(settings), section, strict=True)
        }
    )


def _read_policy(_: object, handler: GetCoreSchemaHandler) -> CoreSchema:
    return core_schema.no_info_after_validator_function(
        lambda section: _frozen(Policy, section), handler(PolicySection)
    )


class Document(_Section):
    """The whole file.

    Sections have defaults so that valid sections can be checked beside a broken section;
    :data:`REQUIRED_SECTIONS` are mandatory.
    """

    fabric: Annotated[Text, Field(max_length=MAX_NAME_LENGTH)] = "unnamed"
    substrate: Text = SubstrateKind.DUAL_HOMED_VLAN.value
    circuits: Literal["bidirectional", "unidirectional"] = "bidirectional"
    subnets: list[Text] = Field(default_factory=list, max_length=_MOST_LISTED)
    controller: ControllerSection = ControllerSection()
    racks: list[RackEntry] = Field(default_factory=list)
    planes: list[PlaneEntry] = Field(default_factory=list)
    wiring: list[WiringEntry] = Field(default_factory=list)
    electrical: ElectricalSection = ElectricalSection(rate_mbps=1.0)
    server_rate_mbps: Positive = 1.0
    vlans: VlanSection = VlanSection(circuits="1-4093", parking=4094)
    policy: Annotated[Policy, GetPydanticSchema(_read_policy)] = Policy()


REQUIRED_SECTIONS: Final = (
    "fabric",
    "subnets",
    "racks",
    "planes",
    "wiring",
    "electrical",
    "server_rate_mbps",
    "vlans",
)


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The readable part of a file. ``broken`` sections hold defaults, and must not be checked."""

    document: Document
    broken: frozenset[str]
    problems: tuple[SchemaProblem, ...]
    """At most :data:`~hydra.config.problems.MOST_REPORTED`."""
    more: int = 0
    """Number of further problems; if above 0, ``document`` contains nothing from the file."""


def parse_document(data: Mapping[str, Any]) -> Parsed:
    """Validate the plain data of a file section by section; never raises for bad content."""
    missing = tuple(name for name in REQUIRED_SECTIONS if name not in data)
    problems = [SchemaProblem((name,), "this section is missing") for name in missing]
    try:
        return Parsed(Document.model_validate(data), frozenset(missing), tuple(problems))
    except ValidationError as error:
        errors, count = _errors(error, data), error.error_count()
    broken = set(missing)
    cleaned = copy.deepcopy(dict(data))
    for item in errors:
        path = tuple(item["loc"])
        if len(problems) < MOST_REPORTED:
            problems.append(SchemaProblem(path, _message(dict(item))))
        if item["type"] == "extra_forbidden":
            _remove(cleaned, path)
        else:
            broken.add(str(path[0]))
    for name in broken:
        cleaned.pop(name, None)
    more = len(missing) + count - len(problems)
    if more:
        return Parsed(Document(), frozenset(Document.model_fields), tuple(problems), more)
    return Parsed(Document.model_validate(cleaned), frozenset(broken), tuple(problems))


def _errors(error: ValidationError, data: Mapping[str, Any]) -> Sequence[ErrorDetails]:
    """The errors; if there are too many, the errors of an excerpt from ``data``."""
    if error.error_count() <= _MOST_ERRORS:
        return error.errors(include_url=False)
    try:
        Document.model_validate(_excerpt(data))
    except ValidationError as some:
        # A missing key may only be missing from the excerpt.
        return [item for item in some.errors(include_url=False) if item["type"] != "missing"]
    return ()


def _excerpt(value: object) -> object:
    """``value`` with a part of the entries of each list and mapping."""
    if isinstance(value, Mapping):
        return {key: _excerpt(inner) for key, inner in islice(value.items(), 100)}
    return list(map(_excerpt, value[:3])) if isinstance(value, list) else value


def _remove(data: dict[str, Any], path: Path) -> None:
    inner: Any = data
    for step in path[:-1]:
        inner = inner[step]
    inner.pop(path[-1], None)


_MESSAGES: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "string_type": "must be text, got {input}: put the value in quotes",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be one line without tabs, got {input}",
    "string_too_long": "has more than {max_length} characters: {input}",
    "too_short": "needs at least one entry",
    "too_long": "has {actual_length} entries; the most is {max_length}",
    "list_type": "must be a list, got {input}: write [{input}]",
    "section_for_list": "must be a list, got {input}: put a dash before the first key",
    "model_type": "must be a section with keys, got {input}",
    "int_type": "must be a whole number, got {input}",
    "float_type": "must be a number, got {input}",
    "finite_number": "must be a finite number, got {input}",
    "greater_than": "must be greater than {gt:g}, got {input}",
    "greater_than_equal": "must be at least {ge:g}, got {input}",
    "less_than_equal": "must be at most {le:g}, got {input}",
    "literal_error": "must be {expected}, got {input}",
    "enum": "must be {expected}, got {input}",
    "whole_type": 'must be a whole number or a template such as "{{rack}}", got {input}',
}


def _message(item: Mapping[str, Any]) -> str:
    if item["type"] == "extra_forbidden":
        *parent, key = item["loc"]
        return f"unknown key; {_meant(str(key), _keys_at(tuple(parent)))}"
    if item["input"] is None:
        return "has no value"
    given = reprlib.repr(item["input"])
    if item["type"] == "string_type" and isinstance(item["input"], list | dict):
        given_kind = "a list" if isinstance(item["input"], list) else "a section"
        return f"must be one text, got {given_kind} ({given}): write a single value"
    kind = (
        "section_for_list"
        if item["type"] == "list_type" and isinstance(item["input"], dict)
        else item["type"]
    )
    text = _MESSAGES.get(kind)
    if text is None:
        return f"{item['msg']}, got {given}"
    return text.format(**item.get("ctx", {}), input=given)


def _meant(key: str, known: Sequence[str]) -> str:
    """A hint for an unknown key: the sections with this key, unless a ``known`` key is close."""
    sections = _sections_of_keys().get(key)
    if sections and not get_close_matches(key, known, n=1, cutoff=_CLOSE):
        return f"{key!r} belongs under {' or '.join(sections)}"
    return suggest(key, known)


@cache
def _sections_of_keys() -> Mapping[str, Sequence[str]]:
    """The sections with each key, such as ``racks.tor``."""
    found: dict[str, list[str]] = {}

    def collect(section: type[BaseModel], path: str) -> None:
        for key, field in section.model_fields.items():
            if path:
                found.setdefault(key, []).append(path)
            inner = _find_section(field.annotation)
            if inner is not None:
                collect(inner, f"{path}.{key}" if path else key)

    collect(Document, "")
    return found


def _keys_at(path: Path) -> list[str]:
    """Permitted keys of the section at ``path``."""
    section: type[BaseModel] = Document
    for step in path:
        if isinstance(step, str):
            section = _section_of(section.model_fields[step].annotation)
    return list(section.model_fields)


def _section_of(annotation: object) -> type[BaseModel]:
    section = _find_section(annotation)
    assert section is not None  # noqa: S101
    return section


def _find_section(annotation: object) -> type[BaseModel] | None:
    """The section class inside ``Section``, ``list[Section]`` or ``Section | None``, if any."""
    if annotation is Policy:
        return PolicySection
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = map(_find_section, typing.get_args(annotation))
    return next((section for section in inner if section is not None), None)
