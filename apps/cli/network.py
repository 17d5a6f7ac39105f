"""Read-only commands: status, devices, policy, topology, demand, reconfigurations."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import click

from apps.cli import drawing
from apps.cli.client import ControllerClient, answered, url_option
from apps.cli.command import Command
from apps.cli.output import (
    ExitCode,
    UnreachableError,
    json_option,
    mbps,
    print_columns,
    print_facts,
    print_json,
    print_table,
)
from apps.cli.parameters import wait_option
from apps.cli.wording import describe_circuit, describe_condition, describe_path, health, moment
from hydra.lifecycle import RECONFIGURATION_TRANSITIONS, ReconfigurationState
from hydra_hybrid_network_client.errors import STORE_LOST, JsonObject
from hydra_hybrid_network_client.requests import resource

_POLL_S: Final = 0.2
OVER: Final = frozenset(s for s, after in RECONFIGURATION_TRANSITIONS.items() if not after)
"""Final states of reconfigurations."""


@click.command(
    cls=Command,
    examples=["hydra status --url http://10.1.0.5:8080", "hydra status --wait 30 && ./run-jobs"],
)
@wait_option(
    "Wait at most this long until the controller is ready and healthy; also while the controller "
    "starts."
)
@url_option
@json_option
@click.pass_context
def status(ctx: click.Context, wait_s: float, url: str, as_json: bool) -> None:
    """Show the controller's readiness, problems, present changes and devices.

    Ready: the controller takes requests. Healthy: nothing is wrong, and no device is away. Exit
    status 0 if ready and healthy, 1 if not ready, 5 if ready and something is wrong.
    """
    with ControllerClient(url) as client:
        missing, wrong = _await_health(client, time.monotonic() + wait_s)
        # Without the store no controller leads, and only the leader knows devices and
        # reconfigurations.
        lost = any(condition["kind"] == STORE_LOST for condition in wrong["conditions"])
        many = [] if lost else client.get("/v1/devices")["devices"]
        asked = [] if lost else client.get("/v1/reconfigurations")["reconfigurations"]
    changes = [change for change in asked if ReconfigurationState(change["state"]) not in OVER]
    if as_json:
        facts = {"ready": not missing, "missing": missing, **wrong}
        print_json({**facts, "changes": changes, "devices": many})
    else:
        ready = "ready" if not missing else "not ready: " + "; ".join(missing)
        click.echo(f"{ready}\n{health(wrong)}")
        for condition in wrong["conditions"]:
            click.echo("\n" + "\n".join(describe_condition(condition)))
        _print_changes(changes)
        _print_devices(many)
    if missing:
        ctx.exit(ExitCode.PROBLEM)
    ctx.exit(ExitCode.OK if wrong["healthy"] else ExitCode.UNHEALTHY)


def _print_changes(changes: Sequence[JsonObject]) -> None:
    """Print changes under way, the latest request first."""
    if changes:
        print_columns(
            "Changes",
            changes,
            {
                "id": "id",
                "asked for by": "trigger",
                "state": "state",
                "stages": lambda row: dict(_stages(row)).get("stages", ""),
                "reason": "reason",
            },
        )


def _print_devices(many: Iterable[JsonObject]) -> None:
    print_columns(
        "Devices",
        many,
        {
            "device": "name",
            "kind": "kind",
            "driver": "driver",
            "connected": lambda row: "yes" if row["connected"] else "NO",
            "detail": "detail",
            "alarms": lambda row: "; ".join(_alarm(alarm) for alarm in row["alarms"]),
        },
    )


def _alarm(alarm: JsonObject) -> str:
    where = "" if alarm["port"] is None else f" at port {alarm['port']}"
    return f"{alarm['severity']} {alarm['code']}{where}: {alarm['text']}"


def _await_health(client: ControllerClient, deadline_s: float) -> tuple[list[str], JsonObject]:
    """(Reasons against readiness, conditions), once ready and healthy, or else at the deadline."""
    while True:
        try:
            missing, wrong = client.get_readiness(), client.get("/v1/conditions")
        except UnreachableError:
            if time.monotonic() >= deadline_s:
                raise
        else:
            if (not missing and wrong["healthy"]) or time.monotonic() >= deadline_s:
                return missing, wrong
        time.sleep(_POLL_S)


@click.command(
    cls=Command, examples=["hydra devices", "hydra devices --down", "hydra devices --json"]
)
@click.option(
    "--down",
    is_flag=True,
    help="Only devices that are not connected, do not answer, or have alarms.",
)
@answered
def devices(client: ControllerClient, down: bool) -> Iterator[object]:
    """List switches with connections and alarms."""
    many = client.get("/v1/devices")["devices"]
    if down:
        many = [
            device
            for device in many
            if device["alarms"] or not (device["connected"] and device["answers"])
        ]
    yield {"devices": many}
    _print_devices(many)


def _read_values(
    _ctx: click.Context, _param: click.Parameter, texts: Iterable[str]
) -> dict[str, object]:
    """Values as JSON or else words; SECTION.KEY is a key of a section."""
    values: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{text!r} is not KEY=VALUE, such as epoch_s=30")
        section, _, last = key.removeprefix("policy.").rpartition(".")
        into = values.setdefault(section, {}) if section else values
        if not isinstance(into, dict):
            raise click.BadParameter(f"{section} is given both a value and {text!r}: give either")
        try:
            into[last] = json.loads(value)
            json.dumps(into[last], allow_nan=False)
        except ValueError:
            into[last] = value
    return values


@click.command(
    cls=Command,
    examples=[
        "hydra policy",
        "hydra policy --set mode=periodic --set epoch_s=30",
        "hydra policy --set drain.bound_ms=2000",
    ],
)
@click.option(
    "--set",
    "values",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_read_values,
    help="Set a key to this value until the next start or reload; repeatable.",
)
@answered
def policy(client: ControllerClient, values: dict[str, object]) -> Iterator[object]:
    """Show the policy in force; with --set, change the policy, and show the changed values.

    `hydra reload --dry-run` shows how the configuration file differs.
    """
    given = set(_flat(values))
    document = client.patch("/v1/policy", values) if values else client.get("/v1/policy")
    yield document
    print_table(
        "Policy",
        ("key", "value", "changes"),
        (
            (value["key"], value["value"], _changed_by(value))
            for value in document["values"]
            if not values or value["key"].removeprefix("policy.") in given
        ),
    )


def _flat(values: Mapping[str, object], section: str = "") -> Iterator[str]:
    """Keys as listed by the policy: ``drain.reads`` of the section ``drain``."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{section}{key}.")
        else:
            yield f"{section}{key}"


