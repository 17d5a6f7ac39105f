"""Driver names of the configuration file, and the modules that they stand for.

A new driver is a file and an entry here: a module, or ``module:Class``. ``hydra`` does not import
drivers: callers that load a configuration pass it :func:`plane_checks` and :func:`rack_checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Final, Protocol, TypeVar, cast

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


class _Entries(Mapping[str, _EntryT]):
    """Drivers by name. Each is loaded when it is asked for: some bring large packages along."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> _EntryT:
        module, _, inside = self._places[name].partition(":")
        loaded = import_module(module)
        return cast(_EntryT, getattr(loaded, inside) if inside else loaded)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


OPTICAL: Final[Mapping[str, OpticalDriver]] = _Entries(
    {
        "calient-tl1": "drivers.optical.calient_tl1",
        "glimmerglass-tl1": "drivers.optical.glimmerglass_tl1",
        "manual": "drivers.optical.manual",
        "openflow-xc": "drivers.optical.openflow_xc",
        "polatis-netconf": "drivers.optical.polatis_netconf",
        "polatis-restconf": "drivers.optical.polatis_restconf",
        "polatis-scpi": "drivers.optical.polatis_scpi",
        "polatis-tl1": "drivers.optical.polatis_tl1",
        "sonic-ocs": "drivers.optical.sonic_ocs",
        "template": "drivers.optical.template",
    }
)
TOR: Final[Mapping[str, TorDriver]] = _Entries(
    {
        "ibm-g8264": "drivers.tor.ibm_g8264",
        "ibm-g8264-netconf": "drivers.tor.ibm_g8264_netconf",
        "openconfig-vlan": "drivers.tor.openconfig_vlan",
        "openconfig-vlan-gnmi": "drivers.tor.openconfig_vlan_gnmi",
        "openflow": "drivers.tor.openflow",
        "ovs-ovsdb": "drivers.tor.ovs_ovsdb",
        "sonic-vlan": "drivers.tor.sonic_vlan",
    }
)


def plane_checks() -> dict[str, PlaneCheck]:
    """Checks of a configuration's planes, by driver name."""
    return {name: partial(_check_plane, name) for name in OPTICAL}


def rack_checks() -> dict[str, RackCheck]:
    """Checks of a configuration's ToR switches, by driver name."""
    return {name: partial(_check_rack, name) for name in TOR}


def optical_switch(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of a plane, not connected yet. ``timeout_s`` limits each command to the device."""
    return _look_up(OPTICAL, plane.driver, f"plane {plane.name}").build(plane, timeout_s)


def tor_switch(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet. ``timeout_s`` limits each call."""
    return _look_up(TOR, rack.tor.driver, f"rack {rack.name}").build(rack, timeout_s)


def _check_plane(driver: str, plane: Plane) -> Iterable[Problem]:
    return OPTICAL[driver].check(plane)


def _check_rack(driver: str, rack: Rack) -> Iterable[Problem]:
    return TOR[driver].check(rack)


def _look_up(table: Mapping[str, _EntryT], driver: str, whose: str) -> _EntryT:
    if driver not in table:
        raise UnknownName(f"{whose}: no driver {driver!r} (there are: {', '.join(sorted(table))})")
    return table[driver]
