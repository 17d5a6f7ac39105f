"""Changes of cross-connects: how every optical driver checks, reduces and verifies a change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Final

from hydra.errors import DeviceError, OutcomeUnknown
from hydra.model import CrossConnect

_SHOWN: Final = 8
"""Largest number of cross-connects in an error message."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Cross-connects that a change moves on a device."""

    removed: frozenset[CrossConnect]
    added: frozenset[CrossConnect]
    wanted: frozenset[CrossConnect]
    """All cross-connects that should stand afterwards, including other users'."""

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


def difference(
    device: str,
    present: Set[CrossConnect],
    disconnect: Collection[CrossConnect],
    connect: Collection[CrossConnect],
) -> Difference:
    """Reduce a change to the cross-connects not yet as wanted.

    Raises DeviceError for a port that is in use or is used twice: some devices would take the port
    from another client's circuit.
    """
    kept = frozenset(present) - (set(disconnect) - set(connect))
    added = frozenset(connect) - kept
    _check_free(device, kept, added)
    return Difference(frozenset(present) - kept, added, kept | added)


def check_ports(device: str, size: tuple[int, int], touched: Collection[CrossConnect]) -> None:
    """Raises DeviceError unless ingress ports are in 1..N and egress ports in N+1..N+M."""
    if touched:
        ingress, egress = size
        from_ports, to_ports = zip(*touched, strict=True)
        check_numbers(device, from_ports, 1, ingress, "ingress port")
        check_numbers(device, to_ports, ingress + 1, ingress + egress, "egress port")


def check_numbers(
    device: str, ports: Collection[int], first: int, last: int, kind: str = "port"
) -> None:
    """Raises DeviceError for a port outside ``first``..``last``."""
    if ports and not first <= min(ports) <= max(ports) <= last:
        outside = next(port for port in ports if not first <= port <= last)
        raise DeviceError(device, f"there is no {kind} {outside}: this switch has {first}..{last}")


def across(
    pairs: Iterable[tuple[int, int]], ingress: int
) -> tuple[frozenset[CrossConnect], dict[int, str]]:
    """Connections of an any-to-any switch: ports up to ``ingress`` are ingress, all above are
    egress.

    Returns (cross-connects, in any order of their ports; ports of connections within one side, in
    the form of :func:`check_untaken`).
    """
    ordered = [(min(pair), max(pair)) for pair in pairs]
    present = frozenset(CrossConnect(a, b) for a, b in ordered if a <= ingress < b)
    within = [(a, b) for a, b in ordered if not a <= ingress < b]
    taken = {a: f"connected to {b}, on the same side of this switch" for a, b in within}
    return present, taken | {
        b: f"connected to {a}, on the same side of this switch" for a, b in within
    }


def check_untaken(device: str, added: Collection[CrossConnect], taken: Mapping[int, str]) -> None:
    """Raises DeviceError for a port in use by something other than a cross-connect of two sides.

    ``taken`` gives the use of each such port.
    """
    for new in sorted(added):
        for port in (new.ingress, new.egress):
            if port in taken:
                raise DeviceError(
                    device,
                    f"can't connect {new.ingress} to {new.egress}: port {port} is {taken[port]}",
                )


def shortfall(change: Difference, present: Set[CrossConnect]) -> list[str]:
    """Problems with a device's cross-connects, read back; empty if the change was made.

    Other users may change the same switch: only the change's own cross-connects are compared.
    """
    missing = sorted(change.added - present)
    left = sorted((change.removed & present) - change.wanted)
    problems = [f"not connected: {shown(missing)}"] if missing else []
    return problems + ([f"still connected: {shown(left)}"] if left else [])


def not_made(device: str, problems: Iterable[str]) -> DeviceError:
    """The error of a change that the device did not carry out as asked."""
    return DeviceError(device, "the change was not made as asked: " + "; ".join(problems))


def unconfirmed(device: str, error: DeviceError) -> OutcomeUnknown:
    """The error of a change that was begun, with an unknown outcome."""
    return OutcomeUnknown(
        device, f"a change was begun and could not be confirmed: {error}; read the device back"
    )


def shown(cross_connects: Collection[CrossConnect]) -> str:
    """``1 to 18, 2 to 17 and 3 more``."""
    listed = [f"{c.ingress} to {c.egress}" for c in cross_connects]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


def _check_free(
    device: str, kept: Collection[CrossConnect], added: Collection[CrossConnect]
) -> None:
    peers = {c.ingress: c.egress for c in kept} | {c.egress: c.ingress for c in kept}
    ports = list(chain.from_iterable(added))
    claimed = set(ports)
    if len(claimed) == len(ports) and claimed.isdisjoint(peers):
        return
    claimed.clear()
    for new in sorted(added):
        for port in (new.ingress, new.egress):
            if port in peers or port in claimed:
                why = (
                    f"connected to {peers[port]}; disconnect the two in the same change, or find "
                    "out the user of the connection"
                    if port in peers
                    else "used twice in this change"
                )
                raise DeviceError(
                    device, f"can't connect {new.ingress} to {new.egress}: port {port} is {why}"
                )
            claimed.add(port)
