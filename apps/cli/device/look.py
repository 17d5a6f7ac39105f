"""Read-only ``hydra device`` commands."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from apps.cli.command import Command
from apps.cli.device.named import find, find_plane, in_use_by_controller, opened_plane, opened_tor
from apps.cli.output import (
    CommandError,
    ExitCode,
    json_option,
    print_columns,
    print_facts,
    print_json,
    print_table,
)
from apps.cli.parameters import config_option
from apps.process.configuration import load_configuration
from apps.tools.in_use import InUse
from drivers.registry import optical_switch, tor_switch
from hydra.config import Loaded
from hydra.errors import DeviceError
from hydra.model import Fabric, Plane, Rack
from hydra.port_labels import behind_tor_ports, wired_name, wired_to
from hydra.roles import AlarmSource, CounterReader, OpticalSwitch, PowerMeter, TorSwitch

_RANGE: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)
_AT_ONCE: Final = 32
_ABILITIES: Final = {"unidirectional": "one-way", "power_readings": "power"}
"""Words of docs/devices.md for capabilities that are not called by their keys."""


@click.command(
    "list",
    cls=Command,
    examples=[
        "hydra device list --config fabric.yaml",
        "hydra device list --config fabric.yaml --contact --json | jq '.[] | select(.problem)'",
    ],
)
@config_option()
@click.option(
    "--contact", is_flag=True, help="Open each device, and name the devices without an answer."
)
@json_option
@click.pass_context
def list_devices(ctx: click.Context, config: Path, contact: bool, as_json: bool) -> None:
    """List the optical switches and ToRs of a configuration, and their drivers' capabilities.

    Exit status 1 if a contacted device does not answer.
    """
    loaded = load_configuration(config)
    fabric = loaded.fabric
    problems = contacted(loaded) if contact else [None] * (len(fabric.planes) + len(fabric.racks))
    listed = [*map(_plane_entry, fabric.planes), *map(_rack_entry, fabric.racks)]
    for entry, problem in zip(listed, problems, strict=True):
        entry["problem"] = problem
    if as_json:
        print_json(listed)
    else:
        heading = "answers" if contact else ""
        columns = ("device", "kind", "driver", "address", "can", heading)
        print_table("Devices", columns, (_device_row(entry, contact) for entry in listed))
    ctx.exit(ExitCode.PROBLEM if any(problems) else ExitCode.OK)


def _plane_entry(plane: Plane) -> dict[str, Any]:
    abilities = asdict(optical_switch(plane, 1.0).capabilities)
    return _entry(plane.name, "optical-switch", plane.driver, plane.address, abilities)


def _rack_entry(rack: Rack) -> dict[str, Any]:
    abilities = asdict(tor_switch(rack, 1.0).capabilities)
    return _entry(rack.name, "tor", rack.tor.driver, rack.tor.address, abilities)


def _entry(
    name: str, kind: str, driver: str, address: str, abilities: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "driver": driver,
        "address": address,
        "capabilities": abilities,
    }


def _device_row(entry: dict[str, Any], contact: bool) -> tuple[str, ...]:
    answers = (entry["problem"] or "yes") if contact else ""
    fields = (entry["name"], entry["kind"], entry["driver"], entry["address"])
    return (*fields, _abilities(entry["capabilities"]), answers)


def _abilities(capabilities: dict[str, Any]) -> str:
    return (
        ", ".join(
            _ABILITIES.get(name, name.replace("_", " "))
            for name, has in capabilities.items()
            if has is True
        )
        or "-"
    )


def contacted(loaded: Loaded) -> list[str | None]:
    """Open each plane, then each rack's ToR: the reason why a device does not answer, None for an
    answer.
    """
    devices = [*loaded.fabric.planes, *loaded.fabric.racks]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda device: _problem_of(loaded, device), devices))


def _problem_of(loaded: Loaded, device: Plane | Rack) -> str | None:
    limits = loaded.policy.timeouts
    try:
        if isinstance(device, Plane):
            with closing(optical_switch(device, limits.ocs_s)) as switch:
                switch.size()  # an accepted connection shows little
        else:
            with closing(tor_switch(device, limits.tor_s)) as tor:
                tor.open()
    except DeviceError as error:
        return str(error)
    return None


@click.command(
    cls=Command,
    examples=[
        "hydra device show p1 --config fabric.yaml",
        "hydra device show r1 --config fabric.yaml --json | jq .ports",
    ],
)
@click.argument("name", metavar="DEVICE")
@config_option()
@json_option
def show(name: str, config: Path, as_json: bool) -> None:
    """Show the state of a DEVICE: cross-connects of an optical switch, VLANs of a ToR."""
    loaded = load_configuration(config)
    device = find(loaded.fabric, name)
    if isinstance(device, Plane):
        in_use = in_use_by_controller(loaded)
        with opened_plane(loaded, device) as switch:
            document = _describe_plane(loaded.fabric, device, switch, in_use)
    else:
        with opened_tor(loaded, device) as tor:
            document = _describe_tor(loaded.fabric, device, tor)
    if as_json:
        print_json(document)
    elif isinstance(device, Plane):
        _print_plane(document)
    else:
        _print_tor(document)


def _describe_plane(
    fabric: Fabric, plane: Plane, switch: OpticalSwitch, in_use: InUse
) -> dict[str, Any]:
    size = switch.size()
    states = switch.port_states(range(1, sum(size) + 1))
    held = in_use.on(plane.id)
    wired = wired_to(fabric, plane.id)
    return {
        **_plane_entry(plane),
        "identity": asdict(switch.identity()),
        "ingress_ports": size[0],
        "egress_ports": size[1],
        "cross_connects": [
            {
                "ingress": cross.ingress,
                "egress": cross.egress,
                "from": wired_name(fabric, wired.get(cross.ingress)),
                "to": wired_name(fabric, wired.get(cross.egress)),
                "controller": cross in held,
            }
            for cross in sorted(switch.cross_connects())
        ],
        "port_states": {str(port): state.value for port, state in sorted(states.items())},
    }


def _print_plane(document: dict[str, Any]) -> None:
    identity = document["identity"]
    by_state: dict[str, list[int]] = {}
    for port, state in document["port_states"].items():
        by_state.setdefault(state, []).append(int(port))
    print_facts(
        [
            ("device", f"{document['name']}, {document['driver']} at {document['address']}"),
            ("identity", " ".join(identity.values())),
            ("ports", f"{document['ingress_ports']} ingress, {document['egress_ports']} egress"),
            *((f"ports {state}", _ranges(ports)) for state, ports in sorted(by_state.items())),
        ]
    )
    print_columns(
        "Cross-connects",
        document["cross_connects"],
        {
            "ingress>": "ingress",
            "egress>": "egress",
            "from": lambda c: c["from"] or "-",
            "to": lambda c: c["to"] or "-",
            "whose": lambda c: "the controller's" if c["controller"] else "not the controller's",
        },
    )


def _describe_tor(fabric: Fabric, rack: Rack, tor: TorSwitch) -> dict[str, Any]:
    behind = behind_tor_ports(fabric, rack)
    vlans, links = tor.vlans(behind), tor.link_up(behind)
    counters = (
        tor.counters(behind) if isinstance(tor, CounterReader) and tor.capabilities.counters else {}
    )
    return {
        **_rack_entry(rack),
        "ports": [
            {
                "port": port,
                "to": end,
                "up": links[port],
                "native": vlans[port].native,
                "tagged": sorted(vlans[port].tagged),
                "counters": asdict(counters[port]) if port in counters else None,
            }
            for port, end in behind.items()
        ],
    }


def _print_tor(document: dict[str, Any]) -> None:
    click.echo(f"{document['name']}, {document['driver']} at {document['address']}")
    print_table(
        "Ports",
        ("port", "to", "link", "native>", "tagged", "frames in>", "frames out>"),
        (
            (
                port["port"],
                port["to"],
                "up" if port["up"] else "DOWN",
                port["native"] or "-",
                _ranges(port["tagged"]),
                *_frames(port["counters"]),
            )
            for port in document["ports"]
        ),
    )


def _frames(counters: dict[str, int] | None) -> tuple[str, str]:
    if counters is None:
        return "-", "-"
    return f"{counters['rx_frames']:,}", f"{counters['tx_frames']:,}"


def _ranges(numbers: Collection[int]) -> str:
    """``1-3,7`` for 1, 2, 3 and 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "-"


