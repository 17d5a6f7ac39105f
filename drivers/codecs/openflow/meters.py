"""OpenFlow meters: limits on the rates of traffic that rules send to a meter.

A meter exists before the rules that refer to it, and its deletion removes the rules, too. Layout:
OpenFlow Switch Specification 1.3.5, section 7.3.4.4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from drivers.codecs.openflow.messages import encode, encode_multipart_request
from drivers.codecs.openflow.statistics import NOT_COUNTED, MalformedReplyError
from hydra.sharing.policing import STRICT, Burst

TYPE_METER_MOD: Final = 29
MULTIPART_METER: Final = 9
MULTIPART_METER_CONFIG: Final = 10
_ALL: Final = 0xFFFFFFFF
_KBPS_WITH_BURST: Final = 0b101
_DROP: Final = 1
_HEAD: Final = struct.Struct("!HHI")
_DROP_BAND: Final = struct.Struct("!HHIIxxxx")
_STATS: Final = struct.Struct("!IHxxxxxxIQQII")
"""Number, length, rules, packets and bytes in, seconds and nanoseconds."""
_CONFIG: Final = struct.Struct("!HxxI")
"""Length and number; bands follow."""
_BAND: Final = struct.Struct("!HHIxxxx")
"""Type, length and rate."""
_BAND_STATS: Final = struct.Struct("!QQ")
"""Packets and bytes."""
_MOST_KBPS: Final = 2**32 - 1


class _Command(IntEnum):
    ADD = 0
    MODIFY = 1
    DELETE = 2


@dataclass(frozen=True, slots=True)
class AddMeter:
    number: int
    mbps: float
    """Rate of the meter; infinite: no limit."""
    burst: Burst = STRICT


@dataclass(frozen=True, slots=True)
class SetMeter:
    """Change the rate of an existing meter.

    Open vSwitch 3.1 to 4.0 then resets the meter's counters of packets and bytes, and fills its
    bucket.
    """

    number: int
    mbps: float
    burst: Burst = STRICT


@dataclass(frozen=True, slots=True)
class RemoveMeter:
    """Remove a meter with the rules that refer to it; an absent meter is fine."""

    number: int


@dataclass(frozen=True, slots=True)
class RemoveEveryMeter:
    pass


MeterChange = AddMeter | SetMeter | RemoveMeter | RemoveEveryMeter


def encode_meter_changes(changes: Iterable[MeterChange], xid: int) -> bytes:
    """Meter-mods in order; they can't be parts of a bundle."""
    return b"".join(_encode(change, xid) for change in changes)


def _encode(change: MeterChange, xid: int) -> bytes:
    match change:
        case AddMeter(number, mbps, burst):
            return _meter_mod(_Command.ADD, number, xid, _band(mbps, burst))
        case SetMeter(number, mbps, burst):
            return _meter_mod(_Command.MODIFY, number, xid, _band(mbps, burst))
        case RemoveMeter(number):
            return _meter_mod(_Command.DELETE, number, xid)
        case RemoveEveryMeter():
            return _meter_mod(_Command.DELETE, _ALL, xid)


def _meter_mod(command: _Command, number: int, xid: int, band: bytes = b"") -> bytes:
    flags = _KBPS_WITH_BURST if band else 0
    return encode(TYPE_METER_MOD, xid, _HEAD.pack(command, flags, number) + band)


def _band(mbps: float, burst: Burst) -> bytes:
    return _DROP_BAND.pack(_DROP, _DROP_BAND.size, rate_kbps(mbps), burst_kbit(mbps, burst))


def rate_kbps(mbps: float) -> int:
    """The rate in kb/s that the meter gets."""
    return int(min(max(1.0, mbps * 1000), _MOST_KBPS))


def burst_kbit(mbps: float, burst: Burst) -> int:
    """Size of the bucket of a meter with the given rate."""
    return max(burst.least_kbit, int(rate_kbps(mbps) * burst.time_ms / 1000))


@dataclass(frozen=True, slots=True)
class MeterCounters:
    """Counts since the meter was made; on some switches, since its last change."""

    bytes_in: int
    bytes_dropped: int


def encode_meter_stats_request(xid: int) -> bytes:
    """A request for the statistics of all meters of a switch."""
    return encode_multipart_request(MULTIPART_METER, xid, struct.pack("!Ixxxx", _ALL))


def decode_meter_stats(body: bytes) -> dict[int, MeterCounters]:
    """Meter number to counters, from an OFPMP_METER reply body; without meters whose counters are
    not available. Raises MalformedReplyError.
    """
    counters: dict[int, MeterCounters] = {}
    offset = 0
    while offset < len(body):
        if len(body) - offset < _STATS.size:
            raise MalformedReplyError(f"meter statistics end inside an entry at byte {offset}")
        number, length, _, _, bytes_in, _, _ = _STATS.unpack_from(body, offset)
        bands = body[offset + _STATS.size : offset + length]
        whole = length >= _STATS.size and offset + length <= len(body)
        if not whole or len(bands) % _BAND_STATS.size:
            raise MalformedReplyError(f"meter statistics at byte {offset} have length {length}")
        dropped = [count for _, count in _BAND_STATS.iter_unpack(bands)]
        if NOT_COUNTED not in (bytes_in, *dropped):
            counters[number] = MeterCounters(bytes_in, sum(dropped))
        offset += length
    return counters


def encode_meter_config_request(xid: int) -> bytes:
    """A request for the rates of all meters of a switch."""
    return encode_multipart_request(MULTIPART_METER_CONFIG, xid, struct.pack("!Ixxxx", _ALL))


def decode_meter_rates(body: bytes) -> dict[int, int]:
    """Meter number to the rate of its drop band, in kb/s, from an OFPMP_METER_CONFIG reply body.

    Meters without a drop band are left out. Raises MalformedReplyError.
    """
    rates: dict[int, int] = {}
    offset = 0
    while offset < len(body):
        if len(body) - offset < _CONFIG.size:
            raise MalformedReplyError(f"meter configurations end inside an entry at byte {offset}")
        length, number = _CONFIG.unpack_from(body, offset)
        if length < _CONFIG.size or offset + length > len(body):
            raise MalformedReplyError(
                f"the meter configuration at byte {offset} has length {length}"
            )
        bands = body[offset + _CONFIG.size : offset + length]
        while bands:
            kind, size, rate = _BAND.unpack_from(bands) if len(bands) >= _BAND.size else (0, 0, 0)
            if not _BAND.size <= size <= len(bands):
                raise MalformedReplyError(f"a band of the meter at byte {offset} has length {size}")
            if kind == _DROP:
                rates[number] = rate
            bands = bands[size:]
        offset += length
    return rates