def _changed_by(value: JsonObject) -> str:
    """The ways to change the value."""
    if not value["at_once"]:
        return "next start"
    return "--set or reload" if value["by_request"] else "reload"


@click.command(
    cls=Command,
    examples=[
        "hydra topology --json | jq '.paths[] | {src, dst, vlan}'",
        "hydra topology --format svg > topology.svg",
        "hydra topology --format dot | dot -Tpdf > topology.pdf",
        "hydra topology --format graphml > topology.graphml",
    ],
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "dot", "svg", "graphml", "node-link"]),
    default="table",
    show_default=True,
    help="Tables; a graph for Graphviz; a picture; a graph as GraphML or as JSON of networkx.",
)
@answered
def topology(client: ControllerClient, form: str) -> Iterator[object]:
    """Show the present circuits and paths.

    `there` and `back` are a circuit's load between the last two readings of its ports.
    """
    document = client.get("/v1/topology")
    yield document
    if form in {"dot", "svg"}:
        click.echo(drawing.dot(document) if form == "dot" else drawing.svg(document))
        return
    if form != "table":
        click.echo(drawing.graph(document, form))
        return
    print_facts(
        [
            ("fabric", document["fabric"]),
            ("epoch", document["epoch"]),
            ("racks", len(document["racks"])),
            ("planes", len(document["planes"])),
            ("electrical", f"{mbps(document['electrical_rate_mbps'])} Mb/s"),
        ]
    )
    print_circuits("Circuits", document["circuits"])
    print_paths("Paths", document["paths"])


@click.command(cls=Command, examples=["hydra demand"])
@answered
def demand(client: ControllerClient) -> Iterator[object]:
    """Show the rack-to-rack demand that the controller measured.

    Measured: the pair's traffic met no full link, and the demand is the sent rate with some
    head-room. Constrained: the traffic met a full link. The estimate is then the pair's share of
    the servers' links, and plans count on an expected part of the estimate. Mice have no demand. By
    policy.demand, plans may be made for the sent rates instead, or for the bytes waiting in
    sockets.
    """
    document = client.get("/v1/demand")
    yield document
    age = document["age_s"]
    window = f", averages over {document['window_s']:g} s"
    click.echo(f"source: {document['source']}{'' if age is None else f'{window}, {age:.1f} s old'}")
    if document["stale"]:
        click.echo("counters are late from " + ", ".join(document["stale"]))
    for cause, cases in document["troubles"].items():
        click.echo(f"readings not used: {cause}, {cases} times")
    error = document["prediction_error"]
    known = "not measured yet" if error is None else f"{error:.0%} of the actual demand"
    click.echo(f"prediction: {document['prediction']}, error {known}")
    entries = sorted(document["entries"], key=lambda entry: -float(entry["rate_mbps"]))
    print_columns(
        "Demand",
        entries,
        {
            "from": "src",
            "to": "dst",
            "Mb/s>": lambda e: mbps(e["rate_mbps"]),
            "estimated Mb/s>": lambda e: mbps(e["estimated_mbps"]),
            "": lambda e: _known(e, document["basis"]),
            "plans count on Mb/s>": _expected,
            "planned for Mb/s>": lambda e: mbps(e["planned_mbps"]),
            "error Mb/s>": lambda e: "" if e["error_mbps"] is None else mbps(e["error_mbps"]),
        },
    )


