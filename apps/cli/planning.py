"""Commands that ask the controller for circuits: plan, reserve, commit, reservations, release."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from apps.cli.client import WAIT_S, ControllerClient, JsonObject, resource, url_option
from apps.cli.command import Command
from apps.cli.network import moment, print_circuits, print_paths
from apps.cli.output import CommandError, json_option, mbps, print_facts, print_json, print_table
from apps.cli.wording import describe_path
from hydra.errors import HydraError
from hydra.policy import MOST_PATHS_PER_PAIR
from hydra.reservations import ServiceClass

_RESERVATIONS: Final = "/v1/reservations"
_DEMAND = re.compile(r"(?P<src>[^:=]+):(?P<dst>[^:=]+)=(?P<mbps>[^:=]+)")
_ONLINE: Final = frozenset({"url", "only_if_it_pays"})
_OFFLINE: Final = frozenset(
    {
        "current",
        "compare",
        "explain",
        "check",
        "plot",
        "seed",
        "load",
        "max_hops",
        "paths_per_pair",
        "disturbance_mbps",
        "weighted",
        "budget_ms",
        "window_ms",
    }
)
_ENDINGS: Final = (".csv", ".tsv", ".txt", ".json", ".npz", ".npy")
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


def _read_rate(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    return None if value is None else _rate(value)


def _read_positive(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    number = _rate(value)
    if not number:
        raise click.BadParameter(f"{value} must be greater than 0")
    return number


def _entry(value: str) -> JsonObject:
    match = _DEMAND.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not SRC:DST=MBPS, such as r1:r2=50")
    return {"src": match["src"], "dst": match["dst"], "mbps": _rate(match["mbps"])}


def _read_demand(
    _ctx: click.Context, _param: click.Parameter, values: Sequence[str]
) -> list[JsonObject | str]:
    """``SRC:DST=MBPS``; or a file or a kind of synthetic demand, told by their look."""
    return [
        value if value.isalpha() or Path(value).suffix in _ENDINGS else _entry(value)
        for value in values
    ]


_Options = Sequence[Callable[[Any], Any]]


def with_options(options: _Options) -> Callable[[_F], _F]:
    def decorate(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


planning_options: _Options = (
    click.option(
        "--demand",
        metavar="SRC:DST=MBPS|FILE|KIND",
        callback=_read_demand,
        multiple=True,
        help="Demand from one rack to another; or a CSV, JSON or NPZ file of a matrix or of flows; "
        "or, with --fabric, sparse, dense, uniform or gravity. Repeatable, adds up. Without: the "
        "measured one.",
    ),
    click.option("--rack", "racks", multiple=True, help="Change only these racks; repeatable."),
    click.option("--plane", "planes", multiple=True, help="Change only these planes; repeatable."),
    click.option(
        "--use-plane",
        "use_planes",
        multiple=True,
        help="Circuits that may change end up on these planes only; repeatable.",
    ),
    click.option("--algorithm", help="Instead of the configured one."),
    click.option("--only-if-it-pays", is_flag=True, help="Change nothing where it does not."),
    url_option,
    json_option,
)


_offline_options: _Options = (
    click.option(
        "--fabric",
        metavar="FILE|RxP[@MBPS]",
        help="Ask no controller: plan for this configuration file, or for R racks on P planes.",
    ),
    click.option(
        "--current",
        type=click.Path(path_type=Path),
        help="What stands now: `hydra topology --json`, or a plan's --json. Without: nothing.",
    ),
    click.option("--compare", is_flag=True, help="Plan with every algorithm."),
    click.option(
        "--explain",
        nargs=2,
        metavar="SRC DST",
        help="Why these two racks are joined as they are, or not.",
    ),
    click.option("--check", is_flag=True, help="Have it checked by code that plans nothing."),
    click.option(
        "--plot",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="Draw it: PNG, SVG or PDF.",
    ),
    click.option(
        "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of a made-up demand."
    ),
    click.option(
        "--load",
        metavar="SHARE",
        callback=_read_positive,
        default="0.5",
        show_default=True,
        help="Of a made-up demand: what the busiest rack sends, as a part of a rack's port rates.",
    ),
    click.option("--max-hops", type=click.IntRange(1, 16), help="Instead of the configured one."),
    click.option(
        "--paths-per-pair",
        type=click.IntRange(1, MOST_PATHS_PER_PAIR),
        help="Instead of the configured number: further paths, of circuits of their own or over "
        "others, for what one can't carry.",
    ),
    click.option(
        "--disturbance-mbps",
        metavar="MBPS",
        callback=_read_rate,
        help="Instead of the configured one: demand to be gained before a circuit that carries "
        "some is given up.",
    ),
    click.option("--weighted", is_flag=True, help="Pairs count as served only with all they want."),
    click.option(
        "--budget-ms",
        metavar="MS",
        callback=_read_positive,
        help="Take the best plan found in this time.",
    ),
    click.option(
        "--window-ms",
        metavar="MS",
        callback=_read_positive,
        default="1000",
        show_default=True,
        help="Of schedules: the slots repeat after this long.",
    ),
)


def _plan_body(options: JsonObject) -> JsonObject:
    """Options that were given; what is left out means `all` or `as configured`."""
    keys = ("demand", "racks", "planes", "use_planes", "algorithm", "only_if_it_pays")
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key in keys
        if (value := options[key])
    }


@click.command(
    cls=Command,
    examples=[
        "hydra plan --demand r1:r2=80 --demand r2:r1=10",
        "hydra plan --fabric configs/demo.yaml --demand r1:r2=80 --explain r1 r2 --check",
        "hydra plan --fabric configs/reference.yaml --demand flows.csv --algorithm hydra-bfs",
        "hydra plan --fabric 64x8@10000 --demand gravity --seed 7 --compare --plot compared.png",
    ],
)
@with_options(planning_options)
@with_options(_offline_options)
@click.pass_context
def plan(ctx: click.Context, /, url: str, as_json: bool, **options: Any) -> None:
    """Dry run: show what a reconfiguration would change.

    Asks the controller; with --fabric it plans from files, for comparisons and for research, and
    starts without circuits unless --current has some. Exit status 1 where no plan is found or a
    check fails; Ctrl-C ends it at once.
    """
    given = {
        parameter.name
        for parameter in ctx.command.params
        if ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    }
    if options["fabric"] is not None:
        _plan_offline(as_json, given, options)
        return
    for name in sorted(given & _OFFLINE):
        raise click.UsageError(f"--{name.replace('_', '-')} plans from files: add --fabric")
    with ControllerClient(url) as client:
        document = client.post("/v1/plan", body_with_demand(client, options))
    if as_json:
        print_json(document)
        return
    print_plan(document)


def print_plan(document: JsonObject) -> None:
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


def _plan_offline(as_json: bool, given: AbstractSet[str], options: JsonObject) -> None:
    for name in sorted(given & _ONLINE):
        raise click.UsageError(
            f"--{name.replace('_', '-')} is for the controller: not with --fabric"
        )
    if not options["demand"]:
        raise click.UsageError("--fabric has no measured demand: add --demand")
    if options["weighted"] and (options["paths_per_pair"] or 1) > 1:
        raise click.UsageError(
            "--weighted serves a pair whole, on one path: leave out --paths-per-pair"
        )
    if options["compare"] and options["algorithm"] is not None:
        raise click.UsageError("--compare plans with every algorithm: leave out --algorithm")
    # Not at the top: the planner takes a while to load, and is not needed to ask a controller.
    offline = import_module("apps.cli.offline")
    del options["only_if_it_pays"]
    offline.run(offline.Job(as_json=as_json, **options))


def body_with_demand(client: ControllerClient, options: JsonObject) -> JsonObject:
    """The body of a request; files are read with the names of the controller's racks."""
    body = _plan_body(options)
    parts: Sequence[JsonObject | str] = options["demand"]
    if not any(isinstance(part, str) for part in parts):
        return body
    racks: list[str] = client.get("/v1/topology")["racks"]
    total: dict[tuple[str, str], float] = {}
    for part in parts:
        for flow in [part] if isinstance(part, dict) else _flows(part, racks):
            pair = flow["src"], flow["dst"]
            total[pair] = total.get(pair, 0.0) + flow["mbps"]
    body["demand"] = [{"src": a, "dst": b, "mbps": mbps} for (a, b), mbps in total.items()]
    if len(total) > len(racks) and {name for pair in total for name in pair} <= set(racks):
        del body["demand"]
        rows = [[total.get((a, b), 0.0) for b in racks] for a in racks]
        body["demand_matrix"] = {"racks": racks, "mbps": rows}
    return body


