"""Interfaces of the OpenConfig models, as texts of leaves and in JSON (RFC 7951) over gNMI.

Nodes are those of ``openconfig-interfaces``, ``openconfig-if-ethernet``,
``openconfig-if-aggregate`` and ``openconfig-vlan``. Servers differ in their answers to a Get: the
value is the node, or an object with the node as its only member (SONiC); whole, or leaf by leaf;
with or without (NX-OS) module names as prefix. All forms are read alike.

Sources: NX-OS payloads, EOS and IOS-XE behaviour that owners reported; sapcc/networking-ccloud
(EOS); sonic-net/SONiC, sonic-mgmt-common and sonic-telemetry; openconfig/public, commit 94f5896;
NetBox and NSO exporters; YangModels/yang issue 301; google/gnxi issue 20.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from drivers.codecs.yang_json import Json, YangJsonError, as_object, parse, shown

Leaves: TypeAlias = Mapping[str, Sequence[str]]
"""Texts of a container's leaves by name; a leaf-list has several."""
Range: TypeAlias = tuple[int, int]
"""First and last VLAN."""
PathElement: TypeAlias = tuple[str, Mapping[str, str]]
"""A node's name, and the keys of a list's entry."""

_RANGE: Final = re.compile(r"([1-9][0-9]{0,3})(?:\.\.([1-9][0-9]{0,3}))?", re.ASCII)
_COUNT: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
_FIRST_VLAN: Final = 1
_LAST_VLAN: Final = 4094
_KINDS: Final = ("unicast", "broadcast", "multicast")
_LAG: Final = "ieee8023adLag"
_VLAN_MODULE: Final = "openconfig-vlan"


class SwitchedVlan(NamedTuple):
    """The ``config`` of a ``switched-vlan``."""

    mode: str
    """``ACCESS`` or ``TRUNK``; empty if there is none."""
    access: int | None
    native: int | None
    allowed: tuple[Range, ...] | None
    """None: no list, so all are allowed."""


class Counters(NamedTuple):
    """Counts of an interface; if there is no total, kinds of frames are added up."""

    rx_frames: int
    tx_frames: int
    rx_octets: int
    tx_octets: int
    rx_dropped: int
    tx_dropped: int


def parse_switched_vlan(leaves: Leaves) -> SwitchedVlan:
    listed = leaves.get("trunk-vlans", ())
    return SwitchedVlan(
        _only(leaves, "interface-mode"),
        _vlan(leaves, "access-vlan"),
        _vlan(leaves, "native-vlan"),
        tuple(map(_range, listed)) or None,
    )


def trunk_leaves(untagged: str, native: int | None, allowed: Iterable[Range]) -> Leaves:
    """The ``config`` of a trunk; ``untagged`` names the leaf of its untagged VLAN."""
    texts = [f"{first}" if first == last else f"{first}..{last}" for first, last in allowed]
    own = {} if native is None else {untagged: [str(native)]}
    return {"interface-mode": ["TRUNK"], **own, "trunk-vlans": texts}


def config_text(leaves: Leaves, *, with_modules: bool) -> bytes:
    """The ``config`` of a ``switched-vlan`` in JSON; a range is a text, a single VLAN a number."""
    values: dict[str, object] = {}
    for name, texts in leaves.items():
        found = [int(text) if text.isdigit() else text for text in texts]
        key = f"{_VLAN_MODULE}:{name}" if with_modules else name
        values[key] = found if name == "trunk-vlans" else found[0]
    return json.dumps(values).encode()


def parse_counters(leaves: Leaves) -> Counters:
    return Counters(
        rx_frames=_frames(leaves, "in"),
        tx_frames=_frames(leaves, "out"),
        rx_octets=_count(leaves, "in-octets"),
        tx_octets=_count(leaves, "out-octets"),
        rx_dropped=_count(leaves, "in-discards"),
        tx_dropped=_count(leaves, "out-discards"),
    )


def place(interfaces: dict[str, Json], path: Sequence[PathElement], text: bytes) -> None:
    """Add the value of a node at ``path`` to the interfaces, given by name."""
    try:
        value = _without_modules(parse(text))
        names = [_own_name(name) for name, _ in path]
        if not names or names[0] != "interfaces" or (len(names) > 1 and names[1] != "interface"):
            raise YangJsonError(f"an answer about {shown('/'.join(names))}, not interfaces")
        if isinstance(value, dict) and value.keys() == {names[-1]}:
            value = value[names[-1]]
        for name in reversed(names[2:]):
            value = {name: value}
        if len(names) == 1:
            value = as_object(value).get("interface", [])
        entries = value if isinstance(value, list) else [value]
        key = path[1][1].get("name") if len(names) > 1 else None
        for entry in entries:
            found = as_object(entry)
            if not found:  # no interface of this name
                continue
            own = found.get("name", key)
            if not isinstance(own, str) or key not in (None, own):
                raise YangJsonError(f"an interface with the name {shown(str(own))}")
            _merge(interfaces.setdefault(own, {}), found)
    except RecursionError:
        raise YangJsonError("a value nested too deep") from None


def leaves_at(interface: Json, *path: str) -> Leaves | None:
    """Leaves of the container at ``path`` below an interface; None if there is none."""
    for name in path:
        if not isinstance(interface, dict) or name not in interface:
            return None
        interface = interface[name]
    found = {}
    for name, value in as_object(interface).items():
        values = value if isinstance(value, list) else [value]
        if all(isinstance(item, str | int) for item in values):
            found[name] = [str(item) for item in values]
    return found


def is_lag(interface: Json) -> bool:
    """True for an interface with its VLANs in ``aggregation``."""
    for container in ("config", "state"):
        kind = (leaves_at(interface, container) or {}).get("type")
        if kind:
            return _own_name(kind[0]) == _LAG
    return bool(leaves_at(interface, "aggregation", "switched-vlan", "config"))


def _only(leaves: Leaves, name: str) -> str:
    texts = leaves.get(name) or [""]
    return texts[0].strip()


def _vlan(leaves: Leaves, name: str) -> int | None:
    return None if name not in leaves else _range(_only(leaves, name))[0]


def _range(text: str) -> Range:
    match = _RANGE.fullmatch(text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not _FIRST_VLAN <= first <= last <= _LAST_VLAN:
        raise YangJsonError(f"{shown(text)} where VLANs are expected")
    return first, last


def _frames(leaves: Leaves, way: str) -> int:
    if f"{way}-pkts" in leaves:
        return _count(leaves, f"{way}-pkts")
    return sum(_count(leaves, f"{way}-{kind}-pkts") for kind in _KINDS)


def _count(leaves: Leaves, name: str) -> int:
    text = _only(leaves, name) or "0"
    if not _COUNT.fullmatch(text):
        raise YangJsonError(f"{name} {shown(text)}, no number")
    return int(text)


def _own_name(name: str) -> str:
    """A name without its module prefix."""
    return name.rpartition(":")[2]


def _without_modules(value: Json) -> Json:
    """The same value, with members' names without module prefixes."""
    if isinstance(value, dict):
        return {_own_name(name): _without_modules(member) for name, member in value.items()}
    return list(map(_without_modules, value)) if isinstance(value, list) else value


def _merge(present: dict[str, Json], more: dict[str, Json]) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(present.get(name), dict):
            _merge(present[name], value)
        else:
            present[name] = value
