"""``hydra device connect`` and ``disconnect``"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import click

from apps.cli.command import Command
from apps.cli.device.named import find_plane, in_use_by_controller, opened_plane
from apps.cli.output import CommandError, json_option, print_json, warn
from apps.cli.parameters import config_option
from apps.process.configuration import load_configuration
from hydra.config import Loaded
from hydra.model import CrossConnect, Fabric, Plane
from hydra.port_labels import wired_name, wired_to

_PAIR: Final = re.compile(r"([0-9]{1,6}):([0-9]{1,6})", re.ASCII)

_force_option = click.option(
    "--force",
    is_flag=True,
    help="Also change cross-connects that belong to the controller by its journal.",
)


def _read_pairs(
    _ctx: click.Context, _param: click.Parameter, values: Sequence[str]
) -> list[CrossConnect]:
    pairs = []
    for value in values:
        match = _PAIR.fullmatch(value)
        if match is None:
            raise click.BadParameter(f"{value!r} is not INGRESS:EGRESS, such as 1:17")
        pairs.append(CrossConnect(int(match[1]), int(match[2])))
    return pairs


@click.command(
    cls=Command,
    examples=[
        "hydra device connect p1 15:31 --config fabric.yaml",
        "hydra device connect p1 1:18 2:17 --config fabric.yaml   # a circuit: both ways",
    ],
)
@click.argument("name", metavar="PLANE")
@click.argument("pairs", metavar="INGRESS:EGRESS...", nargs=-1, required=True, callback=_read_pairs)
@_force_option
@config_option()
@json_option
def connect(name: str, pairs: list[CrossConnect], force: bool, config: Path, as_json: bool) -> None:
    """Set up cross-connects on an optical switch, all in one change.

    If a port is in use, the command is refused, and nothing moves. A running controller takes
    foreign cross-connects off the ports wired in the configuration when it next reads the device.
    """
    loaded = load_configuration(config)
    plane = find_plane(loaded.fabric, name)
    if not force:
        _refuse_in_use(loaded, plane, pairs)
    _warn_wired(loaded.fabric, plane, pairs)
    with opened_plane(loaded, plane) as switch:
        before = switch.cross_connects()
        switch.change([], pairs)
    made = [pair for pair in pairs if pair not in before]
    _report(plane, made, [], [pair for pair in pairs if pair in before], as_json)


@click.command(
    cls=Command,
    examples=[
        "hydra device disconnect p1 15:31 --config fabric.yaml",
        "hydra device disconnect p1 --all --config fabric.yaml",
    ],
)
@click.argument("name", metavar="PLANE")
@click.argument("pairs", metavar="[INGRESS:EGRESS...]", nargs=-1, callback=_read_pairs)
@click.option("--all", "everything", is_flag=True, help="Every cross-connect of the switch.")
@_force_option
@config_option()
@json_option
def disconnect(
    name: str,
    pairs: list[CrossConnect],
    everything: bool,
    force: bool,
    config: Path,
    as_json: bool,
) -> None:
    """Take down cross-connects of an optical switch, all in one change.

    A missing cross-connect is no error.
    """
    if everything == bool(pairs):
        raise click.UsageError("no cross-connects are named: give INGRESS:EGRESS, or --all")
    loaded = load_configuration(config)
    plane = find_plane(loaded.fabric, name)
    if pairs and not force:
        _refuse_in_use(loaded, plane, pairs)
    with opened_plane(loaded, plane) as switch:
        before = switch.cross_connects()
        wanted = sorted(before) if everything else pairs
        if everything and not force:
            _refuse_in_use(loaded, plane, wanted)
        switch.change(wanted, [])
    gone = [pair for pair in wanted if pair in before]
    _report(plane, [], gone, [pair for pair in wanted if pair not in before], as_json)


def _refuse_in_use(loaded: Loaded, plane: Plane, pairs: Collection[CrossConnect]) -> None:
    ports = frozenset(port for pair in pairs for port in (pair.ingress, pair.egress))
    touched = in_use_by_controller(loaded).touching(plane.id, ports)
    if not touched:
        return
    cross, circuit = min(touched.items())
    racks = (loaded.fabric.racks[rack].name for rack in loaded.fabric.racks_of(circuit))
    more = f" (and {len(touched) - 1} more)" if len(touched) > 1 else ""
    raise CommandError(
        f"{plane.name}: {cross.ingress} to {cross.egress}{more} belongs to the controller, for "
        f"{' and '.join(racks)}: have the controller move it (`hydra reconfigure`), or use --force"
    )


def _warn_wired(fabric: Fabric, plane: Plane, pairs: Collection[CrossConnect]) -> None:
    wired = wired_to(fabric, plane.id)
    for port in sorted({port for pair in pairs for port in (pair.ingress, pair.egress)}):
        if port in wired:
            end = wired_name(fabric, wired[port])
            warn(
                f"port {port} is wired to {end}: a running controller takes down this "
                "cross-connect when the controller reads the switch"
            )


def _report(
    plane: Plane,
    connected: Collection[CrossConnect],
    disconnected: Collection[CrossConnect],
    unchanged: Collection[CrossConnect],
    as_json: bool,
) -> None:
    circuits_by_result = {
        "connected": connected,
        "disconnected": disconnected,
        "already so": unchanged,
    }
    if as_json:
        print_json(
            {
                "device": plane.name,
                **{
                    words.replace(" ", "_"): [c._asdict() for c in of]
                    for words, of in circuits_by_result.items()
                },
            }
        )
        return
    for words, cross_connects in circuits_by_result.items():
        for cross in cross_connects:
            click.echo(f"{plane.name}: {cross.ingress} to {cross.egress} {words}")
