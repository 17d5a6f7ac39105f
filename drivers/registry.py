"""Driver names of the configuration file, and the modules that they stand for.

A new driver is a file and an entry here. ``hydra`` does not import drivers: callers that load a
configuration pass it :func:`plane_checks` and :func:`rack_checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeVar

from drivers.optical import (
    calient_tl1,
    glimmerglass_tl1,
    manual,
    openflow_xc,
    polatis_netconf,
    polatis_restconf,
    polatis_scpi,
    polatis_tl1,
    sonic_ocs,
    template,
)
from drivers.tor import (
    ibm_g8264,
    ibm_g8264_netconf,
    openconfig_vlan,
    openconfig_vlan_gnmi,
    openflow,
    ovs_ovsdb,
    sonic_vlan,
)
from hydra.config.devices import PlaneCheck, RackCheck
from hydra.errors import Problem, UnknownName
from hydra.model import Plane, Rack
from hydra.roles import OpticalSwitch, TorSwitch

_EntryT = TypeVar("_EntryT")


class OpticalDriver(Protocol):
    """A driver of optical switches: the names that its module has."""

    def build(self, plane: Plane, timeout_s: float) -> OpticalSwitch:
        """Make the driver, not connected yet; ``timeout_s`` is what a command may take."""

    def check(self, plane: Plane) -> Iterable[Problem]: ...


class TorDriver(Protocol):
    """A driver of ToR switches: the names that its module has."""

    def build(self, rack: Rack, timeout_s: float) -> TorSwitch: ...

    def check(self, rack: Rack) -> Iterable[Problem]: ...


OPTICAL: Final[Mapping[str, OpticalDriver]] = {
    "calient-tl1": calient_tl1,
    "glimmerglass-tl1": glimmerglass_tl1,
    "manual": manual,
    "openflow-xc": openflow_xc,
    "polatis-netconf": polatis_netconf,
    "polatis-restconf": polatis_restconf,
    "polatis-scpi": polatis_scpi,
    "polatis-tl1": polatis_tl1,
    "sonic-ocs": sonic_ocs,
    "template": template,
}
TOR: Final[Mapping[str, TorDriver]] = {
    "ibm-g8264": ibm_g8264,
    "ibm-g8264-netconf": ibm_g8264_netconf,
    "openconfig-vlan": openconfig_vlan,
    "openconfig-vlan-gnmi": openconfig_vlan_gnmi,
    "openflow": openflow,
    "ovs-ovsdb": ovs_ovsdb,
    "sonic-vlan": sonic_vlan,
}


def plane_checks() -> dict[str, PlaneCheck]:
    """Checks of a configuration's planes, by driver name."""
    return {name: driver.check for name, driver in OPTICAL.items()}


def rack_checks() -> dict[str, RackCheck]:
    """Checks of a configuration's ToR switches, by driver name."""
    return {name: driver.check for name, driver in TOR.items()}


def optical_switch(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of a plane, not connected yet. ``timeout_s`` limits each command to the device."""
    return _look_up(OPTICAL, plane.driver, f"plane {plane.name}").build(plane, timeout_s)


def tor_switch(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet. ``timeout_s`` limits each call."""
    return _look_up(TOR, rack.tor.driver, f"rack {rack.name}").build(rack, timeout_s)


def _look_up(table: Mapping[str, _EntryT], driver: str, whose: str) -> _EntryT:
    entry = table.get(driver)
    if entry is None:
        raise UnknownName(f"{whose}: no driver {driver!r} (there are: {', '.join(sorted(table))})")
    return entry
