"""Driver names of the configuration file, and the functions that they stand for.

A new driver is a file and an entry here. ``hydra`` does not import drivers: callers that load a
configuration pass it :func:`plane_checks` and :func:`rack_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from drivers.optical import (
    calient_tl1,
    glimmerglass_tl1,
    manual,
    openflow_xc,
    polatis_netconf,
    polatis_scpi,
    polatis_tl1,
    sonic_ocs,
    template,
)
from drivers.tor import (
    ibm_g8264,
    ibm_g8264_netconf,
    openconfig_vlan,
    openflow,
    ovs_ovsdb,
)
from hydra.config.devices import PlaneCheck, RackCheck
from hydra.errors import UnknownName
from hydra.model import Plane, Rack
from hydra.roles import OpticalCapabilities, OpticalSwitch, TorCapabilities, TorSwitch

_EntryT = TypeVar("_EntryT")


@dataclass(frozen=True, slots=True)
class OpticalEntry:
    """A driver of optical switches."""

    build: Callable[[Plane, float], OpticalSwitch]
    """Makes the driver, not connected yet, from a plane and the seconds that a command may take."""
    check: PlaneCheck
    capabilities: OpticalCapabilities


@dataclass(frozen=True, slots=True)
class TorEntry:
    """A driver of ToR switches."""

    build: Callable[[Rack, float], TorSwitch]
    check: RackCheck
    capabilities: TorCapabilities


OPTICAL: Final[Mapping[str, OpticalEntry]] = {
    "polatis-netconf": OpticalEntry(
        polatis_netconf.build, polatis_netconf.check, polatis_netconf.CAPABILITIES
    ),
    "manual": OpticalEntry(manual.build, manual.check, manual.CAPABILITIES),
    "openflow-xc": OpticalEntry(openflow_xc.build, openflow_xc.check, openflow_xc.CAPABILITIES),
    "polatis-scpi": OpticalEntry(polatis_scpi.build, polatis_scpi.check, polatis_scpi.CAPABILITIES),
    "calient-tl1": OpticalEntry(calient_tl1.build, calient_tl1.check, calient_tl1.CAPABILITIES),
    "glimmerglass-tl1": OpticalEntry(
        glimmerglass_tl1.build, glimmerglass_tl1.check, glimmerglass_tl1.CAPABILITIES
    ),
    "polatis-tl1": OpticalEntry(polatis_tl1.build, polatis_tl1.check, polatis_tl1.CAPABILITIES),
    "sonic-ocs": OpticalEntry(sonic_ocs.build, sonic_ocs.check, sonic_ocs.CAPABILITIES),
    "template": OpticalEntry(template.build, template.check, template.CAPABILITIES),
}
TOR: Final[Mapping[str, TorEntry]] = {
    "ibm-g8264": TorEntry(ibm_g8264.build, ibm_g8264.check, ibm_g8264.CAPABILITIES),
    "ibm-g8264-netconf": TorEntry(
        ibm_g8264_netconf.build, ibm_g8264_netconf.check, ibm_g8264_netconf.CAPABILITIES
    ),
    "openconfig-vlan": TorEntry(
        openconfig_vlan.build, openconfig_vlan.check, openconfig_vlan.CAPABILITIES
    ),
    "openflow": TorEntry(openflow.build, openflow.check, openflow.CAPABILITIES),
    "ovs-ovsdb": TorEntry(ovs_ovsdb.build, ovs_ovsdb.check, ovs_ovsdb.CAPABILITIES),
}


def plane_checks() -> dict[str, PlaneCheck]:
    """Checks of a configuration's planes, by driver name."""
    return {name: entry.check for name, entry in OPTICAL.items()}


def rack_checks() -> dict[str, RackCheck]:
    """Checks of a configuration's ToR switches, by driver name."""
    return {name: entry.check for name, entry in TOR.items()}


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
