"""``hydra history``: the controller's changes, with reasons."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.network import print_circuits
from apps.cli.output import json_option, print_columns, print_facts, print_json, print_table
from apps.cli.parameters import read_past_moment
from apps.cli.wording import local, moment
from hydra.lifecycle import ReconfigurationState
from hydra_hybrid_network_client.errors import JsonObject
from hydra_hybrid_network_client.requests import resource

_PATH: Final = "/v1/reconfigurations"
_WIDTH: Final = 60
_MOST: Final = 1000


@click.command(
    cls=Command,
    examples=[
        "hydra history",
        "hydra history --since 2026-12-01T02:00 --before 2026-12-01T04:00 --limit 500",
        "hydra history --state failed --state partial",
        "hydra history --trigger periodic --limit 5 --json",
        "hydra history 7f3a0c21b9d4",
    ],
)
@click.argument("identifier", metavar="[ID]", required=False)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in ReconfigurationState]),
    help="Only reconfigurations in this state; repeatable.",
)
@click.option(
    "--since",
    "since_s",
    metavar="TIME",
    callback=read_past_moment,
    help="Only entries since TIME, the latest --limit of them.",
)
@click.option(
    "--before",
    "before_s",
    metavar="TIME",
    callback=read_past_moment,
    help="Only entries before TIME. If --limit cuts off the list, the last line says how to go on.",
)
@click.option(
    "--trigger", default="", help="Only reconfigurations whose trigger begins with this text."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Largest number of entries; the latest are shown.",
)
@url_option
@json_option
def history(
    identifier: str | None,
    states: tuple[str, ...],
    since_s: float | None,
    before_s: float | None,
    trigger: str,
    limit: int,
    url: str,
    as_json: bool,
) -> None:
    """List events and reconfigurations; with an ID, draw a reconfiguration's substeps.

    The first table is from the journal, newest first: changes, losses, reservations, decisions,
    reloads and starts. The second has the reconfigurations since the controller's last start. Then
    come the latest decisions of the periodic mode, including decisions without a change.
    """
    bounds = {"since_unix_s": since_s, "before_unix_s": before_s}
    span = {name: bound for name, bound in bounds.items() if bound is not None}
    with ControllerClient(url) as client:
        if identifier is not None:
            document = client.get(resource(_PATH, identifier))
            print_json(document) if as_json else _print_one(document)
            return
        happened = client.get(f"/v1/history?{urlencode({'limit': min(limit, _MOST), **span})}")
        many = client.get(_PATH)["reconfigurations"]
        decisions = client.get("/v1/decisions")["decisions"][:limit]
    chosen = [
        change
        for change in many
        if (not states or change["state"] in states)
        and change["trigger"].startswith(trigger)
        and (since_s or 0.0) <= change["created_unix_s"] < (before_s or math.inf)
    ][:limit]
    if as_json:
        print_json({**happened, "reconfigurations": chosen, "decisions": decisions})
        return
    if not (states or trigger):
        print_table(
            "Event",
            ("time", "kind", "what"),
            (
                (moment(event["unix_s"]), event["kind"], local(event["text"]))
                for event in happened["happenings"]
            ),
        )
        if (earlier_s := happened["next_before_unix_s"]) is not None:
            since = "" if since_s is None else f"--since {_exact(since_s)} "
            click.echo(f"and more before: hydra history {since}--before {_exact(earlier_s)}")
    print_columns(
        "Reconfigurations",
        chosen,
        {
            "id": "id",
            "created": lambda row: moment(row["created_unix_s"]),
            "trigger": "trigger",
            "state": "state",
            # From before the controller's last start, only the end is known.
            "circuits": lambda row: (
                f"+{len(row['connected'])} -{len(row['disconnected'])}" if row["timeline"] else ""
            ),
            "ms>": lambda row: f"{_end_ms(row):.0f}" if row["timeline"] else "",
            "reason": "reason",
        },
    )
    for words in decisions:
        click.echo(local(words))


def _exact(unix_s: float) -> str:
    """A moment for ``--before``, local and to the microsecond, so that pages don't overlap."""
    return datetime.fromtimestamp(unix_s).astimezone().isoformat()


def _end_ms(json_object: JsonObject) -> float:
    return max((float(step["finished_ms"]) for step in json_object["timeline"]), default=0.0)


def _print_one(json_object: JsonObject) -> None:
    print_facts(
        [
            ("id", json_object["id"]),
            ("state", json_object["state"]),
            ("trigger", json_object["trigger"]),
            ("created", moment(json_object["created_unix_s"])),
            ("reason", json_object["reason"] or "-"),
            ("unconfirmed", ", ".join(json_object["unconfirmed"]) or "none"),
        ]
    )
    end_ms = _end_ms(json_object)
    print_columns(
        f"Timeline, {end_ms:.0f} ms",
        json_object["timeline"],
        {
            "substep": "step",
            "device": lambda step: step["device"] or "all",
            "from": lambda step: _bar(step["started_ms"], step["finished_ms"], end_ms),
            "ms>": lambda step: f"{step['finished_ms'] - step['started_ms']:.1f}",
            "note": "note",
        },
    )
    print_circuits("Connected", json_object["connected"])
    print_circuits("Disconnected", json_object["disconnected"])


def _bar(started_ms: float, finished_ms: float, end_ms: float) -> str:
    """A step's place in the whole, as a bar at least a character wide."""
    scale = _WIDTH / end_ms if end_ms else 0.0
    before = min(_WIDTH - 1, int(started_ms * scale))
    length = max(1, round((finished_ms - started_ms) * scale))
    return (" " * before + "━" * min(length, _WIDTH - before)).ljust(_WIDTH)
