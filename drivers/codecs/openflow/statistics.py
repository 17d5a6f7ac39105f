"""Statistics replies of OpenFlow 1.3 switches, read from the raw bytes into arrays.

Layouts: OpenFlow Switch Specification 1.3.5, sections 7.3.5.2 and 7.3.5.6.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from drivers.codecs.openflow import _tables

_FLOW_HEAD: Final = np.dtype(
    {
        "names": ["age_s", "age_ns", "cookie", "packets", "bytes"],
        "formats": [">u4", ">u4", ">u8", ">u8", ">u8"],
        "offsets": [4, 8, 24, 32, 40],
        "itemsize": 48,
    }
)
_FLOW_STATS_MINIMUM: Final = 56
_LENGTH: Final = struct.Struct("!H")
_FIRST_STEP: Final = 64
"""Entries compared in the first step; later steps are ever longer, so short runs cost little."""
_PORT_STATS: Final = struct.Struct("!I4x6Q56x")
"""Port, frames in and out, bytes in and out, frames dropped in and out; the rest is not read."""
NOT_COUNTED: Final = 2**64 - 1
"""An unavailable counter (section 5.8): the switch lacks the counter, or can't read it now."""


class MalformedReplyError(ValueError):
    """A statistics reply whose lengths do not add up."""


@dataclass(frozen=True, slots=True)
class FlowCounters:
    """Columns of equal length, an entry for each rule."""

    cookie: NDArray[np.uint64]
    packets: NDArray[np.uint64]
    bytes: NDArray[np.uint64]
    age_s: NDArray[np.float64]
    """Age of the rules, by the switch's clock."""


def decode_flow_stats(body: bytes) -> FlowCounters:
    """Read the entries of an OFPMP_FLOW reply body (without the multipart header).

    A switch lists rules with equal masks together, with entries of equal length: each such run is
    walked at once. Raises MalformedReplyError.
    """
    offsets = _entry_offsets(body)
    if not offsets.size:
        none = np.empty(0, dtype=np.uint64)
        return FlowCounters(none, none, none, np.empty(0))
    # A view of every byte as the start of an entry, indexed by the true starts.
    starts = len(body) - _FLOW_HEAD.itemsize + 1
    heads = np.ndarray(starts, _FLOW_HEAD, body, strides=(1,))[offsets]
    return FlowCounters(
        heads["cookie"].astype(np.uint64),
        heads["packets"].astype(np.uint64),
        heads["bytes"].astype(np.uint64),
        heads["age_s"] + heads["age_ns"] * 1e-9,
    )


def octets_by_subject(body: bytes, mask: int, count: int) -> tuple[NDArray[np.uint64], float]:
    """Octets counted in an OFPMP_FLOW reply body, by the subject in its rules' cookies.

    A subject is the bits of the cookie in ``mask``. Shape (count,), from subject 1 on; other
    subjects are passed over. The sum is :data:`NOT_COUNTED` for a subject with an unavailable
    counter. Also returns the age in s of the oldest rule by the switch's clock, 0 if there is none.
    Raises MalformedReplyError.
    """
    totals = np.zeros(count, dtype=np.uint64)
    try:
        return totals, _tables.octets_by_subject(body, mask, totals)
    except ValueError as error:
        entry_runs(body)  # says where
        raise MalformedReplyError(str(error)) from error


def _entry_offsets(body: bytes) -> NDArray[np.intp]:
    runs = entry_runs(body)
    if not runs:
        return np.empty(0, dtype=np.intp)
    first, lengths, counts = np.array(runs, dtype=np.intp).T
    before = np.repeat(np.cumsum(counts) - counts, counts)
    within_run = np.arange(int(counts.sum())) - before
    offsets: NDArray[np.intp] = np.repeat(first, counts) + within_run * np.repeat(lengths, counts)
    return offsets


def entry_runs(body: bytes) -> list[tuple[int, int, int]]:
    """(offset, length of an entry, number) of each run of equally long entries of a flow reply.

    Raises MalformedReplyError.
    """
    runs: list[tuple[int, int, int]] = []
    offset, end = 0, len(body)
    while offset < end:
        if end - offset < _FLOW_STATS_MINIMUM:
            raise MalformedReplyError(f"flow statistics end inside an entry at byte {offset}")
        (length,) = _LENGTH.unpack_from(body, offset)
        if length < _FLOW_STATS_MINIMUM or offset + length > end:
            raise MalformedReplyError(f"flow statistics entry at byte {offset} has length {length}")
        count = _run(body, offset, length)
        runs.append((offset, length, count))
        offset += count * length
    return runs


def _run(body: bytes, offset: int, length: int) -> int:
    """Length of the run of equally long entries from ``offset``; at least 1."""
    most = (len(body) - offset) // length
    following = offset + length
    if most == 1 or _LENGTH.unpack_from(body, following)[0] != length:
        return 1
    count, step = 1, _FIRST_STEP
    while count < most:
        step = min(step, most - count)
        at = offset + count * length
        same = np.ndarray(step, ">u2", body, at, (length,)) == length
        if not same.all():
            return count + int(same.argmin())
        count += step
        step *= 8
    return count


@dataclass(frozen=True, slots=True)
class PortPackets:
    """Counters of a port since the switch started it."""

    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    tx_dropped: int


def decode_port_stats(body: bytes) -> dict[int, PortPackets]:
    """Port number to counters, from an OFPMP_PORT_STATS reply body.

    A port with uncounted frames or bytes is left out: unknown, and not idle.
    """
    if len(body) % _PORT_STATS.size:
        raise MalformedReplyError(f"port statistics of {len(body)} bytes are not whole entries")
    return {
        port: PortPackets(rx_packets, tx_packets, rx_bytes, tx_bytes, tx_dropped)
        for port, rx_packets, tx_packets, rx_bytes, tx_bytes, _, tx_dropped in (
            _PORT_STATS.iter_unpack(body)
        )
        if NOT_COUNTED not in (rx_packets, tx_packets, rx_bytes, tx_bytes)
    }
