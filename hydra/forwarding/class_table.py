"""Rules of the class table where only elephants, by connection, may use circuits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import FlowRule, constant


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """A TCP connection of a server, as its vswitch tells it from others."""

    address: IPv4Address | IPv6Address
    """Address of the other end."""
    src_port: int
    dst_port: int


def class_rules(elephants: Iterable[TcpConnection]) -> Iterator[FlowRule]:
    """Rules of a vswitch's class table by which these connections alone use circuits."""
    yield constant(RuleKind.CLASS_MICE)
    for one in elephants:
        ipv4 = isinstance(one.address, IPv4Address)
        kind = RuleKind.CLASS_ELEPHANT_V4 if ipv4 else RuleKind.CLASS_ELEPHANT_V6
        yield constant(kind, int(one.address), one.src_port, one.dst_port)
