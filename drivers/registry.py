"""Driver names of the configuration file, and the drivers' modules.

A new driver is a file and an entry here: a module, or ``module:Class``. Other packages contribute
drivers by entry points. ``hydra`` does not import drivers: callers that load a configuration pass
:func:`plane_checks` and :func:`rack_checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NoReturn, Protocol, TypeVar

from hydra.config.devices import PlaneCheck, RackCheck
from hydra.errors import DeviceError, Problem, UnknownName
from hydra.model import Plane, Rack
from hydra.plugins import Contributions, Derived, Places
from hydra.roles import OpticalCapabilities, OpticalSwitch, TorCapabilities, TorSwitch

_EntryT = TypeVar("_EntryT")


class OpticalDriver(Protocol):
    """A driver of optical switches: names that the driver's module must have."""

    def build(self, plane: Plane, timeout_s: float) -> OpticalSwitch:
        """Make the driver, not connected yet; ``timeout_s`` limits each command to the device."""

    def check(self, plane: Plane) -> Iterable[Problem]: ...


class TorDriver(Protocol):
    """A driver of ToR switches: names that the driver's module must have."""

    def build(self, rack: Rack, timeout_s: float) -> TorSwitch: ...

    def check(self, rack: Rack) -> Iterable[Problem]: ...


CONTRIBUTED: Final = "hydra.drivers"
"""Group of entry points with drivers from other packages, optical and ToR."""
_WANTED: Final = ("CAPABILITIES", "build", "check")


class _Refused:
    """Takes the place of an unusable contributed driver: each use reports the reason."""

    def __init__(self, _name: str, why: str) -> None:
        self._why = why

    def build(self, device: Plane | Rack, timeout_s: float) -> NoReturn:  # noqa: ARG002
        raise DeviceError(device.name, self._why)

    def check(self, _device: Plane | Rack) -> Iterable[Problem]:
        yield Problem("driver", self._why)


def _flaw(capabilities: type, _name: str, found: object) -> str | None:
    """Why ``found`` is no driver with such capabilities; None if ``found`` is a driver."""
    missing = [name for name in _WANTED if not hasattr(found, name)]
    if missing:
        return f"the driver has no {' and no '.join(missing)}"
    kind = type(getattr(found, _WANTED[0]))
    if kind is capabilities:
        return None
    return f"the driver's CAPABILITIES are {kind.__name__}, not {capabilities.__name__}"


OPTICAL: Final[Mapping[str, OpticalDriver]] = Contributions(
    "optical driver",
    CONTRIBUTED,
    Places[OpticalDriver](
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
    ),
    flaw=partial(_flaw, OpticalCapabilities),
    refused=_Refused,
)
TOR: Final[Mapping[str, TorDriver]] = Contributions(
    "ToR driver",
    CONTRIBUTED,
    Places[TorDriver](
        {
            "ibm-g8264": "drivers.tor.ibm_g8264",
            "ibm-g8264-netconf": "drivers.tor.ibm_g8264_netconf",
            "openconfig-vlan": "drivers.tor.openconfig_vlan",
            "openconfig-vlan-gnmi": "drivers.tor.openconfig_vlan_gnmi",
            "openflow": "drivers.tor.openflow",
            "ovs-ovsdb": "drivers.tor.ovs_ovsdb",
            "sonic-vlan": "drivers.tor.sonic_vlan",
        }
    ),
    flaw=partial(_flaw, TorCapabilities),
    refused=_Refused,
)


def plane_checks() -> Mapping[str, PlaneCheck]:
    """Checks of a configuration's planes, by driver name."""
    return Derived(OPTICAL, lambda name: partial(_check_plane, name))


def rack_checks() -> Mapping[str, RackCheck]:
    """Checks of a configuration's ToR switches, by driver name."""
    return Derived(TOR, lambda name: partial(_check_rack, name))


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


def _look_up(table: Mapping[str, _EntryT], driver: str, subject: str) -> _EntryT:
    if driver not in table:
        raise UnknownName(
            f"{subject}: no driver {driver!r} (there are: {', '.join(sorted(table))})"
        )
    return table[driver]
