"""Checks of a fabric before the testbed builds anything: names, addresses and drivers."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from hydra.model import Fabric, Plane
from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.testbed.layout import Layout, access_interface, server_interface
from mininet_scenarios.testbed.links import MAX_NAME_CHARS
from mininet_scenarios.testbed.ocs import ADMIN_OFFSET
from mininet_scenarios.testbed.ovs import DATABASE
from mininet_scenarios.testbed.shell import TestbedError
from mininet_scenarios.testbed.sweep import PREFIX

OCS_DRIVERS: Final = tuple(
    sorted(driver for driver, emulator in EMULATORS.items() if not emulator.has_directory)
)
"""Drivers of planes that the testbed can emulate."""
_TOR_DRIVERS: Final = ("openflow", "ovs-ovsdb")
_SHOWN: Final = 3
_MODEL: Final = "`hydra init --emulated` writes a fabric file for the emulation"


def check_suitable(fabric: Fabric, planned: Layout) -> None:
    """Raise TestbedError with everything in the fabric file that can't be emulated here."""
    problems = [*_names(fabric, planned), *_tors(fabric)]
    for plane in fabric.planes:
        problems += _plane(plane)
    if problems:
        raise TestbedError(
            "\n".join([f"{fabric.name} can't be emulated here:", *problems, f"({_MODEL})"])
        )


def _names(fabric: Fabric, planned: Layout) -> Iterator[str]:
    ours = [bridge.name for bridge in planned.bridges]
    ours += [name for cable in planned.fabric_cables for name in (cable.a, cable.b)]
    ours += [access_interface(server) for server in fabric.servers]
    names = (*ours, *map(server_interface, fabric.servers))
    if long := _few(name for name in names if len(name) > MAX_NAME_CHARS):
        yield (
            f"- interface names longer than Linux's {MAX_NAME_CHARS} characters: {long}; shorten "
            "the names"
        )
    if foreign := _few(name for name in ours if not name.startswith(PREFIX)):
        yield (
            f"- names that do not begin with '{PREFIX}', by which clean-up finds bridges and "
            f"interfaces: {foreign}; rename them, as hytor-{{rack}}"
        )
    if twice := _few(name for name, count in Counter(ours).items() if count > 1):
        yield (
            f"- names of several switches or ports: {twice}; emulated switches share this machine, "
            "so each name must be different"
        )


def _tors(fabric: Fabric) -> Iterator[str]:
    tors = [rack.tor for rack in fabric.racks]
    if drivers := _few(tor.driver for tor in tors if tor.driver not in _TOR_DRIVERS):
        yield f"- ToRs with driver {drivers}; emulated are {', '.join(_TOR_DRIVERS)}"
    addresses = [tor.address for tor in tors if tor.driver == "ovs-ovsdb"]
    if elsewhere := _few(address for address in addresses if not _is_our_database(address)):
        yield f"- ToRs at {elsewhere}; emulated ToRs are all at unix:{DATABASE}"


def _plane(plane: Plane) -> Iterator[str]:
    if plane.driver not in OCS_DRIVERS:
        yield (
            f"- plane {plane.name}: no emulator here speaks {plane.driver!r}; known: "
            f"{', '.join(OCS_DRIVERS)}"
        )
    host, _, port = plane.address.rpartition(":")
    remedy = "give each plane a port of this machine, as 127.0.0.1:{5024 + plane}"
    if not host or not port.isdigit() or not 0 < int(port) < (1 << 16) - ADMIN_OFFSET:
        yield (
            f"- plane {plane.name}: {plane.address} is no HOST:PORT with a port below "
            f"{(1 << 16) - ADMIN_OFFSET}; {remedy}"
        )
    elif not _is_local(host.strip("[]")):
        yield f"- plane {plane.name}: {plane.address} is no address of this machine; {remedy}"


def _is_our_database(address: str) -> bool:
    kind, _, path = address.partition(":")
    return kind == "unix" and Path(path).resolve() == DATABASE.resolve()


def _is_local(host: str) -> bool:
    try:
        families = {(each[0], each[4]) for each in socket.getaddrinfo(host, 0)}
    except OSError:
        return False
    for family, address in families:
        with socket.socket(family) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return True
    return False


def _few(names: Iterable[str]) -> str:
    """The names, each once: the first few, and the number of others; empty if there are none."""
    distinct: Sequence[str] = list(dict.fromkeys(names))
    more = len(distinct) - _SHOWN
    return ", ".join(distinct[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
