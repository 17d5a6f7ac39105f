"""Polatis' modules ``optical-switch`` and ``polatis-switch`` as JSON, over RESTCONF.

Sources are public clients of these switches: a laboratory's instrument driver (pqnstack), the
single-page application of a Polatis engineer, with recorded answers of a switch (``6.7.3.9``, 2018;
quintons/polatis2), and scripts of two more laboratories (KalebLindev/Polatis). By these sources,
resources are below ``/api/data``, an empty list is answered by 204 without a body, a port in use by
409, and a member of the list is ``pair=INGRESS``. A list with a single entry may stand without its
brackets. Older models have ``ports`` and ``port-state`` in place of ``port-config`` and ``status``.

Attenuators are ``voa`` (a laboratory's monitor in ONOS, and its scripts, which set them by
``PATCH``); alarm thresholds are ``opm-alarm-config`` (the single-page application, and a client
over NETCONF, which shows the leaves).

Inferred are the spelling of the start-up modes, known from the maker's test suite as *preserve* and
*volatile*, that numbers may come as text, like decimals in RFC 7951, that one request may aim
connected ports anew and frees their former egress ports, that ``If-Match`` is heeded, and the path
of older models' port states. A switch lost cross-connects made by ``POST`` within 30 s.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from drivers.codecs.yang_json import Json, YangJsonError, as_object, member, parse, shown

_MODULE: Final = "optical-switch"
_MAX_PORT: Final = 999_999

CROSS_CONNECTS: Final = f"data/{_MODULE}:cross-connects"
PRODUCT: Final = f"data/{_MODULE}:product-information"
POWER: Final = f"data/{_MODULE}:opm-power"
PORTS: Final = f"data/{_MODULE}:port-config"
OLD_PORTS: Final = f"data/{_MODULE}:ports"
ATTENUATORS: Final = f"data/{_MODULE}:voa"
THRESHOLDS: Final = f"data/{_MODULE}:opm-alarm-config"
START: Final = f"data/{_MODULE}:system-config/polatis-switch:startup-mode"


@dataclass(frozen=True, slots=True)
class Product:
    manufacturer: str
    model: str
    serial: str
    software: str


@dataclass(frozen=True, slots=True)
class AttenuatorEntry:
    mode: str
    """``VOA_MODE_NONE``, ``VOA_MODE_ABSOLUTE`` and so on."""
    level: float | None


@dataclass(frozen=True, slots=True)
class ThresholdEntry:
    mode: str
    """``POWER_ALARM_DISABLED``, ``POWER_ALARM_ENABLED`` and so on."""
    low_dbm: float | None
    high_dbm: float | None


def pair_resource(ingress: int) -> str:
    """The cross-connect of an ingress port."""
    return f"{CROSS_CONNECTS}/pair={ingress}"


def pairs_text(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Body of a request that adds cross-connects, or moves their ingress ports to a new egress."""
    listed = [{"ingress": ingress, "egress": egress} for ingress, egress in pairs]
    return json.dumps({f"{_MODULE}:cross-connects": {"pair": listed}}).encode()


def parse_pairs(text: bytes) -> tuple[tuple[int, int], ...]:
    """Cross-connects; none if there is no text."""
    pairs = tuple(
        (_port(entry, "ingress"), _port(entry, "egress"))
        for entry in _entries(text, "cross-connects", "pair")
    )
    if len(dict(pairs)) != len(pairs):
        raise YangJsonError("an ingress port is listed twice")
    return pairs


def parse_port_states(text: bytes) -> dict[int, str]:
    """States by port, in the words of either model."""
    container, leaf = ("port-config", "status")
    if f'{_MODULE}:ports"'.encode() in text:
        container, leaf = ("ports", "port-state")
    entries = _entries(text, container, "port")
    return {_port(entry, "port-id"): str(entry.get(leaf, "")) for entry in entries}


def parse_powers(text: bytes) -> dict[int, float]:
    """Power by port in dBm, for ports with a meter and a reading."""
    entries = _entries(text, "opm-power", "port")
    return {
        _port(entry, "port-id"): _dbm(entry["power"])
        for entry in entries
        if entry.get("power") not in (None, "")
    }


def parse_attenuators(text: bytes) -> dict[int, AttenuatorEntry]:
    """Attenuators by port."""
    return {
        _port(entry, "port-id"): AttenuatorEntry(
            str(entry.get("atten-mode", "")), _dbm_if_any(entry, "atten-level")
        )
        for entry in _entries(text, "voa", "port")
    }


def parse_thresholds(text: bytes) -> dict[int, ThresholdEntry]:
    """Alarm thresholds by port."""
    return {
        _port(entry, "port-id"): ThresholdEntry(
            str(entry.get("mode", "")),
            low_dbm=_dbm_if_any(entry, "signal-low-threshold"),
            high_dbm=_dbm_if_any(entry, "signal-high-threshold"),
        )
        for entry in _entries(text, "opm-alarm-config", "port")
    }


def parse_product(text: bytes) -> Product:
    found = as_object(member(as_object(parse(text)), _MODULE, "product-information"))
    leaves = ("manufacturer", "model-name", "serial-number", "software-version")
    for leaf in leaves:
        if not isinstance(found.get(leaf), str) or not found[leaf]:
            raise YangJsonError(f"no {leaf}")
    return Product(*(found[leaf] for leaf in leaves))


def parse_start(text: bytes) -> str:
    """The start-up mode, in the switch's word."""
    return str(member(as_object(parse(text)), "polatis-switch", "startup-mode"))


def _entries(text: bytes, container: str, name: str) -> Collection[dict[str, Json]]:
    if not text.strip():
        return ()
    document = as_object(member(as_object(parse(text)), _MODULE, container))
    listed = document.get(name, [])
    return [as_object(entry) for entry in (listed if isinstance(listed, list) else [listed])]


def _port(entry: dict[str, Json], leaf: str) -> int:
    value = entry.get(leaf)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 6:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_PORT:
        raise YangJsonError(f"{leaf} is no port number: {shown(str(value))}")
    return value


def _dbm_if_any(entry: dict[str, Json], leaf: str) -> float | None:
    value = entry.get(leaf)
    return None if value in (None, "") else _dbm(value)


def _dbm(value: Json) -> float:
    try:
        dbm = float(value) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        dbm = None
    if dbm is None or isinstance(value, bool) or not -200 < dbm < 200:
        raise YangJsonError(f"not a power in dBm: {shown(str(value))}")
    return dbm
