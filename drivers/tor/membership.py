"""VLAN membership: checks, conversion to ranges, and comparison, for all ToR drivers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from hydra.errors import DeviceError
from hydra.model import VlanId
from hydra.roles import PortVlans

FIRST_VLAN: Final = VlanId(1)
LAST_VLAN: Final = VlanId(4094)
ALL_VLANS: Final = frozenset(VlanId(vlan) for vlan in range(FIRST_VLAN, LAST_VLAN + 1))

_SHOWN: Final = 16
"""Largest number of ranges in an error message."""


def check_memberships(device: str, wanted: Mapping[str, PortVlans]) -> None:
    """Raises DeviceError, before any write, for membership that no switch should be asked for.

    Refused are a VLAN outside 1..4094, a VLAN both native and tagged, and a trunk without a VLAN,
    which switches take for a trunk of all VLANs.
    """
    for port, vlans in wanted.items():
        native = frozenset(() if vlans.native is None else (vlans.native,))
        bad = (vlans.tagged - ALL_VLANS) | (native - ALL_VLANS)
        if bad:
            raise DeviceError(
                device,
                f"port {port}: VLAN {min(bad)} is outside {FIRST_VLAN}..{LAST_VLAN}; "
                "nothing was changed",
            )
        if not vlans.tagged:
            raise DeviceError(
                device,
                f"port {port}: an empty trunk would carry all VLANs; give the port the parking "
                "VLAN",
            )
        if vlans.native in vlans.tagged:
            raise DeviceError(
                device, f"port {port}: VLAN {vlans.native} can't be both native and tagged"
            )


def check_result(
    device: str, wanted: Mapping[str, PortVlans], present: Mapping[str, PortVlans]
) -> None:
    """Raises DeviceError for the first port that does not read back as written."""
    for port, vlans in wanted.items():
        if present[port] != vlans:
            raise DeviceError(
                device,
                f"port {port} reads back as {shown(present[port])}, not {shown(vlans)}; "
                "another client may be changing the port",
            )


def ranges(vlans: Collection[int]) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring numbers as (first, last), ascending."""
    ascending = sorted(set(vlans))
    start = 0
    for index, vlan in enumerate(ascending):
        if index + 1 == len(ascending) or ascending[index + 1] != vlan + 1:
            yield ascending[start], vlan
            start = index + 1


def expanded(found: Iterable[tuple[int, int]]) -> frozenset[VlanId]:
    """The VLANs of the given ranges."""
    return frozenset(VlanId(vlan) for first, last in found for vlan in range(first, last + 1))


def shown(vlans: PortVlans) -> str:
    """``tagged [5,7-9] native 3``."""
    runs = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges(vlans.tagged)]
    listed = ",".join(runs[:_SHOWN]) + (",…" if len(runs) > _SHOWN else "")
    return f"tagged [{listed}] native {vlans.native}"
