"""Values in TL1 records common to all vendors: parameters, optical powers, alarms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from drivers.codecs.tl1 import Tl1Error, shown
from hydra.roles import Severity

_KEY: Final = r"[A-Za-z][A-Za-z0-9_]*"


_PAIR: Final = re.compile(rf"({_KEY})=(.*?)(?=,{_KEY}=|\Z)", re.ASCII | re.DOTALL)


_PAIRS: Final = re.compile(rf"{_KEY}=.*", re.ASCII | re.DOTALL)


_POWER: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,3})(?:\.[0-9]{1,4})?", re.ASCII)


_DESCRIPTION: Final = re.compile(r':(?:\\)?"(.*?)(?:\\)?"', re.DOTALL)


_SEVERITIES: Final = {
    "CR": Severity.CRITICAL,
    "MJ": Severity.MAJOR,
    "MN": Severity.MINOR,
    "CL": Severity.CLEARED,
}


@dataclass(frozen=True, slots=True)
class AlarmRecord:
    """A line of an alarm report (GR-833-CORE): ``aid[,type]:code,condition,effect,…:"text"``."""

    aid: str
    severity: Severity
    condition: str
    text: str


def parse_pairs(text: str) -> Mapping[str, str]:
    """``A=1,B=two words,C=`` → a mapping; a value may hold commas but nothing like ``,KEY=``."""
    if _PAIRS.fullmatch(text) is None:
        raise Tl1Error(f"not KEY=VALUE,…: {shown(text)}")
    pairs = _PAIR.findall(text)
    if len({key for key, _ in pairs}) < len(pairs):
        raise Tl1Error(f"a key stands twice: {shown(text)}")
    return dict(pairs)


def format_pairs(pairs: Mapping[str, str]) -> str:
    """The text that :func:`parse_pairs` reads as ``pairs``."""
    return ",".join(f"{key}={value}" for key, value in pairs.items())


def pair(pairs: Mapping[str, str], key: str) -> str:
    """The value of ``key``. Raises Tl1Error if there is none."""
    value = pairs.get(key)
    if value is None:
        raise Tl1Error(f"{key} is missing in {shown(format_pairs(pairs))}")
    return value


def parse_power_dbm(text: str) -> float | None:
    """``-23.4`` → -23.4 dBm; ``NONE``, ``NA`` and the empty text → None."""
    if text in ("", "NONE", "NA"):
        return None
    if _POWER.fullmatch(text) is None:
        raise Tl1Error(f"not an optical power in dBm: {shown(text)}")
    return float(text)


def severity(code: str) -> Severity:
    """Severity of ``CR``, ``MJ``, ``MN`` or ``CL``; other codes are milder: WARNING."""
    return _SEVERITIES.get(code.strip(), Severity.WARNING)


def parse_alarm(record: str) -> AlarmRecord:
    """The alarm in a record of ``RTRV-ALM-ALL`` or ``REPT ALM``. Raises Tl1Error."""
    aid, separator, rest = record.partition(":")
    code, comma, fields = rest.partition(",")
    condition = re.split("[,:]", fields, maxsplit=1)[0].strip()
    if not separator or not comma or not condition or not code.strip():
        raise Tl1Error(f"not an alarm: {shown(record)}")
    described = _DESCRIPTION.search(fields)
    text = described[1] if described is not None else ""
    return AlarmRecord(aid.partition(",")[0].strip(), severity(code), condition, text)
