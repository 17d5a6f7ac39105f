"""The two kinds of Ethernet frame that the controller itself sends."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from hydra.forwarding.pipeline import ANNOUNCE_ETHERTYPE, PROBE_ETHERTYPE
from hydra.model import MacAddress, VlanId

_ANNOUNCE_GROUPS: Final = bytes.fromhex("034879")
"""The first half of locally administered multicast addresses: switches flood them, hosts are never
shown them."""
_MINIMUM_FRAME: Final = 60
_DOT1Q: Final = 0x8100
PROBE_NONCE_BYTES: Final = 8
_PROBE_MAGIC: Final = b"HydRA?"
TAGGED_HEADER_BYTES: Final = 18
"""Ethernet header with a VLAN tag."""


def _mac(address: MacAddress) -> bytes:
    return bytes.fromhex(address.replace(":", ""))


def _frame(dst: bytes, src: bytes, vlan: VlanId | None, ethertype: int, payload: bytes) -> bytes:
    tag = b"" if vlan is None else struct.pack("!HH", _DOT1Q, vlan)
    frame = dst + src + tag + struct.pack("!H", ethertype) + payload
    return frame.ljust(_MINIMUM_FRAME, b"\0")


def announcement(mac: MacAddress, vlan: VlanId | None, number: int) -> bytes:
    """A frame that teaches every switch of a VLAN (None: untagged) where ``mac`` is.

    Announcements with another ``number`` go to another address. Open vSwitch forwards by flows that
    it has cached: a frame like an earlier one would not get to a port that has joined the VLAN
    since.
    """
    group = _ANNOUNCE_GROUPS + (number % 0x1000000).to_bytes(3, "big")
    return _frame(group, _mac(mac), vlan, ANNOUNCE_ETHERTYPE, b"")


@dataclass(frozen=True, slots=True)
class Probe:
    """Contents of a probe frame."""

    nonce: int


def probe(src: MacAddress, dst: MacAddress, vlan: VlanId | None, nonce: int, mtu: int = 0) -> bytes:
    """A unicast frame that shows a path carries traffic from ``src`` to ``dst``, or, without a
    VLAN, the ToR that both are at. It is as long as an IP packet of ``mtu`` bytes would make it.
    """
    payload = (_PROBE_MAGIC + struct.pack("!Q", nonce)).ljust(mtu, b"\0")
    return _frame(_mac(dst), _mac(src), vlan, PROBE_ETHERTYPE, payload)


def parse_probe(frame: bytes) -> Probe | None:
    """The probe in a received frame, tagged or not; None if it is anything else."""
    offset = 16 if frame[12:14] == struct.pack("!H", _DOT1Q) else 12
    head = struct.pack("!H", PROBE_ETHERTYPE) + _PROBE_MAGIC
    if frame[offset : offset + len(head)] != head:
        return None
    nonce = frame[offset + len(head) : offset + len(head) + 8]
    return Probe(int.from_bytes(nonce, "big")) if len(nonce) == 8 else None
