"""Switches with OpenConfig VLANs, independent of the protocol.

Merging would unite the old and the new ``trunk-vlans``: each port's ``config`` container is
replaced as a whole. Neighbouring VLANs are written as ranges (``300..310``).

EOS, NX-OS and IOS-XE drop untagged frames on a trunk unless its ``native-vlan`` is among its
``trunk-vlans``: the VLAN is written into both, and a native VLAN missing from the list reads as
none. SONiC has no ``native-vlan``: an untagged VLAN is its ``access-vlan``, and not in the list.

A LAG has its VLANs in ``aggregation``, any other interface in ``ethernet``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeVar

from drivers.codecs import openconfig
from drivers.codecs.openconfig import Leaves
from drivers.codecs.yang_json import Json, YangJsonError
from drivers.exclusive import exclusive
from drivers.tor import membership
from drivers.tor.session import Session, SessionTor
from hydra.errors import DeviceError, ProtocolError
from hydra.model import VlanId
from hydra.roles import PortCounters, PortVlans, TorCapabilities

CAPABILITIES: Final = TorCapabilities(bulk=True, counters=True)

_T = TypeVar("_T")


class Container(Enum):
    """Parts of an interface that can be read."""

    VLANS = "switched-vlan/config"
    STATE = "state"
    COUNTERS = "state/counters"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a switch represents a trunk's untagged VLAN."""

    untagged: str
    """The leaf with the untagged VLAN."""
    among_allowed: bool
    """True if the untagged VLAN has to be in ``trunk-vlans``, too."""

    def membership(self, leaves: Leaves) -> PortVlans:
        """The membership in the given leaves. Raises YangJsonError for invalid VLANs."""
        found = openconfig.parse_switched_vlan(leaves)
        if found.mode == "ACCESS":
            return PortVlans(frozenset(), None if found.access is None else VlanId(found.access))
        allowed = membership.expanded(found.allowed or ())
        if found.mode == "TRUNK" and found.allowed is None:
            allowed = membership.ALL_VLANS
        number = getattr(found, self.untagged.removesuffix("-vlan"))
        native = None if number is None else VlanId(number)
        is_untagged = native in allowed or not self.among_allowed
        return PortVlans(allowed - {native}, native if is_untagged else None)

    def leaves(self, vlans: PortVlans) -> Leaves:
        """The trunk with the given membership."""
        native = vlans.native if self.among_allowed else None
        allowed = vlans.tagged if native is None else {*vlans.tagged, native}
        return openconfig.trunk_leaves(self.untagged, vlans.native, membership.ranges(allowed))


NATIVE: Final = Dialect("native-vlan", among_allowed=True)
"""EOS, NX-OS, IOS-XE."""
SONIC: Final = Dialect("access-vlan", among_allowed=False)


class Interfaces(Session, Protocol):
    """The contract of a protocol's access to a switch's interfaces; methods raise DeviceError.

    Methods that talk to the switch connect if need be.
    """

    def dialect(self) -> Dialect:
        """The switch's dialect; connects if need be."""

    def names(self) -> tuple[str, ...]:
        """All interfaces, in the switch's order."""

    def read(self, ports: Collection[str], container: Container) -> Mapping[str, Leaves | None]:
        """Leaves by port; None if a port lacks the container. The error for missing ports names
        them.
        """

    def replace(self, wanted: Mapping[str, Leaves], check: Callable[[], None]) -> None:
        """Replace the VLANs of the given ports, all or none; ``check`` raises if that failed."""


class OpenconfigTor(SessionTor):
    """A :class:`~hydra.roles.TorSwitch` with counters; all ports of a change go in one edit."""

    CAPABILITIES = CAPABILITIES

    def __init__(self, name: str, interfaces: Interfaces) -> None:
        super().__init__(name, interfaces)
        self._interfaces = interfaces

    @exclusive
    def ports(self) -> tuple[str, ...]:
        """All interfaces, in the switch's order."""
        return self._interfaces.names()

    @exclusive
    def vlans(self, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """Membership as configured; a trunk without a list carries all VLANs."""
        if not ports:
            return {}
        found, dialect = self._interfaces.read(ports, Container.VLANS), self._interfaces.dialect()
        return {
            port: self._understood(port, dialect.membership, leaves or {})
            for port, leaves in found.items()
        }

    @exclusive
    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        """Replace the membership of the given ports in one edit, and read it back.

        Raises DeviceError (nothing written) for a bad VLAN or a port missing on the switch.
        """
        membership.check_memberships(self._name, wanted)
        present = self.vlans(wanted)
        changed = {port: vlans for port, vlans in wanted.items() if present[port] != vlans}
        if changed:
            dialect = self._interfaces.dialect()
            self._interfaces.replace(
                {port: dialect.leaves(vlans) for port, vlans in changed.items()},
                lambda: membership.check_result(self._name, changed, self.vlans(changed)),
            )

    @exclusive
    def link_up(self, ports: Collection[str]) -> Mapping[str, bool]:
        """True by port whose ``oper-status`` is UP."""
        if not ports:
            return {}
        found = self._interfaces.read(ports, Container.STATE)
        return {
            p: [*(leaves or {}).get("oper-status", ())] == ["UP"] for p, leaves in found.items()
        }

    @exclusive
    def counters(self, ports: Collection[str]) -> Mapping[str, PortCounters]:
        """Frames and octets per port; kinds of frames are added up if the switch has no total."""
        if not ports:
            return {}
        found = self._interfaces.read(ports, Container.COUNTERS)
        return {port: self._counters(port, leaves) for port, leaves in found.items()}

    def _counters(self, port: str, leaves: Leaves | None) -> PortCounters:
        if leaves is None:
            raise DeviceError(self._name, f"the switch has no counters of port {port}")
        return PortCounters(**self._understood(port, openconfig.parse_counters, leaves)._asdict())

    def _understood(self, port: str, parse: Callable[[Leaves], _T], leaves: Leaves) -> _T:
        try:
            return parse(leaves)
        except YangJsonError as error:
            raise ProtocolError(self._name, f"port {port} has {error}") from error


def leaves_by_port(
    device: str, interfaces: Mapping[str, Json], container: Container
) -> dict[str, Leaves | None]:
    """Leaves of a container of each interface; None where there is none. Raises ProtocolError."""
    try:
        return {
            port: openconfig.leaves_at(interface, *_path(interface, container))
            for port, interface in interfaces.items()
        }
    except YangJsonError as error:
        raise ProtocolError(device, f"interfaces: {error}") from error


def _path(interface: Json, container: Container) -> list[str]:
    path = container.value.split("/")
    if container is Container.VLANS:
        path.insert(0, "aggregation" if openconfig.is_lag(interface) else "ethernet")
    return path


def check_present(device: str, ports: Collection[str], found: Collection[str]) -> None:
    """Raises DeviceError for ports missing on the switch."""
    missing = sorted({*ports} - {*found})
    if missing:
        raise DeviceError(device, f"the switch has no interface {', '.join(missing)}")
