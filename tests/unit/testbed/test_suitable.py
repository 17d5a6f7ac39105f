"""Fabrics that the testbed refuses before anything is built, with all reasons at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from apps.process.configuration import load_configuration
from hydra.model import Fabric
from mininet_scenarios.testbed import TestbedError
from mininet_scenarios.testbed.layout import layout
from mininet_scenarios.testbed.suitable import check_suitable

CONFIGS = Path(__file__).parents[3] / "configs"
EMULATED = ["cthrough", "demo", "helios", "leaf-spine", "one-way", "openflow-only", "single-homed"]


def refused(fabric: Fabric) -> list[str]:
    """Lines of the refusal."""
    with pytest.raises(TestbedError) as caught:
        check(fabric)
    return str(caught.value).splitlines()


def check(fabric: Fabric) -> None:
    check_suitable(fabric, layout(fabric, "tcp:127.0.0.1:6653", 300))


def renamed(fabric: Fabric, **names: str) -> Fabric:
    """The fabric with changes to its first server."""
    rack = fabric.racks[0]
    first = dataclasses.replace(rack.servers[0], **names)
    rack = dataclasses.replace(rack, servers=(first, *rack.servers[1:]))
    return dataclasses.replace(fabric, racks=(rack, *fabric.racks[1:]))


def with_planes(fabric: Fabric, **changes: str) -> Fabric:
    planes = tuple(dataclasses.replace(plane, **changes) for plane in fabric.planes)
    return dataclasses.replace(fabric, planes=planes)


@pytest.mark.parametrize("name", EMULATED)
def test_shipped_fabrics_for_the_testbed_pass(name: str) -> None:
    check(load_configuration(CONFIGS / f"{name}.yaml").fabric)


def test_a_fabric_of_real_devices_is_refused_with_all_reasons_each_once() -> None:
    fabric = load_configuration(CONFIGS / "reference.yaml").fabric
    first, names, several, tors, *planes, last = refused(fabric)
    assert first == "reference can't be emulated here:"
    assert names.startswith("- names that do not begin with 'hy'")
    assert several.startswith("- names of several switches or ports: ")
    assert tors == (
        "- ToRs at 172.16.0.1:6640, 172.16.0.2:6640, 172.16.0.3:6640 and 317 more; emulated ToRs "
        "are all at unix:/var/run/openvswitch/db.sock"
    )
    assert len(planes) == len(fabric.planes)
    assert planes[0] == (
        "- plane p1: 172.17.0.1:5025 is no address of this machine; give each plane a port of "
        "this machine, as 127.0.0.1:{5024 + plane}"
    )
    assert last == "(`hydra init --emulated` writes a fabric file for the emulation)"


def test_a_name_too_long_for_linux_is_refused(fabric: Fabric) -> None:
    assert refused(renamed(fabric, tor_port="hys-much-too-long"))[1] == (
        "- interface names longer than Linux's 15 characters: hys-much-too-long; shorten the names"
    )


def test_a_name_that_clean_up_would_not_find_is_refused(fabric: Fabric) -> None:
    assert refused(renamed(fabric, tor_port="eth1"))[1].endswith(
        ": eth1; rename them, as hytor-{rack}"
    )


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("serial:/dev/ttyUSB0", "is no HOST:PORT with a port below 55536"),
        ("127.0.0.1:60000", "is no HOST:PORT with a port below 55536"),
        ("no-such-machine.invalid:5025", "is no address of this machine"),
    ],
)
def test_planes_need_a_port_of_this_machine(fabric: Fabric, address: str, told: str) -> None:
    lines = refused(with_planes(fabric, address=address))
    assert [line.partition(";")[0] for line in lines[1:-1]] == [
        f"- plane {name}: {address} {told}" for name in ("p1", "p2")
    ]


def test_a_device_without_an_emulator_is_named(fabric: Fabric) -> None:
    line = refused(with_planes(fabric, driver="manual"))[1]
    assert line.startswith("- plane p1: no emulator here speaks 'manual'; known: calient-tl1, ")
