"""Commands that ask the controller for circuits: plan, reconfigure, reserve, release."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from apps.cli.client import WAIT_S, ControllerClient, JsonObject, resource, url_option
from apps.cli.command import Command
from apps.cli.network import (
    describe_path,
    moment,
    print_circuits,
    print_paths,
    print_reconfiguration,
)
from apps.cli.output import CommandError, json_option, mbps, print_facts, print_json, print_table

_RESERVATIONS: Final = "/v1/reservations"
_RECONFIGURATIONS: Final = "/v1/reconfigurations"
_DEMAND = re.compile(r"(?P<src>[^:=]+):(?P<dst>[^:=]+)=(?P<mbps>[^:=]+)")
_F = TypeVar("_F", bound=Callable[..., Any])


def _rate(text: str) -> float:
    """A finite number from zero."""
    try:
        number = float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number") from None
    if not (math.isfinite(number) and number >= 0):
        raise click.BadParameter(f"{text} must be finite and not negative")
    return number


def _read_positive(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    number = _rate(value)
    if not number:
        raise click.BadParameter(f"{value} must be greater than 0")
    return number


def _read_demand(
    _ctx: click.Context, _param: click.Parameter, values: Sequence[str]
) -> list[JsonObject]:
    """``SRC:DST=MBPS`` as the API takes it."""
    entries: list[JsonObject] = []
    for value in values:
        match = _DEMAND.fullmatch(value)
        if match is None:
            raise click.BadParameter(f"{value!r} is not SRC:DST=MBPS, such as r1:r2=50")
        entries.append({"src": match["src"], "dst": match["dst"], "mbps": _rate(match["mbps"])})
    return entries


def _planning_options(command: _F) -> _F:
    options = (
        click.option(
            "--demand",
            metavar="SRC:DST=MBPS",
            callback=_read_demand,
            multiple=True,
            help="Demand from one rack to another; may be repeated. Without: the measured one.",
        ),
        click.option("--rack", "racks", multiple=True, help="Change only these racks; repeatable."),
        click.option(
            "--plane", "planes", multiple=True, help="Change only these planes; repeatable."
        ),
        click.option("--algorithm", help="Instead of the configured one."),
        click.option("--only-if-it-pays", is_flag=True, help="Change nothing where it does not."),
        url_option,
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _plan_body(options: JsonObject) -> JsonObject:
    """Options that were given; what is left out means `all` or `as configured`."""
    keys = ("demand", "racks", "planes", "algorithm", "only_if_it_pays")
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key in keys
        if (value := options[key])
    }


@click.command(cls=Command, examples=["hydra plan --demand r1:r2=80 --demand r2:r1=10"])
@_planning_options
def plan(url: str, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - click's options
    """Dry run: show what a reconfiguration would change."""
    with ControllerClient(url) as client:
        document = client.post("/v1/plan", _plan_body(options))
    if as_json:
        print_json(document)
        return
    verdict = document["verdict"]
    pairs = ", ".join(f"{p['src']}-{p['dst']}" for p in document["affected_pairs"])
    served, wanted = document["served_mbps"], document["demand_mbps"]
    print_facts(
        [
            ("from epoch", document["current_epoch"]),
            ("served", f"{mbps(served)} of {mbps(wanted)} Mb/s"),
            ("affected pairs", pairs or "none"),
            ("retagged ports", document["retagged_ports"]),
            ("rules", document["rules"]),
            ("planned in", f"{document['planning_ms']:.1f} ms"),
            ("pays", f"{'yes' if verdict['pays'] else 'no'}: {verdict['reason']}"),
        ]
    )
    print_circuits("To connect", document["connect"])
    print_circuits("To disconnect", document["disconnect"])
    print_paths("Paths afterwards", document["paths"])


@click.command(cls=Command, examples=["hydra reconfigure --demand r1:r2=80 --wait"])
@_planning_options
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s for its end.")
def reconfigure(url: str, as_json: bool, wait: bool, **options: Any) -> None:  # noqa: ANN401
    """Change the topology to suit a demand.

    Exit status 1 if it failed; circuits that failed alone leave it at 0 and are listed.
    """
    with ControllerClient(url) as client:
        document = client.post(_RECONFIGURATIONS, _plan_body(options), wait=wait)
    if as_json:
        print_json(document)
    else:
        print_reconfiguration(document)
    if document["state"] in {"failed", "refused"}:
        raise CommandError(
            f"reconfiguration {document['id']} {document['state']}: {document['reason']}"
        )


@click.command(cls=Command, examples=["hydra reserve r1 r3 --mbps 80 --duration 3600 --wait"])
@click.argument("src")
@click.argument("dst")
@click.option(
    "--mbps",
    "rate",
    metavar="RATE",
    callback=_read_positive,
    required=True,
    help="Held in both directions.",
)
@click.option(
    "--duration",
    metavar="SECONDS",
    callback=_read_positive,
    help="Without: until released.",
)
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s until its circuits are up.")
@url_option
@json_option
def reserve(
    src: str,
    dst: str,
    rate: float,
    duration: float | None,
    wait: bool,
    url: str,
    as_json: bool,
) -> None:
    """Reserve bandwidth between two racks or two servers, SRC and DST.

    Prints the reservation's id. With --wait, exit status 1 if it did not become active.
    """
    body: JsonObject = {"src": src, "dst": dst, "bandwidth_mbps": rate}
    if duration is not None:
        body["duration_s"] = duration
    with ControllerClient(url) as client:
        document = client.post(_RESERVATIONS, body, wait=wait)
    _print_reservation(document, as_json)
    if wait and document["state"] != "active":
        raise CommandError(_not_reached("active", document))


@click.command(cls=Command, examples=["hydra reservations --json | jq '.reservations[].state'"])
@click.argument("identifier", metavar="[ID]", required=False)
@url_option
@json_option
def reservations(identifier: str | None, url: str, as_json: bool) -> None:
    """List reservations; with an ID, show one."""
    with ControllerClient(url) as client:
        if identifier is not None:
            _print_reservation(client.get(resource(_RESERVATIONS, identifier)), as_json)
            return
        document = client.get(_RESERVATIONS)
    if as_json:
        print_json(document)
        return
    print_table(
        "Reservations",
        ("id", "from", "to", "Mb/s>", "state", "path", "reason"),
        (
            (
                r["id"],
                r["src"],
                r["dst"],
                mbps(r["bandwidth_mbps"]),
                r["state"],
                "" if r["path"] is None else describe_path(r["path"]),
                r["reason"],
            )
            for r in document["reservations"]
        ),
    )


@click.command(cls=Command, examples=["hydra release 7f3a --wait"])
@click.argument("identifier", metavar="ID")
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s until its circuits are down.")
@url_option
@json_option
def release(identifier: str, wait: bool, url: str, as_json: bool) -> None:
    """Give the bandwidth of reservation ID back. Repeating it is harmless."""
    with ControllerClient(url) as client:
        document = client.delete(resource(_RESERVATIONS, identifier), wait=wait)
    _print_reservation(document, as_json)
    if wait and document["state"] == "releasing":
        raise CommandError(_not_reached("released", document))


def _not_reached(wanted: str, document: JsonObject) -> str:
    reason = f": {document['reason']}" if document["reason"] else ""
    return (
        f"reservation {document['id']} is {document['state']}, not {wanted}{reason}; "
        f"`hydra reservations {document['id']}` shows what becomes of it"
    )


def _print_reservation(document: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    path, expires = document["path"], document["expires_unix_s"]
    print_facts(
        [
            ("id", document["id"]),
            ("state", document["state"]),
            ("between", f"{document['src']} and {document['dst']}"),
            ("bandwidth", f"{mbps(document['bandwidth_mbps'])} Mb/s in each direction"),
            ("expires", "when released" if expires is None else moment(expires)),
            ("path", "none" if path is None else f"{describe_path(path)}, VLAN {path['vlan']}"),
            ("reason", document["reason"] or "-"),
        ]
    )
