"""Driver names of the configuration file, and what they stand for.

A new driver is a file and a line here. :mod:`hydra` does not import drivers: whoever loads a
configuration passes it :data:`OPTICAL_DRIVERS` and :data:`TOR_DRIVERS` to check names against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from drivers.optical.polatis_scpi import PolatisScpi
from drivers.tor.ovs_ovsdb import OvsTor
from hydra.errors import UnknownName
from hydra.model import Plane, Rack
from hydra.roles import OpticalSwitch, TorSwitch

_FactoryT = TypeVar("_FactoryT")


def _polatis_scpi(plane: Plane, timeout_s: float) -> OpticalSwitch:
    return PolatisScpi(plane.name, plane.address, timeout_s=timeout_s)


def _ovs_ovsdb(rack: Rack, timeout_s: float) -> TorSwitch:
    return OvsTor(rack.name, rack.tor.address, rack.tor.bridge, timeout_s=timeout_s)


_OPTICAL: Final[Mapping[str, Callable[[Plane, float], OpticalSwitch]]] = {
    "polatis-scpi": _polatis_scpi,
}
_TOR: Final[Mapping[str, Callable[[Rack, float], TorSwitch]]] = {
    "ovs-ovsdb": _ovs_ovsdb,
}

OPTICAL_DRIVERS: Final = frozenset(_OPTICAL)
TOR_DRIVERS: Final = frozenset(_TOR)


def optical_switch(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of a plane, not connected yet. ``timeout_s`` limits each command to the device."""
    return _look_up(_OPTICAL, plane.driver, f"plane {plane.name}")(plane, timeout_s)


def tor_switch(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet. ``timeout_s`` limits each call."""
    return _look_up(_TOR, rack.tor.driver, f"rack {rack.name}")(rack, timeout_s)


def _look_up(table: Mapping[str, _FactoryT], driver: str, whose: str) -> _FactoryT:
    factory = table.get(driver)
    if factory is None:
        raise UnknownName(f"{whose}: no driver {driver!r} (there are: {', '.join(sorted(table))})")
    return factory
