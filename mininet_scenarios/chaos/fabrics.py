"""Fabrics drawn at random, small enough for one machine: as parsed configuration files."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from typing import Any, Final

from mininet_scenarios.emulators.catalogue import EMULATORS

SUBSTRATES: Final = ("dual-homed-vlan", "single-homed-vlan", "single-homed-openflow")
_VARIABLE: Final = "HYDRA_CHAOS_PASSWORD"
_DRIVERS: Final = ("polatis-scpi", "polatis-tl1", "calient-tl1", "glimmerglass-tl1")
_PORTS: Final = 16
_WIRED: Final = 0.8
"""Share of the racks reached by a plane."""


def draw(chance: random.Random, substrate: str) -> dict[str, Any]:
    """A fabric of three to five racks with one or two servers, and two or three planes.

    The wiring is uneven, and the planes' drivers differ; every other rack has two IPv4 prefixes.
    """
    os.environ[_VARIABLE] = "root"  # of the emulators
    racks = [_rack(chance, substrate, number) for number in range(1, chance.randint(3, 5) + 1)]
    planes = [_plane(chance, number) for number in range(1, chance.randint(2, 3) + 1)]
    document: dict[str, Any] = {
        "fabric": "chaos",
        "substrate": substrate,
        "subnets": ["10.0.0.0/15", "fd00:10::/48"],
        "controller": {"openflow": "127.0.0.1:6653", "rest": "127.0.0.1:8080", "journal": "-"},
        "racks": racks,
        "planes": planes,
        "wiring": [
            {
                "racks": names,
                "planes": plane["names"],
                "tor_port": f"hyt-{{rack}}-{plane['names']}",
                "ingress": "{rack}",
                "egress": "{ports + rack}",
            }
            for plane, names in zip(planes, _wired(chance, racks, planes), strict=True)
        ],
        "electrical": {"rate_mbps": 10},
        "server_rate_mbps": 100,
        "vlans": {"circuits": "100-199", "parking": 4000},
        "policy": {"algorithm": chance.choice(["hydra-bfs", "hydra-bfs+"])},
    }
    if substrate == "single-homed-openflow":
        del document["vlans"]["parking"]
    return document


def _wired(
    chance: random.Random, racks: list[dict[str, Any]], planes: list[dict[str, Any]]
) -> list[list[str]]:
    """Names of the racks reached by each plane: all for the first plane, at least two for the
    others.
    """
    names = [rack["names"] for rack in racks]
    reached = [names]
    for _ in planes[1:]:
        some = [name for name in names if chance.random() < _WIRED]
        reached.append(some if len(some) > 1 else names[:2])
    return reached


def _rack(chance: random.Random, substrate: str, rack: int) -> dict[str, Any]:
    prefixes = [f"10.0.{rack}.0/24"] + ([f"10.1.{rack}.0/24"] if rack % 2 else [])
    servers = [
        _server(substrate, rack, number, len(prefixes))
        for number in range(1, chance.randint(1, 2) + 1)
    ]
    return {
        "names": f"r{rack}",
        "prefixes": [*prefixes, f"fd00:10:0:{rack}::/64"],
        "tor": _tor(substrate, rack),
        "servers": servers,
    }


def _tor(substrate: str, rack: int) -> Mapping[str, Any]:
    tor: dict[str, Any] = {"bridge": f"hytor-r{rack}", "datapath_id": 0x1000 + rack}
    if substrate == "single-homed-openflow":
        address = f"unix:/var/run/openvswitch/hytor-r{rack}.mgmt"
        tor |= {"driver": "openflow", "address": address, "protected_ports": True}
    else:
        address = "unix:/var/run/openvswitch/db.sock"
        tor |= {"driver": "ovs-ovsdb", "address": address, "native_vlan": 10}
    if substrate != "dual-homed-vlan":
        tor["electrical_port"] = f"hyl-r{rack}"
    return tor


def _server(substrate: str, rack: int, number: int, prefixes: int) -> Mapping[str, Any]:
    """A server; in a rack with two prefixes, the second server has an address of the second
    prefix.
    """
    name = f"h{rack}{number}"
    second = (number - 1) % prefixes
    server: dict[str, Any] = {
        "names": name,
        "addresses": [f"10.{second}.{rack}.{number}/15", f"fd00:10:0:{rack}::{number}/48"],
        "mac": f"02:00:00:00:{rack:02x}:{number:02x}",
        "tor_port": f"hys-{name}",
    }
    if substrate == "single-homed-openflow":
        return server
    vswitch: dict[str, Any] = {
        "datapath_id": 0x2000 + rack * 256 + number,
        "bridge": f"hyv-{name}",
        "host_port": f"hyh-{name}",
    }
    if substrate == "dual-homed-vlan":
        vswitch |= {"optical_port": f"hyo-{name}", "electrical_port": f"hye-{name}"}
    else:
        vswitch["uplink_port"] = f"hyo-{name}"
    return {**server, "vswitch": vswitch}


def _plane(chance: random.Random, number: int) -> dict[str, Any]:
    driver = chance.choice(_DRIVERS)
    plane = {
        "names": f"p{number}",
        "driver": driver,
        "address": f"127.0.0.1:{5024 + number}",
        "ports": _PORTS,
        "switching_ms": 25,
        "rate_mbps": 100,
    }
    if (user := EMULATORS[driver].user) is not None:
        plane["login"] = {"username": user, "password_env": _VARIABLE}
    return plane