def _flows(source: str, racks: Sequence[str]) -> list[JsonObject]:
    if source.isalpha() and not Path(source).exists():
        raise click.UsageError(f"--demand {source}: made-up demand is for plans with --fabric")
    files = import_module("apps.demand_files")
    try:
        flows: list[JsonObject] = files.read_flows(Path(source), racks)
    except HydraError as error:
        raise CommandError(str(error)) from error
    return flows


def _read_moment(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Unix seconds of a point in time; local where it does not say."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        raise click.BadParameter(f"{value!r} is not like 2026-12-01T08:00 or …T08:00Z") from None


@click.command(
    cls=Command,
    examples=[
        "hydra reserve r1 r3 --mbps 80 --duration 3600 --wait",
        "hydra reserve h11 h21 --mbps 40 --start 2026-12-01T08:00 --end 2026-12-01T09:30",
        "hydra reserve r1 r3 --mbps 80 --at-least 20",
        "hydra reserve r1 r3 --mbps 80 --start 2026-12-01T02:00 --duration 3600 --every 86400 "
        "--times 30",
        "hydra reserve r1 r3 --mbps 80 --dry-run",
    ],
)
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
    "--at-least",
    "minimum",
    metavar="RATE",
    callback=_read_positive,
    help="Take less than --mbps where that does not fit, down to this.",
)
@click.option(
    "--duration",
    metavar="SECONDS",
    callback=_read_positive,
    help="Without this or --end: until released.",
)
@click.option("--start", metavar="TIME", callback=_read_moment, help="Without: now.")
@click.option("--end", metavar="TIME", callback=_read_moment, help="Instead of --duration.")
@click.option(
    "--hold",
    metavar="SECONDS",
    callback=_read_positive,
    help="Only hold it; it goes after this long unless `hydra commit` makes it stay.",
)
@click.option(
    "--priority",
    type=click.IntRange(0, 9),
    default=0,
    show_default=True,
    help="Where it does not fit, reservations of lower priority give way, after a notice.",
)
@click.option(
    "--service",
    type=click.Choice([service.value for service in ServiceClass]),
    default=ServiceClass.SHARED.value,
    show_default=True,
    help="Circuits of its own, its part of circuits that others use too, or what is left of them.",
)
@click.option(
    "--every",
    metavar="SECONDS",
    callback=_read_positive,
    help="Again and again, --times in all: from one start to the next. Needs --start and an end.",
)
@click.option("--times", type=click.IntRange(2, 1000), help="With --every: how often in all.")
@click.option("--dry-run", is_flag=True, help="Reserve nothing; say what would be done.")
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s until its circuits are up.")
@url_option
@json_option
def reserve(
    src: str,
    dst: str,
    rate: float,
    minimum: float | None,
    duration: float | None,
    start: float | None,
    end: float | None,
    hold: float | None,
    priority: int,
    service: str,
    every: float | None,
    times: int | None,
    dry_run: bool,
    wait: bool,
    url: str,
    as_json: bool,
) -> None:
    """Reserve bandwidth between two racks or two servers, SRC and DST.

    Prints the reservation's id. With --wait, exit status 1 if it did not become active.
    """
    if duration is not None and end is not None:
        raise click.UsageError("--duration and --end: give one of them")
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
    entry: JsonObject = {"src": src, "dst": dst, "bandwidth_mbps": rate}
    if minimum is not None:
        entry["minimum_mbps"] = minimum
    if every is not None:
        again = {"every_s": every, "times": times}
        with ControllerClient(url) as client:
            group = client.post("/v1/groups", {**span, "entries": [entry], "repeat": again})
        _print_times(group, as_json)
        return
    body = {**entry, **span}
    if dry_run:
        with ControllerClient(url) as client:
            _print_preview(client.post(_RESERVATIONS, {**body, "dry_run": True}), as_json)
        return
    with ControllerClient(url) as client:
        document = client.post(_RESERVATIONS, body, wait=wait)
    _print_reservation(document, as_json)
    if wait and document["state"] not in {"active", "scheduled", "held"}:
        raise CommandError(_not_reached("active", document))


