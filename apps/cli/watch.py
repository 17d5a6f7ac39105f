"""``hydra watch``: live events."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Final

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.output import CommandError, mbps, warn
from apps.cli.patience import until_ctrl_c
from apps.cli.wording import describe_circuit, describe_path, local, moment
from hydra.events import EventKind
from hydra_hybrid_network_client.errors import JsonObject, Refusal
from hydra_hybrid_network_client.requests import Place

_RECONNECT_S: Final = 1.0


@click.command(
    cls=Command,
    examples=[
        "hydra watch",
        "hydra watch --kind circuit-moving --kind circuit-down",
        "hydra watch --json | jq -r 'select(.kind == \"reservation\") | .reservation.state'",
    ],
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in EventKind]),
    help="Only events of this kind; repeatable.",
)
@click.option("--count", type=click.IntRange(1), help="End after this number of events.")
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def watch(kinds: Sequence[str], count: int | None, url: str, as_json: bool) -> None:
    """Print events of circuits, reservations, changes and devices, until Ctrl-C.

    If the controller goes away, the command connects again, goes on after the last event, and
    reports the number of missed events.
    """
    place = Place()
    shown = 0
    trouble = ""
    with ControllerClient(url) as client, until_ctrl_c():
        while True:
            try:
                for name, data in client.events(kinds, place):
                    trouble = ""
                    if name == "gap":
                        _print_gap(data)
                        continue
                    click.echo(json.dumps(data) if as_json else _describe(data))
                    shown += 1
                    if shown == count:
                        return
            except CommandError as error:
                if not place.opened or _is_final(error):
                    raise
                if error.message != trouble:
                    trouble = error.message
                    warn(f"{trouble}; trying again")
            else:
                trouble = ""
            time.sleep(_RECONNECT_S)


def _is_final(error: CommandError) -> bool:
    """True if the controller refuses the request, and would refuse a repetition."""
    return isinstance(error.__cause__, Refusal) and not error.__cause__.may_pass


def _print_gap(data: JsonObject) -> None:
    missed = data["missed"]
    warn("some events were missed" if missed is None else f"{missed} events were missed")


def _describe(event: JsonObject) -> str:
    reason = f": {local(event['reason'])}" if event["reason"] else ""
    return f"{moment(event['unix_s'])}  {event['kind']:<15}  {_about(event)}{reason}"


def _about(event: JsonObject) -> str:
    if event["reconfiguration"] is not None:
        return "{id} {state}".format_map(event["reconfiguration"])
    if event["alarm"] is not None:
        return _alarm(event["alarm"])
    if event["circuit"] is not None:
        return _circuit(event)
    return "a week of slots begins" if event["reservation"] is None else _reservation(event)


def _reservation(event: JsonObject) -> str:
    reservation = event["reservation"]
    path = reservation["path"] or reservation["booked"]
    where = f"{reservation['src']} to {reservation['dst']}" if path is None else describe_path(path)
    rate = mbps(reservation["bandwidth_mbps"])
    return f"{reservation['id']} {reservation['state']}  {where}, {rate} Mb/s"


def _alarm(alarm: JsonObject) -> str:
    where = "" if alarm["port"] is None else f" at port {alarm['port']}"
    return f"{alarm['device']}{where} {alarm['code']} {alarm['severity']}: {alarm['text']}"


def _circuit(event: JsonObject) -> str:
    ids = ", ".join(event["reservations"])
    return describe_circuit(event["circuit"]) + (f" (reservations {ids})" if ids else "")
