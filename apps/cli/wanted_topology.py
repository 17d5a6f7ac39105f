"""A file of circuits, or of slots of circuits, for ``hydra apply --topology``: YAML, or JSON."""

from __future__ import annotations

from pathlib import Path

import click
import yaml

from hydra_hybrid_network_client.errors import JsonObject

_FORM = "circuits: {PLANE: [[RACK, RACK], …]}, and paths: [[RACK, RACK, RACK], …] if there are any"
_SLOTS = "slots: [{length_s: SECONDS, circuits: …, paths: …}, …], with circuits as in a topology"


def read_topology(
    _ctx: click.Context, _param: click.Parameter, value: Path | None
) -> JsonObject | None:
    """Read the circuits and paths in a file, or the slots, in the form of a request.

    Raises BadParameter.
    """
    if value is None:
        return None
    try:
        document = yaml.safe_load(value.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.BadParameter(f"{value} can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.BadParameter(f"{value} is neither YAML nor JSON: {error}") from error
    if isinstance(document, dict) and "slots" in document:
        return {"slots": _slots(str(value), document)}
    return _topology(str(value), document)


def _slots(name: str, document: JsonObject) -> list[JsonObject]:
    slots = document["slots"]
    if len(document) > 1 or not isinstance(slots, list) or not slots:
        raise click.BadParameter(f"{name}: a schedule is a list of slots alone: write {_SLOTS}")
    read = []
    for number, slot in enumerate(slots, start=1):
        length_s = slot.get("length_s") if isinstance(slot, dict) else None
        if isinstance(length_s, bool) or not isinstance(length_s, int | float):
            raise click.BadParameter(f"{name}: slot {number} has no length in s: write {_SLOTS}")
        rest = {key: value for key, value in slot.items() if key != "length_s"}
        topology = _topology(f"slot {number} of {name}", rest)
        read.append({"length_s": float(length_s), "topology": topology})
    return read


def _topology(name: str, document: object) -> JsonObject:
    if not isinstance(document, dict) or "circuits" not in document:
        raise click.BadParameter(f"{name} has no circuits: write {_FORM}")
    if unknown := sorted(map(str, document.keys() - {"circuits", "paths"})):
        raise click.BadParameter(f"{name} has the unknown key {unknown[0]!r}: write {_FORM}")
    circuits, paths = document["circuits"] or {}, document.get("paths") or []
    if not isinstance(circuits, dict) or not isinstance(paths, list):
        raise click.BadParameter(f"{name}: write {_FORM}")
    entries = [
        {"plane": str(plane), "a": a, "b": b}
        for plane, pairs in circuits.items()
        for a, b in _pairs(name, plane, pairs)
    ]
    for path in paths:
        if not _is_names(path):
            raise click.BadParameter(f"{name}: the path {path!r} is no list of racks")
    return {"circuits": entries, "paths": paths}


def _pairs(name: str, plane: object, pairs: object) -> list[list[str]]:
    if not isinstance(pairs, list):
        raise click.BadParameter(f"{name}: the circuits of {plane} are no list: write {_FORM}")
    for pair in pairs:
        if not (_is_names(pair) and len(pair) == len(("a", "b"))):
            raise click.BadParameter(
                f"{name}: the circuit {pair!r} of {plane} is not [RACK, RACK], or [RACK:PORT, …]"
            )
    return pairs


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