def _read_ports(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> list[int]:
    ports: set[int] = set()
    for value in values:
        match = _RANGE.fullmatch(value)
        if match is None:
            raise click.BadParameter(f"{value!r} is not a port or a range of ports, such as 1-16")
        ports.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(ports)


@click.command(
    cls=Command,
    examples=[
        "hydra device power p1 --config fabric.yaml",
        "hydra device power p1 1-4 17 --config fabric.yaml",
    ],
)
@click.argument("name", metavar="PLANE")
@click.argument("ports", metavar="[PORT...]", nargs=-1, callback=_read_ports)
@config_option()
@json_option
def power(name: str, ports: list[int], config: Path, as_json: bool) -> None:
    """Read the optical power at PORTs of an optical switch, in dBm; without PORTs, at all ports."""
    loaded = load_configuration(config)
    plane = find_plane(loaded.fabric, name)
    with opened_plane(loaded, plane) as switch:
        if not (isinstance(switch, PowerMeter) and switch.capabilities.power_readings):
            raise CommandError(f"{plane.name}: driver {plane.driver} has no power readings")
        readings = switch.power_dbm(ports or range(1, sum(switch.size()) + 1))
    if as_json:
        print_json({"device": plane.name, "power_dbm": {str(p): r for p, r in readings.items()}})
        return
    wired = wired_to(loaded.fabric, plane.id)
    print_table(
        f"Power at {plane.name}",
        ("port>", "dBm>", "wired to"),
        (
            (
                port,
                "no reading" if dbm is None else f"{dbm:.1f}",
                wired_name(loaded.fabric, wired.get(port)) or "-",
            )
            for port, dbm in sorted(readings.items())
        ),
    )


@click.command(cls=Command, examples=["hydra device alarms p1 --config fabric.yaml"])
@click.argument("name", metavar="PLANE")
@config_option()
@json_option
def alarms(name: str, config: Path, as_json: bool) -> None:
    """Show the standing alarms of an optical switch."""
    loaded = load_configuration(config)
    plane = find_plane(loaded.fabric, name)
    with opened_plane(loaded, plane) as switch:
        if not (isinstance(switch, AlarmSource) and switch.capabilities.alarms):
            raise CommandError(f"{plane.name}: driver {plane.driver} has no alarms")
        standing = switch.alarms()
    if as_json:
        listed = [{**asdict(alarm), "severity": alarm.severity.value} for alarm in standing]
        print_json({"device": plane.name, "alarms": listed})
        return
    print_table(
        f"Alarms of {plane.name}",
        ("severity", "port>", "code", "text"),
        ((a.severity.value, a.port or "-", a.code, a.text) for a in standing),
    )
