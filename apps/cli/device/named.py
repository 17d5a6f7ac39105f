"""Devices by name, opened, with errors in words, for all ``hydra device`` commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from apps.cli.output import CommandError, UnknownOutcomeError, UnreachableError, warn
from apps.journal.opening import looked_into
from apps.tools.in_use import InUse, read_in_use
from drivers.registry import optical_switch, tor_switch
from hydra.config import Loaded
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown
from hydra.model import Fabric, Plane, Rack
from hydra.roles import OpticalSwitch, TorSwitch


def find(fabric: Fabric, name: str) -> Plane | Rack:
    plane, rack = fabric.plane_by_name.get(name), fabric.rack_by_name.get(name)
    found = plane or rack
    if plane and rack:
        raise CommandError(f"{name} is both a plane and a rack: rename the plane or the rack")
    if found is None:
        raise CommandError(f"there is no plane or rack {name!r}: see `hydra device list`")
    return found


def find_plane(fabric: Fabric, name: str) -> Plane:
    plane = fabric.plane_by_name.get(name)
    if plane is None:
        known = ", ".join(fabric.plane_by_name)
        raise CommandError(f"there is no plane {name!r}; there are {known}")
    return plane


def in_use_by_controller(loaded: Loaded) -> InUse:
    settings, path = loaded.controller, loaded.controller.journal
    if settings.etcd is None and not Path(path).exists():
        warn(f"there is no journal at {path}: the controller's own cross-connects are unknown")
        return InUse()
    with looked_into(settings) as journal:
        return read_in_use(loaded.fabric, journal)


@contextmanager
def opened_plane(loaded: Loaded, plane: Plane) -> Iterator[OpticalSwitch]:
    """A connected switch, closed at the end of the block; a device's errors end the command."""
    with translated(), closing(optical_switch(plane, loaded.policy.timeouts.ocs_s)) as switch:
        switch.open()
        yield switch


@contextmanager
def opened_tor(loaded: Loaded, rack: Rack) -> Iterator[TorSwitch]:
    with translated(), closing(tor_switch(rack, loaded.policy.timeouts.tor_s)) as tor:
        tor.open()
        yield tor


@contextmanager
def translated() -> Iterator[None]:
    """A device's errors become exit codes."""
    try:
        yield
    except DeviceUnavailable as error:
        raise UnreachableError(str(error)) from error
    except OutcomeUnknown as error:
        raise UnknownOutcomeError(str(error)) from error
    except DeviceError as error:
        raise CommandError(str(error)) from error