def _print_times(group: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(group)
        return
    print_table(
        f"Group {group['id']}",
        ("id", "start", "end", "Mb/s>", "state"),
        (
            (
                one["id"],
                moment(one["start_unix_s"]),
                moment(one["expires_unix_s"]),
                mbps(one["bandwidth_mbps"]),
                one["state"],
            )
            for one in group["reservations"]
        ),
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
            ("path", describe_path(document["booked"])),
        ]
    )
    print_circuits("To connect", document["connect"])
    print_circuits("To disconnect", document["disconnect"])


@click.command(cls=Command, examples=["hydra commit 7f3a --wait"])
@click.argument("identifier", metavar="ID")
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s until its circuits are up.")
@url_option
@json_option
def commit(identifier: str, wait: bool, url: str, as_json: bool) -> None:
    """Make reservation ID, which is only held, one that stays. Repeating it is harmless."""
    with ControllerClient(url) as client:
        document = client.post(f"{resource(_RESERVATIONS, identifier)}/commit", {}, wait=wait)
    _print_reservation(document, as_json)
    if wait and document["state"] not in {"active", "scheduled"}:
        raise CommandError(_not_reached("active", document))


@click.command(
    cls=Command,
    examples=["hydra modify 7f3a --mbps 60", "hydra modify 7f3a --to h22 --end 2026-12-01T10:00"],
)
@click.argument("identifier", metavar="ID")
@click.option("--mbps", "rate", metavar="RATE", callback=_read_positive, help="In both directions.")
@click.option("--end", metavar="TIME", callback=_read_moment, help="Earlier, or later.")
@click.option("--from", "src", metavar="NAME", help="Another server of its rack, or the rack.")
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
@url_option
@json_option
def reservations(identifier: str | None, url: str, as_json: bool) -> None:
    """List reservations; with an ID, show one.

    `there` and `back` are what comes from one end to the other, and back, beside the promised Mb/s.
    `hydra list` is the same.
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
    gets = {one["reservation"]: one for one in delivered}
    print_table(
        "Reservations",
        ("id", "from", "to", "Mb/s>", "there>", "back>", "state", "path", "reason"),
        (
            (
                r["id"],
                r["src"],
                r["dst"],
                mbps(r["bandwidth_mbps"]),
                _delivered(gets.get(r["id"]), "there_mbps"),
                _delivered(gets.get(r["id"]), "back_mbps"),
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
    expires = document["expires_unix_s"]
    print_facts(
        [
            ("id", document["id"]),
            ("state", document["state"]),
            ("between", f"{document['src']} and {document['dst']}"),
            ("bandwidth", _describe_bandwidth(document)),
            ("service", document["service"]),
            ("start", moment(document["start_unix_s"])),
            ("expires", "when released" if expires is None else moment(expires)),
            ("path", _describe_own_path(document)),
            ("reason", document["reason"] or "-"),
        ]
    )


def _describe_bandwidth(reservation: JsonObject) -> str:
    text = f"{mbps(reservation['bandwidth_mbps'])} Mb/s in each direction"
    if reservation["wanted_mbps"] is None:
        return text
    least, wanted = mbps(reservation["minimum_mbps"]), mbps(reservation["wanted_mbps"])
    return f"{text} (asked for: {least} to {wanted})"


def _delivered(delivery: JsonObject | None, way: str) -> str:
    """Empty: nothing yet, or not known."""
    return "" if delivery is None or delivery[way] is None else mbps(delivery[way])


def _describe_delivery(delivery: JsonObject) -> str:
    rates = delivery["there_mbps"], delivery["back_mbps"]
    there, back = ("not known" if rate is None else f"{mbps(rate)} Mb/s" for rate in rates)
    unheld = delivery["unheld"]
    return f"{there} there, {back} back" + (
        f"; nothing holds back {', '.join(unheld)}" if unheld else ""
    )


def _describe_own_path(reservation: JsonObject) -> str:
    path, booked = reservation["path"], reservation["booked"]
    if path is not None:
        return f"{describe_path(path)}, VLAN {path['vlan']}"
    return "none" if booked is None else f"{describe_path(booked)}, not up"
