"""The two kinds of Ethernet frames that the controller sends."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from hydra.forwarding.pipeline import ANNOUNCE_ETHERTYPE, PROBE_ETHERTYPE
from hydra.model import MacAddress, VlanId

_ANNOUNCE_GROUPS: Final = bytes.fromhex("034879")
"""First half of locally administered multicast addresses: switches flood them, hosts ignore
them.
"""
_MINIMUM_FRAME: Final = 60
_DOT1Q: Final = 0x8100
PROBE_NONCE_BYTES: Final = 8
_PROBE_MAGIC: Final = b"HydRA?"
TAGGED_HEADER_BYTES: Final = 18
"""Length of an Ethernet header with a VLAN tag."""


def _mac(address: MacAddress) -> bytes:
    return bytes.fromhex(address.replace(":", ""))


def _frame(dst: bytes, src: bytes, vlan: VlanId | None, ethertype: int, payload: bytes) -> bytes:
    tag = b"" if vlan is None else struct.pack("!HH", _DOT1Q, vlan)
    frame = dst + src + tag + struct.pack("!H", ethertype) + payload
    return frame.ljust(_MINIMUM_FRAME, b"\0")


def announcement(mac: MacAddress, vlan: VlanId | None, number: int) -> bytes:
    """Build a frame that teaches every switch of a VLAN (None: untagged) the location of ``mac``.

    ``number`` selects the multicast address. Open vSwitch forwards by cached flows: a repeated
    frame would not reach a port that has joined the VLAN since.
    """
    group = _ANNOUNCE_GROUPS + (number % 0x1000000).to_bytes(3, "big")
    return _frame(group, _mac(mac), vlan, ANNOUNCE_ETHERTYPE, b"")


@dataclass(frozen=True, slots=True)
class Probe:
    """Contents of a probe frame."""

    nonce: int


def probe(src: MacAddress, dst: MacAddress, vlan: VlanId | None, nonce: int, mtu: int = 0) -> bytes:
    """Build a unicast frame that tests whether a path carries traffic from ``src`` to ``dst``;
    without a VLAN, the frame tests the common ToR. The length is that of an IP packet of ``mtu``
    bytes.
    """
    payload = (_PROBE_MAGIC + struct.pack("!Q", nonce)).ljust(mtu, b"\0")
    return _frame(_mac(dst), _mac(src), vlan, PROBE_ETHERTYPE, payload)


def parse_probe(frame: bytes) -> Probe | None:
    """Return the probe in a received frame, tagged or untagged; None for other frames."""
    offset = 16 if frame[12:14] == struct.pack("!H", _DOT1Q) else 12
    head = struct.pack("!H", PROBE_ETHERTYPE) + _PROBE_MAGIC
    if frame[offset : offset + len(head)] != head:
        return None
    nonce = frame[offset + len(head) : offset + len(head) + 8]
    return Probe(int.from_bytes(nonce, "big")) if len(nonce) == 8 else None