def _expected(entry: JsonObject) -> str:
    """The rate that plans count on, if different from the estimated demand; else empty."""
    wanted, expected = mbps(entry["estimated_mbps"]), mbps(entry["expected_mbps"])
    return "" if expected == wanted else expected


def _known(entry: JsonObject, basis: str) -> str:
    """Source of a pair's estimated demand, in words."""
    if basis == "backlog":
        return "waits" if entry["estimated_mbps"] else "no events wait"
    if not entry["estimated_mbps"]:
        return "mice"
    if basis == "rate":
        return "as sent"
    known = "constrained" if entry["constrained"] else "measured"
    share = entry["electrical_share"]
    return f"{known}, {share:.0%} of flows electrical" if share else known


@click.command(
    cls=Command, examples=["hydra reconfigurations", "hydra reconfigurations 7f3a9c41d0be --json"]
)
@click.argument("identifier", metavar="[ID]", required=False)
@answered
def reconfigurations(client: ControllerClient, identifier: str | None) -> Iterator[object]:
    """List reconfigurations, newest first; with an ID, show a reconfiguration's timeline."""
    path = "/v1/reconfigurations"
    document = client.get(path if identifier is None else resource(path, identifier))
    yield document
    if identifier is None:
        _print_reconfigurations(document["reconfigurations"])
    else:
        print_reconfiguration(document)


def _print_reconfigurations(many: Iterable[JsonObject]) -> None:
    print_columns(
        "Reconfigurations",
        many,
        {
            "id": "id",
            "created": lambda row: moment(row["created_unix_s"]),
            "trigger": "trigger",
            "state": "state",
            "epoch>": "epoch",
            "up>": lambda row: len(row["connected"]),
            "down>": lambda row: len(row["disconnected"]),
            "rules>": "rules_pushed",
            "ms>": _duration_ms,
            "reason": "reason",
        },
    )


def _duration_ms(reconfiguration: JsonObject) -> str:
    ends = [step["finished_ms"] for step in reconfiguration["timeline"]]
    return f"{max(ends):.0f}" if ends else ""


def print_reconfiguration(document: JsonObject) -> None:
    print_facts(
        [
            ("id", document["id"]),
            ("state", document["state"]),
            *_stages(document),
            ("trigger", document["trigger"]),
            ("created", moment(document["created_unix_s"])),
            ("epoch", document["epoch"]),
            ("rules pushed", document["rules_pushed"]),
            ("ports retagged", document["ports_retagged"]),
            ("unconfirmed", ", ".join(document["unconfirmed"]) or "none"),
            ("reason", document["reason"] or "-"),
        ]
    )
    print_columns(
        "Timeline",
        document["timeline"],
        {
            "step": "step",
            "device": lambda step: step["device"] or "",
            "from ms>": lambda step: f"{step['started_ms']:.1f}",
            "to ms>": lambda step: f"{step['finished_ms']:.1f}",
            "note": "note",
        },
    )
    print_circuits("Connected", document["connected"])
    print_circuits("Disconnected", document["disconnected"])
    for failure in document["failures"]:
        click.echo(f"failed: {describe_circuit(failure['circuit'])}: {failure['reason']}")


def _stages(document: JsonObject) -> list[tuple[str, str]]:
    """How far a change in stages is; nothing of any other."""
    expected = document["stages_expected"]
    if expected == 1:
        return []
    of = f" of about {expected}" if expected else ""
    waits = ", paused" if document["paused"] else ""
    return [("stages", f"{document['stages_done']}{of}{waits}")]


def print_circuits(title: str, circuits: Sequence[JsonObject]) -> None:
    """Print circuits, with load if known.

    One-way circuits lead from the sending rack to the receiving rack.
    """
    load = ("there>", "back>") if any("a_to_b_mbps" in c for c in circuits) else ()
    ends = ("from", "to") if any(c["one_way"] for c in circuits) else ("rack", "rack")
    print_table(
        title,
        ("plane", ends[0], "port", ends[1], "port", *load, "of Mb/s>" if load else "Mb/s>"),
        (
            (
                c["plane"],
                c["a"]["rack"],
                c["a"]["port"],
                c["b"]["rack"],
                c["b"]["port"],
                *(_sent(c[key]) for key in ("a_to_b_mbps", "b_to_a_mbps") if load),
                mbps(c["rate_mbps"]),
            )
            for c in circuits
        ),
    )


def _sent(rate_mbps: float | None) -> str:
    return "" if rate_mbps is None else mbps(rate_mbps)


def print_paths(title: str, paths: Iterable[JsonObject]) -> None:
    print_table(
        title,
        ("from", "to", "VLAN>", "hops"),
        ((p["src"], p["dst"], p["vlan"] or "", describe_path(p)) for p in paths),
    )
