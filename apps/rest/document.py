"""Bodies of requests and documents of responses: common parts of all resources.

A document is made of core data: pydantic reads the attributes with the same names, and the fabric,
as pydantic's context, turns numbers of racks and planes into names. If a name or a shape differs,
the document has a validator before all others. Clients make documents from JSON, which passes such
validators unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Annotated, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from hydra.model import Fabric, PortId
from hydra.reservations.reservation import GONE

MOST_ENTRIES: Final = 10_000
Name = Annotated[str, Field(min_length=1, max_length=255)]
Names = Annotated[list[Name], Field(min_length=1, max_length=MOST_ENTRIES, fail_fast=True)]


class Body(BaseModel):
    """Requests: no coercion, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Document(BaseModel):
    """Responses."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    @classmethod
    def of(cls, fabric: Fabric | None, core: object = None, /, **others: object) -> Self:
        """The document of ``core``; ``others`` replace or add attributes."""
        made_of = cls.attributes(core, **others) if others else core
        return cls.model_validate(made_of, context=fabric)

    @classmethod
    def attributes(cls, core: object, **others: object) -> dict[str, object]:
        """Attributes of ``core`` with the name of a document's field, and ``others``."""
        if is_dataclass(core) and not isinstance(core, type):
            names, read = _common(cls, type(core), tuple(others))
            values = dict(zip(names, read(core), strict=True))
        else:
            values = {name: getattr(core, name) for name in cls.model_fields if hasattr(core, name)}
        return values | others


@cache
def _common(
    document: type[Document], core: type, but_for: Sequence[str]
) -> tuple[Sequence[str], Callable[[object], Sequence[object]]]:
    """Names of the fields of a document that are attributes of a dataclass, and how to read all."""
    known = {field.name for field in fields(core)}.union(dir(core)).difference(but_for)
    names = [name for name in document.model_fields if name in known]
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda core: [getattr(core, name) for name in names]


def _rack_name(rack: object, info: ValidationInfo[Fabric]) -> object:
    if not isinstance(rack, int):
        return rack
    return "" if rack == GONE else info.context.racks[rack].name


def _plane_name(plane: object, info: ValidationInfo[Fabric]) -> object:
    return info.context.planes[plane].name if isinstance(plane, int) else plane


def _in_order(core: object) -> object:
    return sorted(core) if isinstance(core, AbstractSet) else core


RackName = Annotated[str, BeforeValidator(_rack_name)]
"""Made of a rack's number; empty for a rack that the fabric has lost."""
PlaneName = Annotated[str, BeforeValidator(_plane_name)]


def port_names(fabric: Fabric, port: PortId) -> dict[str, str]:
    """Names of a port and of its rack."""
    found = fabric.ports[port]
    return {"rack": fabric.racks[found.rack].name, "port": found.tor_port}


class RackPair(Document):
    # Made of a pair of rack numbers or names, or of an object with `src` and `dst`.
    src: RackName
    dst: RackName

    @model_validator(mode="before")
    @classmethod
    def _of_pair(cls, core: object) -> object:
        return {"src": core[0], "dst": core[1]} if isinstance(core, tuple) else core


RackPairs = Annotated[list[RackPair], BeforeValidator(_in_order)]
"""Made of pairs of rack numbers, sorted if given as a set."""
