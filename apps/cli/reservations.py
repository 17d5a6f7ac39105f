"""Commands about reservations: reserve, commit, modify, reservations, release."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.network import print_circuits
from apps.cli.output import CommandError, json_option, mbps, print_columns, print_facts, print_json
from apps.cli.parameters import Duration, read_coming_moment, read_end, read_positive, with_options
from apps.cli.planning import warn_of_risks
from apps.cli.wording import describe_path, local, moment
from hydra.lifecycle import ReservationState
from hydra.names import counted
from hydra.reservations.reservation import FINAL_STATES, Profile, Protect, ServiceClass
from hydra_hybrid_network_client.errors import JsonObject
from hydra_hybrid_network_client.requests import WAIT_S, resource

_OVER: Final = {final_state.value for final_state in FINAL_STATES - {ReservationState.FAILED}}
"""Final states without need for attention; a failed reservation needs attention."""
_RESERVATIONS: Final = "/v1/reservations"
_PREVIEW: Final = f"{_RESERVATIONS}/preview"
wish_options: Final = (
    click.option(
        "--duration",
        type=Duration(min=0, min_open=True),
        help="Duration: seconds, or 90m, 1h30m, 2d. Without --duration and --end: until released.",
    ),
    click.option(
        "--start",
        metavar="TIME",
        callback=read_coming_moment,
        is_eager=True,  # --end is read with regard to the start
        help="Start: 2026-12-01T08:00, or 08:00 for the next 08:00. Without: now.",
    ),
    click.option(
        "--end",
        metavar="TIME",
        callback=read_end,
        help="End, instead of --duration: 2026-12-01T09:30, or 09:30 for the first 09:30 after "
        "the start.",
    ),
    click.option(
        "--priority",
        type=click.IntRange(0, 9),
        default=0,
        show_default=True,
        help=(
            "Reservations of lower priority give way, after a notice, if there is no room "
            "otherwise."
        ),
    ),
    click.option(
        "--service",
        type=click.Choice([service.value for service in ServiceClass]),
        default=ServiceClass.SHARED.value,
        show_default=True,
        help=(
            "guaranteed: circuits of its own; shared: a part of circuits shared with other "
            "reservations; best-effort: capacity left over."
        ),
    ),
    click.option(
        "--purpose",
        metavar="TEXT",
        default="",
        help="Purpose, in a line of your own words: a job's number, a name.",
    ),
)
"""Times, priority, class and purpose of reservations."""

path_options = (
    click.option(
        "--avoid-plane", "avoid_planes", metavar="NAME", multiple=True, help="No path on the plane."
    ),
    click.option(
        "--only-plane",
        "require_planes",
        metavar="NAME",
        multiple=True,
        help="No path on other planes.",
    ),
    click.option(
        "--avoid-relay",
        "avoid_relays",
        metavar="RACK",
        multiple=True,
        help="No path by way of the rack.",
    ),
    click.option("--max-hops", type=click.IntRange(min=1), help="Most circuits in a row."),
    click.option(
        "--protect",
        type=click.Choice([protect.value for protect in Protect]),
        default=Protect.NONE.value,
        show_default=True,
        help=(
            "disjoint: a second path, without a common plane, is set up on standby and takes over "
            "after a loss."
        ),
    ),
)
"""Constraints on the paths of a reservation, and protection."""


def path_wishes(given: Mapping[str, Any]) -> JsonObject:
    """The fields of a body that :data:`path_options` give, without defaults."""
    names = ("avoid_planes", "require_planes", "avoid_relays", "max_hops")
    constraints = {name: given[name] for name in names if given[name]}
    wishes: JsonObject = {"constraints": constraints} if constraints else {}
    if given["protect"] != Protect.NONE.value:
        wishes["protect"] = given["protect"]
    return wishes


@click.command(
    cls=Command,
    examples=[
        "hydra reserve r1 r3 --mbps 80 --duration 3600 --wait",
        "hydra reserve h11 h21 --mbps 40 --start 2026-12-01T08:00 --end 2026-12-01T09:30",
        "hydra reserve r1 r3 --mbps 80 --at-least 20",
        "hydra reserve r1 r3 --mbps 80 --protect disjoint --max-hops 1",
        "hydra reserve r1 r3 --mbps 80 --start 2026-12-01T02:00 --duration 3600 --every 86400 "
        "--times 30",
        "hydra reserve r1 r3 --mbps 80 --dry-run",
        "hydra reserve r1 r3 --megabytes 500000 --end 2026-12-01T06:00 --profile latest",
    ],
)
@click.argument("src")
@click.argument("dst")
@click.option(
    "--mbps",
    "rate",
    metavar="RATE",
    callback=read_positive,
    help="Bandwidth to reserve, in each direction.",
)
@click.option(
    "--megabytes",
    metavar="MB",
    callback=read_positive,
    help="Instead of --mbps: bytes that arrive by --end; the controller chooses rate and times.",
)
@click.option(
    "--profile",
    type=click.Choice([profile.value for profile in Profile]),
    default=Profile.EARLIEST.value,
    help="With --megabytes: the earliest end, the latest start, or the lowest rate (cheapest).",
)
@click.option(
    "--at-least",
    "minimum",
    metavar="RATE",
    callback=read_positive,
    help="Least acceptable bandwidth, if --mbps does not fit.",
)
@with_options(wish_options)
@with_options(path_options)
@click.option(
    "--hold",
    metavar="SECONDS",
    callback=read_positive,
    help=(
        "Only hold: the reservation is released after this time, unless `hydra commit` keeps the "
        "reservation."
    ),
)
@click.option(
    "--every",
    metavar="SECONDS",
    callback=read_positive,
    help="Reserve repeatedly: time from a start to the next. Needs --times, --start and an end.",
)
@click.option(
    "--times",
    type=click.IntRange(2, 1000),
    help="Number of repetitions of --every, including the first.",
)
@click.option("--dry-run", is_flag=True, help="Show the outcome, reserve nothing.")
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s until the circuits are up.")
@url_option
@json_option
def reserve(
    src: str,
    dst: str,
    rate: float | None,
    megabytes: float | None,
    profile: str,
    minimum: float | None,
    duration: float | None,
    start: float | None,
    end: float | None,
    hold: float | None,
    priority: int,
    service: str,
    purpose: str,
    every: float | None,
    times: int | None,
    dry_run: bool,
    wait: bool,
    url: str,
    as_json: bool,
    **path: Any,
) -> None:
    """Reserve bandwidth between two racks or two servers, SRC and DST.

    Prints the reservation's id. With --wait, exit status 1 if the reservation did not become
    active.
    """
    if duration is not None and end is not None:
        raise click.UsageError("--duration and --end are both given: give either")
    if (every is None) != (times is None) or (every is not None and (dry_run or wait)):
        raise click.UsageError("--every and --times go together, without --dry-run and --wait")
    span: JsonObject = {
        "duration_s": duration,
        "start_unix_s": start,
        "end_unix_s": end,
        "hold_s": hold,
    }
    span = {name: value for name, value in span.items() if value is not None}
    if priority:
        span["priority"] = priority
    if service != ServiceClass.SHARED.value:
        span["service"] = service
    if purpose:
        span["purpose"] = purpose
    span |= path_wishes(path)
    entry: JsonObject = {"src": src, "dst": dst}
    entry |= _rate_or_bytes(rate, megabytes, profile, lasts=end is None or every is not None)
    if minimum is not None:
        entry["minimum_mbps"] = minimum
    body = {**entry, **span}
    if every is not None:
        recurrence = {"every_s": every, "times": times}
        with ControllerClient(url) as client:
            _warn_of_risks_of(client, body)
            group = client.post("/v1/groups", {**span, "entries": [entry], "repeat": recurrence})
        _print_times(group, as_json)
        return
    if dry_run:
        with ControllerClient(url) as client:
            _print_preview(client.post(_PREVIEW, body), as_json)
        return
    with ControllerClient(url) as client:
        _warn_of_risks_of(client, body)
        document = client.post(_RESERVATIONS, body, wait=wait)
    _print_reservation(document, as_json)
    if wait and document["state"] not in {"active", "scheduled", "held"}:
        raise CommandError(_not_reached("active", document))


def _rate_or_bytes(
    rate: float | None, megabytes: float | None, profile: str, *, lasts: bool
) -> JsonObject:
    """A rate, or bytes by a deadline; ``lasts``: no single end is given."""
    if (rate is None) == (megabytes is None):
        raise click.UsageError("give --mbps, or --megabytes with --end")
    if megabytes is None:
        return {"bandwidth_mbps": rate}
    if lasts:
        raise click.UsageError("--megabytes needs --end, the deadline, and goes without --every")
    return {"megabytes": megabytes, "profile": profile}


def _warn_of_risks_of(client: ControllerClient, body: JsonObject) -> None:
    with suppress(CommandError):  # the following request reports the refusal
        warn_of_risks(client.post(_PREVIEW, body))


def _print_times(group: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(group)
        return
    print_columns(
        f"Group {group['id']}",
        group["reservations"],
        {
            "id": "id",
            "start": lambda row: moment(row["start_unix_s"]),
            "end": lambda row: moment(row["expires_unix_s"]),
            "Mb/s>": lambda row: mbps(row["bandwidth_mbps"]),
            "state": "state",
        },
    )


def _print_preview(document: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    print_facts(
        [
            ("would be", document["state"]),
            ("bandwidth", f"{mbps(document['bandwidth_mbps'])} Mb/s in each direction"),
            ("start", moment(document["start_unix_s"])),
            ("end", end_of(document)),
            ("path", _describe_booked(document)),
            *_protection_facts(document),
        ]
    )
    warn_of_risks(document)
    print_circuits("To connect", document["connect"])
    print_circuits("To disconnect", document["disconnect"])


@click.command(cls=Command, examples=["hydra commit 7f3a9c41d0be --wait"])
@click.argument("identifier", metavar="ID")
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s until the circuits are up.")
@url_option
@json_option
def commit(identifier: str, wait: bool, url: str, as_json: bool) -> None:
    """Keep reservation ID, which is only held. A repetition is harmless."""
    with ControllerClient(url) as client:
        document = client.post(f"{resource(_RESERVATIONS, identifier)}/commit", {}, wait=wait)
    _print_reservation(document, as_json)
    if wait and document["state"] not in {"active", "scheduled"}:
        raise CommandError(_not_reached("active", document))


@click.command(
    cls=Command,
    examples=[
        "hydra modify 7f3a9c41d0be --mbps 60",
        "hydra modify 7f3a9c41d0be --to h22 --end 2026-12-01T10:00",
    ],
)
@click.argument("identifier", metavar="ID")
@click.option(
    "--mbps", "rate", metavar="RATE", callback=read_positive, help="New rate, in each direction."
)
@click.option(
    "--end",
    metavar="TIME",
    callback=read_coming_moment,
    help="New end, earlier or later: 2026-12-01T10:00, or 10:00 for the next 10:00.",
)
@click.option("--from", "src", metavar="NAME", help="Another server of the same rack, or the rack.")
@click.option("--to", "dst", metavar="NAME", help="The same at the other end.")
@url_option
@json_option
def modify(
    identifier: str,
    rate: float | None,
    end: float | None,
    src: str | None,
    dst: str | None,
    url: str,
    as_json: bool,
) -> None:
    """Change reservation ID without an interruption, or not at all."""
    given = {"bandwidth_mbps": rate, "end_unix_s": end, "src": src, "dst": dst}
    change = {name: value for name, value in given.items() if value is not None}
    if not change:
        raise click.UsageError("nothing to change: give --mbps, --end, --from or --to")
    with ControllerClient(url) as client:
        document = client.patch(resource(_RESERVATIONS, identifier), change)
    _print_reservation(document, as_json)


@click.command(cls=Command, examples=["hydra reservations --json | jq '.reservations[].state'"])
@click.argument("identifier", metavar="[ID]", required=False)
@click.option(
    "--all", "ended", is_flag=True, help="List reservations that are over, too; --json always does."
)
@url_option
@json_option
def reservations(identifier: str | None, ended: bool, url: str, as_json: bool) -> None:
    """List present and failed reservations; with an ID, show a reservation.

    `there` and `back` are the Mb/s that arrived at the second and at the first end in the last
    seconds. `hydra list` is the same command.
    """
    with ControllerClient(url) as client:
        if identifier is not None:
            at = resource(_RESERVATIONS, identifier)
            _print_reservation(client.get(at), as_json)
            if not as_json:
                print_facts([("gets", _describe_delivery(client.get(f"{at}/delivery")))])
            return
        document = client.get_all(_RESERVATIONS, "reservations")
        delivered = client.get("/v1/deliveries")["deliveries"]
    if as_json:
        print_json({**document, "deliveries": delivered})
        return
    gets = {delivery["reservation"]: delivery for delivery in delivered}
    listed = [
        reservation
        for reservation in document["reservations"]
        if ended or reservation["state"] not in _OVER
    ]
    print_columns(
        "Reservations",
        listed,
        {
            "id": "id",
            "from": "src",
            "to": "dst",
            "Mb/s>": lambda r: mbps(r["bandwidth_mbps"]),
            "there>": lambda r: _delivered(gets.get(r["id"]), "there_mbps"),
            "back>": lambda r: _delivered(gets.get(r["id"]), "back_mbps"),
            "state": "state",
            "start": lambda r: moment(r["start_unix_s"]),
            "end": end_of,
            "path": lambda r: "" if r["path"] is None else describe_path(r["path"]),
            "reason": lambda r: local(r["reason"]),
        },
    )
    if left := len(document["reservations"]) - len(listed):
        click.echo(f"{counted(left, 'finished reservation')} left out (--all lists them)")


@click.command(cls=Command, examples=["hydra release 7f3a9c41d0be --wait"])
@click.argument("identifier", metavar="ID")
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s until the circuits are down.")
@url_option
@json_option
def release(identifier: str, wait: bool, url: str, as_json: bool) -> None:
    """Release the bandwidth of reservation ID. A repetition is harmless."""
    with ControllerClient(url) as client:
        document = client.delete(resource(_RESERVATIONS, identifier), wait=wait)
    _print_reservation(document, as_json)
    if wait and document["state"] == "releasing":
        raise CommandError(_not_reached("released", document))


def _not_reached(wanted: str, document: JsonObject) -> str:
    reason = f": {document['reason']}" if document["reason"] else ""
    return (
        f"reservation {document['id']} is {document['state']}, not {wanted}{reason}; `hydra "
        f"reservations {document['id']}` shows later states"
    )


def _print_reservation(document: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    print_facts(
        [
            ("id", document["id"]),
            ("state", document["state"]),
            ("between", f"{document['src']} and {document['dst']}"),
            ("bandwidth", _describe_bandwidth(document)),
            ("service", document["service"]),
            *([("transfer", _describe_transfer(document))] if document["transfer"] else ()),
            *([("purpose", document["purpose"])] if document["purpose"] else ()),
            ("start", moment(document["start_unix_s"])),
            ("end", end_of(document)),
            ("path", _describe_own_path(document)),
            *_protection_facts(document),
            ("reason", local(document["reason"]) or "-"),
        ]
    )


def end_of(document: JsonObject) -> str:
    expires = document["expires_unix_s"]
    return "when released" if expires is None else moment(expires)


def _describe_bandwidth(reservation: JsonObject) -> str:
    text = f"{mbps(reservation['bandwidth_mbps'])} Mb/s in each direction"
    if reservation["wanted_mbps"] is None:
        return text
    least, wanted = mbps(reservation["minimum_mbps"]), mbps(reservation["wanted_mbps"])
    return f"{text} (asked for: {least} to {wanted})"


def _describe_transfer(reservation: JsonObject) -> str:
    transfer = reservation["transfer"]
    text = f"{transfer['megabytes']:,g} MB by {moment(transfer['deadline_unix_s'])}"
    missing = transfer["missing_megabytes"]
    return f"{text}, {transfer['profile']}" + (f"; {missing:,g} MB at risk" if missing else "")


def _delivered(delivery: JsonObject | None, way: str) -> str:
    """Delivered Mb/s in a direction; empty if unknown, or without a delivery yet."""
    return "" if delivery is None or delivery[way] is None else mbps(delivery[way])


def _describe_delivery(delivery: JsonObject) -> str:
    rates = delivery["there_mbps"], delivery["back_mbps"]
    there, back = ("not known" if rate is None else f"{mbps(rate)} Mb/s" for rate in rates)
    unheld = delivery["unheld"]
    return f"{there} there, {back} back" + (
        f"; no rate limit at {', '.join(unheld)}" if unheld else ""
    )


def _describe_booked(preview: JsonObject) -> str:
    if preview["parts"]:
        return "; ".join(map(_describe_part, preview["parts"]))
    return describe_path(preview["booked"])


def _describe_part(part: JsonObject) -> str:
    """The path of a part of a reservation too large for one circuit."""
    path = part["path"] or part["booked"]
    ends = f"{part['src']} to {part['dst']}, {mbps(part['bandwidth_mbps'])} Mb/s"
    if path is None:  # the part is no longer in the configuration
        return f"{ends}: none"
    return f"{ends}: {describe_path(path)}{'' if part['path'] else ', not up'}"


def _protection_facts(document: JsonObject) -> list[tuple[str, str]]:
    """The path on standby of a protected reservation, and the common elements of both paths."""
    if document["protect"] == Protect.NONE.value or document["parts"]:
        return []
    standby = document["protection"]
    if standby is None:
        return [("on standby", "none: the reservation is not protected now")]
    shared = ", ".join(standby["shared"])
    return [("on standby", f"{describe_path(standby['path'])} (in common: {shared})")]


def _describe_own_path(reservation: JsonObject) -> str:
    if reservation["parts"]:
        return "; ".join(map(_describe_part, reservation["parts"]))
    path, booked = reservation["path"], reservation["booked"]
    if path is not None:
        return f"{describe_path(path)}, VLAN {path['vlan']}"
    return "none" if booked is None else f"{describe_path(booked)}, not up"
