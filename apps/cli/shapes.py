"""``hydra shape``: bandwidth between racks in a pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from apps.cli.bandwidth import read_entry, read_shape_rate
from apps.cli.client import ControllerClient, answered, url_option
from apps.cli.command import Command, Group
from apps.cli.output import CommandError, json_option, mbps, print_columns, print_facts, print_json
from apps.cli.parameters import with_options
from apps.cli.reservations import end_of, path_options, path_wishes, wish_options
from apps.cli.wording import local, moment
from hydra.names import counted
from hydra.reservations.shapes import MATRIX
from hydra_hybrid_network_client.errors import JsonObject
from hydra_hybrid_network_client.requests import WAIT_S, resource

_SHAPES: Final = "/v1/shapes"
_GOOD: Final = {"ready", "scheduled", "held"}


@click.group(
    cls=Group,
    examples=["hydra shape reserve ring r1 r2 r3 r4 --mbps most", "hydra shape list"],
)
def shape() -> None:
    """Reserve bandwidth between racks in a pattern, under a common id."""


@shape.command(
    cls=Command,
    examples=[
        "hydra shape reserve ring r1 r2 r3 r4 --mbps 80 --duration 2h --wait",
        "hydra shape reserve torus:2x2 r1 r2 r3 r4 --mbps most",
        "hydra shape reserve ring --any 8 --mbps most",
        "hydra shape reserve pairs r1 r2 --mbps 40 --protect disjoint --max-hops 1",
        "hydra shape reserve matrix r1:r2=40 r2:r3=20",
    ],
)
@click.argument("pattern")
@click.argument("racks", nargs=-1, metavar="[RACK…]")
@click.option(
    "--any",
    "number",
    type=click.IntRange(2),
    metavar="N",
    help="Have the controller choose N racks, of RACK… if given, else of all.",
)
@click.option(
    "--mbps",
    "rate",
    metavar="RATE",
    callback=read_shape_rate,
    help="Bandwidth of each pair, in each direction; `most`: the highest that fits at all pairs.",
)
@with_options(wish_options)
@with_options(path_options)
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s until the circuits are up.")
@url_option
@json_option
def reserve(
    pattern: str,
    racks: Sequence[str],
    number: int | None,
    rate: float | str | None,
    wait: bool,
    url: str,
    as_json: bool,
    duration: float | None,
    start: float | None,
    end: float | None,
    priority: int,
    service: str,
    purpose: str,
    **path: Any,
) -> None:
    """Reserve between racks in a PATTERN: ring, torus:AxBxC, all-to-all, tree, pairs, or matrix.

    RACK… are the racks, in the order of the pattern; with --any, the racks to choose from. For a
    matrix, RACK… are pairs with their rates, SRC:DST=MBPS. All pairs are reserved, or none. With
    --wait, exit status 1 if the shape did not become ready.
    """
    if duration is not None and end is not None:
        raise click.UsageError("--duration and --end are both given: give either")
    span = {"duration_s": duration, "start_unix_s": start, "end_unix_s": end}
    wish = {"priority": priority, "service": service, "purpose": purpose, **path_wishes(path)}
    body: JsonObject = {"bandwidth_mbps": rate, **span, **wish}
    if number is not None and pattern == MATRIX:
        raise click.UsageError("--any does not go with a matrix, which names its racks")
    if number is None and not racks:
        raise click.UsageError("no rack is named: name the racks, or give --any N")
    if pattern == MATRIX:
        body["matrix"] = [read_entry(text).model_dump(exclude_none=True) for text in racks]
    else:
        if rate is None:
            raise click.UsageError("--mbps is missing: give a rate in Mb/s, or most")
        chosen = {"any": number, "from": list(racks) or None}
        body |= {"pattern": pattern, "racks": list(racks) if number is None else chosen}
    with ControllerClient(url) as client:
        document = client.post(_SHAPES, body, wait=wait)
    _print_shape(document, as_json)
    if wait and document["state"] not in _GOOD:
        why = f": {document['reason']}" if document["reason"] else ""
        raise CommandError(
            f"shape {document['id']} is {document['state']}, not ready{why}; `hydra shape show "
            f"{document['id']}` shows later states"
        )


@shape.command("list", cls=Command, examples=["hydra shape list --json | jq '.shapes[].state'"])
@click.option(
    "--all", "ended", is_flag=True, help="List shapes that are over, too; --json always does."
)
@answered
def list_shapes(client: ControllerClient, ended: bool) -> Iterator[object]:
    """List shapes and their states."""
    document = client.get(_SHAPES)
    yield document
    print_columns(
        "Shapes",
        [shape for shape in document["shapes"] if ended or shape["state"] != "over"],
        {
            "id": "id",
            "pattern": "pattern",
            "racks>": lambda row: len(row["racks"]),
            "Mb/s>": lambda row: mbps(row["bandwidth_mbps"]),
            "state": "state",
            "start": lambda row: moment(row["start_unix_s"]),
            "end": end_of,
            "purpose": "purpose",
            "to do": "to_do",
        },
    )


@shape.command(cls=Command, examples=["hydra shape show 7f3a9c41d0be"])
@click.argument("identifier", metavar="ID")
@url_option
@json_option
def show(identifier: str, url: str, as_json: bool) -> None:
    """Show the state, remedy and reservations of shape ID."""
    with ControllerClient(url) as client:
        document = client.get(resource(_SHAPES, identifier))
    _print_shape(document, as_json)


@shape.command(cls=Command, examples=["hydra shape release 7f3a9c41d0be --wait"])
@click.argument("identifier", metavar="ID")
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s until the circuits are down.")
@url_option
@json_option
def release(identifier: str, wait: bool, url: str, as_json: bool) -> None:
    """Give the bandwidth of shape ID back. A repetition is harmless."""
    with ControllerClient(url) as client:
        document = client.delete(resource(_SHAPES, identifier), wait=wait)
    _print_shape(document, as_json)
    left = [
        reservation["id"]
        for reservation in document["reservations"]
        if reservation["state"] == "releasing"
    ]
    if wait and left:
        raise CommandError(
            f"being released yet, of shape {identifier}: {counted(len(left), 'reservation')}"
        )


def _print_shape(document: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    print_facts(
        [
            ("id", document["id"]),
            ("state", document["state"]),
            ("pattern", document["pattern"]),
            ("racks", " ".join(document["racks"])),
            *([("choice", document["choice"])] if document["choice"] else ()),
            ("bandwidth", f"{mbps(document['bandwidth_mbps'])} Mb/s or more between each pair"),
            *([("purpose", document["purpose"])] if document["purpose"] else ()),
            ("start", moment(document["start_unix_s"])),
            ("end", end_of(document)),
            ("reason", local(document["reason"]) or "-"),
            ("to do", document["to_do"] or "-"),
        ]
    )
    print_columns(
        "Reservations",
        document["reservations"],
        {
            "id": "id",
            "from": "src",
            "to": "dst",
            "Mb/s>": lambda row: mbps(row["bandwidth_mbps"]),
            "state": "state",
            "reason": lambda row: local(row["reason"]),
        },
    )
