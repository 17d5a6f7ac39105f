"""Rules that keep traffic off circuits: all traffic except elephants, and overflow of full
circuits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from hydra.forwarding.pipeline import RuleKind, cookie
from hydra.forwarding.rules import FlowRule, constant, rack_metadata
from hydra.model import RackId


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """A TCP connection of a server, in the form matched by vswitches."""

    address: IPv4Address | IPv6Address
    """Address of the peer."""
    src_port: int
    dst_port: int


def class_rules(elephants: Iterable[TcpConnection]) -> Iterator[FlowRule]:
    """Rules of the class table of a vswitch that admit only ``elephants`` to circuits."""
    yield constant(RuleKind.CLASS_MICE)
    for elephant in elephants:
        ipv4 = isinstance(elephant.address, IPv4Address)
        kind = RuleKind.CLASS_ELEPHANT_V4 if ipv4 else RuleKind.CLASS_ELEPHANT_V6
        yield constant(kind, int(elephant.address), elephant.src_port, elephant.dst_port)


def spill_rules(to: RackId, parts: int) -> Iterator[FlowRule]:
    """Rules that send 1 of ``parts`` hash buckets of the flows to rack ``to`` electrical.

    Reserved traffic does not meet the rules. A single rule without its companion has no effect.
    """
    metadata = rack_metadata(to)
    for kind in (RuleKind.SPILL_PICK, RuleKind.SPILL):
        yield FlowRule(kind, (metadata, parts - 1), cookie(kind, subject=metadata))
