"""``hydra plan``, and the description of a plan in other commands."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import click
from click.core import ParameterSource

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.network import print_circuits, print_paths
from apps.cli.output import (
    json_option,
    mbps,
    print_facts,
    print_json,
    print_table,
    warn,
)
from apps.cli.parameters import (
    FABRIC_HELP,
    Options,
    rate_of,
    read_graph_file,
    read_positive,
    read_rate,
    with_options,
)
from apps.cli.patience import ended_by_ctrl_c
from apps.process.files import is_there
from hydra.names import counted
from hydra.policy import MOST_PATHS_PER_PAIR
from hydra_hybrid_network_client.errors import JsonObject

_DEMAND = re.compile(r"(?P<src>[^:=]+):(?P<dst>[^:=]+)=(?P<mbps>[^:=]+)")
_ONLINE: Final = frozenset({"url", "only_if_it_pays"})
_OFFLINE: Final = frozenset(
    {
        "current",
        "compare",
        "explain",
        "check",
        "plot",
        "graph",
        "seed",
        "load",
        "max_hops",
        "paths_per_pair",
        "disturbance_mbps",
        "weighted",
        "budget_ms",
        "window_ms",
        "makespan",
    }
)
_ENDINGS: Final = (".csv", ".tsv", ".txt", ".json", ".npz", ".npy")


def _entry(value: str) -> JsonObject:
    match = _DEMAND.fullmatch(value)
    if match is None:
        raise click.BadParameter(
            f"{value!r} is neither SRC:DST=MBPS, such as r1:r2=50, nor a file, whose name ends in "
            f"{', '.join(_ENDINGS)}"
        )
    return {"src": match["src"], "dst": match["dst"], "mbps": rate_of(match["mbps"])}


def _read_demand(
    _ctx: click.Context, _param: click.Parameter, values: Sequence[str]
) -> list[JsonObject | str]:
    """``SRC:DST=MBPS``, a file, or a kind of synthetic demand; the form of the text decides."""
    return [
        value if value.isalpha() or Path(value).suffix.lower() in _ENDINGS else _entry(value)
        for value in values
    ]


def _read_paths(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> int | Literal["auto"] | None:
    if value is None:
        return None
    if value == "auto":
        return "auto"
    if not value.isdecimal() or not 1 <= int(value) <= MOST_PATHS_PER_PAIR:
        raise click.BadParameter(
            f"{value!r} is neither auto nor a number from 1 to {MOST_PATHS_PER_PAIR}"
        )
    return int(value)


planning_options: Options = (
    click.option(
        "--demand",
        metavar="SRC:DST=MBPS|FILE|KIND",
        callback=_read_demand,
        multiple=True,
        help=(
            "Demand from a rack to another rack; or a CSV, JSON or NPZ file of a matrix or of "
            "flows; or, with --fabric, sparse, dense, uniform or gravity. Repeatable, adds up. "
            "Without: the measured demand."
        ),
    ),
    click.option("--rack", "racks", multiple=True, help="Change only these racks; repeatable."),
    click.option("--plane", "planes", multiple=True, help="Change only these planes; repeatable."),
    click.option(
        "--use-plane",
        "use_planes",
        multiple=True,
        help="Planes allowed for circuits that may change; repeatable.",
    ),
    click.option(
        "--algorithm",
        help="Plan with this algorithm (a name, or MODULE:OBJECT), instead of the configured one.",
    ),
    click.option("--only-if-it-pays", is_flag=True, help="Change nothing unless the change pays."),
    url_option,
    json_option,
)


_offline_options: Options = (
    click.option(
        "--fabric",
        metavar="FILE|RxP[@MBPS]",
        help=f"Ask no controller: plan for this fabric. {FABRIC_HELP}",
    ),
    click.option(
        "--current",
        type=click.Path(path_type=Path),
        help="The present circuits: `hydra topology --json`, or a plan's --json. Without: none.",
    ),
    click.option("--compare", is_flag=True, help="Plan with every algorithm."),
    click.option(
        "--explain",
        nargs=2,
        metavar="SRC DST",
        help="Explain why these two racks are joined, or not.",
    ),
    click.option(
        "--check", is_flag=True, help="Check the plan with code independent of the planner."
    ),
    click.option(
        "--plot",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="Draw the plan: PNG, SVG or PDF.",
    ),
    click.option(
        "--graph",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=read_graph_file,
        help="Write racks and circuits as a graph: GraphML, or JSON of networkx (node-link), by "
        "the name's ending, .graphml or .json.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0),
        default=1,
        show_default=True,
        help="Random seed of a made-up demand.",
    ),
    click.option(
        "--load",
        metavar="SHARE",
        callback=read_positive,
        default="0.5",
        show_default=True,
        help="Load of the busiest rack in a made-up demand, as a part of a rack's port rates.",
    ),
    click.option(
        "--max-hops",
        type=click.IntRange(1, 16),
        help="Most hops of a path, instead of the configured number.",
    ),
    click.option(
        "--paths-per-pair",
        metavar="N|auto",
        callback=_read_paths,
        help=(
            "Instead of the configured number: most paths of a pair, of circuits of its own or "
            "over other pairs' circuits, for demand beyond a single path; auto: as many as the "
            "demand can use."
        ),
    ),
    click.option(
        "--disturbance-mbps",
        metavar="MBPS",
        callback=read_rate,
        help=(
            "Least gain in demand for which a circuit that carries demand is given up, instead of "
            "the configured value."
        ),
    ),
    click.option(
        "--weighted", is_flag=True, help="Count pairs as served only if all their demand is served."
    ),
    click.option(
        "--budget-ms",
        metavar="MS",
        callback=read_positive,
        help="Time limit: take the best plan found.",
    ),
    click.option(
        "--window-ms",
        metavar="MS",
        callback=read_positive,
        default="1000",
        show_default=True,
        help="For schedules: the slots repeat after this time.",
    ),
    click.option(
        "--makespan",
        is_flag=True,
        help=(
            "For schedules: find the shortest window that carries the demand of --window-ms, "
            "beside a lower bound of any schedule."
        ),
    ),
)


def _plan_body(options: JsonObject) -> JsonObject:
    """Request body with the given options; absent options mean `all` or `as configured`."""
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
        "hydra plan --fabric 64x8@10000 --demand gravity --graph plan.graphml",
    ],
)
@with_options(planning_options)
@with_options(_offline_options)
@click.pass_context
def plan(ctx: click.Context, /, url: str, as_json: bool, **options: Any) -> None:
    """Dry run: show the changes of a reconfiguration.

    Asks the controller. With --fabric, plans from files, for comparisons and for research, and
    starts without circuits unless --current has some. Exit status 1 if no plan is found or a check
    fails; Ctrl-C ends the command at once.
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


def warn_of_risks(document: JsonObject) -> None:
    """Report on standard error the devices that a dry run needs and that are missing."""
    for risk in document["at_risk"]:
        warn(f"at risk: {risk}")


def print_plan(document: JsonObject) -> None:
    verdict = document["verdict"]
    pairs = ", ".join(f"{p['src']}-{p['dst']}" for p in document["affected_pairs"])
    served, wanted = document["served_mbps"], document["demand_mbps"]
    print_facts(
        [
            ("from epoch", document["current_epoch"]),
            ("served", f"{mbps(served)} of {mbps(wanted)} Mb/s"),
            ("on circuits", _on_circuits(document["on_circuits"])),
            ("affected pairs", pairs or "none"),
            *([("diverted", _diverted(document))] if pairs else []),
            ("retagged ports", document["retagged_ports"]),
            ("rules", document["rules"]),
            *([("stages", _stages(stages))] if (stages := document["stages"]) else []),
            ("planned in", f"{document['planning_ms']:.1f} ms"),
            ("pays", f"{'yes' if verdict['pays'] else 'no'}: {verdict['reason']}"),
        ]
    )
    warn_of_risks(document)
    print_circuits("To connect", document["connect"])
    print_circuits("To disconnect", document["disconnect"])
    print_paths("Paths afterwards", document["paths"])


def _diverted(document: JsonObject) -> str:
    """The affected pairs that leave circuits, in words."""
    pairs, number = document["diverted_pairs"], document["courses"]
    courses = f" ({counted(number, 'round')} of changes)"
    if not pairs:
        return f"none: traffic on circuits stays on circuits meanwhile{courses}"
    if len(pairs) == len(document["affected_pairs"]):
        return f"all of them, to the electrical network for a moment{courses}"
    names = ", ".join(f"{p['src']}-{p['dst']}" for p in pairs)
    return f"{names}, to the electrical network for a moment{courses}"


def _on_circuits(shares: JsonObject | None) -> str:
    if shares is None:
        return "not known: the planner had no time left; ask again"
    served, bound = f"{100 * shares['served_share']:.1f} %", shares["served_share_bound"]
    return served if bound is None else f"{served}, of at most {100 * bound:.1f} % in any plan"


def print_stages(stages: Sequence[JsonObject]) -> None:
    """Print the stages in a dry run: stages of a change with the present traffic."""
    if not stages:
        click.echo("no stages: nothing would move, or traffic is not measured")
        return
    print_table(
        "Stages" if stages[-1]["last"] else "First stages",
        ("stage>", "pairs>", "diverted Mb/s>", "wait on circuits>", "more than there is room for"),
        (
            (
                number,
                len(stage["pairs"]),
                mbps(stage["diverted_mbps"]),
                len(stage["detoured"]),
                _beyond(stage["beyond"]),
            )
            for number, stage in enumerate(stages, 1)
        ),
    )


def _beyond(racks: Iterable[JsonObject]) -> str:
    return ", ".join(f"{rack['rack']} ({mbps(rack['mbps'])} Mb/s)" for rack in racks)


def _stages(stages: Sequence[JsonObject]) -> str:
    most = max(stage["diverted_mbps"] for stage in stages)
    beyond: dict[str, float] = {}
    for stage in stages:
        for entry in stage["beyond"]:
            beyond[entry["rack"]] = max(beyond.get(entry["rack"], 0.0), entry["mbps"])
    number = f"{len(stages)}" if stages[-1]["last"] else f"{len(stages)} and more"
    words = f"{number}; at most {mbps(most)} Mb/s of a rack are diverted at a time"
    if detours := sum(len(stage["detoured"]) for stage in stages):
        waits = "waits" if detours == 1 else "wait"
        words += f", {counted(detours, 'pair')} {waits} on other pairs' circuits"
    if not beyond:
        return words
    racks = ", ".join(f"{rack} ({mbps(more)} Mb/s)" for rack, more in sorted(beyond.items()))
    return f"{words}, more than there is room for at {racks}"


def _plan_offline(as_json: bool, given: AbstractSet[str], options: JsonObject) -> None:
    for name in sorted(given & _ONLINE):
        raise click.UsageError(
            f"--{name.replace('_', '-')} is for the controller: not with --fabric"
        )
    if not options["demand"]:
        raise click.UsageError("--fabric has no measured demand: add --demand")
    if options["weighted"] and options["paths_per_pair"] not in (None, "auto", 1):
        raise click.UsageError(
            "--weighted serves a pair as a whole, on a single path: leave out --paths-per-pair"
        )
    if options["compare"] and options["algorithm"] is not None:
        raise click.UsageError("--compare plans with every algorithm: leave out --algorithm")
    if options["compare"] and options["graph"] is not None:
        raise click.UsageError("--graph draws a single plan: leave out --compare")
    # Not at the top: the planner takes a while to load, and is not needed to ask a controller.
    with ended_by_ctrl_c():
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
    if endless := next((pair for pair, mbps in total.items() if not math.isfinite(mbps)), None):
        raise click.UsageError(f"--demand from {':'.join(endless)} adds up to no finite rate")
    body["demand"] = [{"src": a, "dst": b, "mbps": mbps} for (a, b), mbps in total.items()]
    if len(total) > len(racks) and {name for pair in total for name in pair} <= set(racks):
        del body["demand"]
        rows = [[total.get((a, b), 0.0) for b in racks] for a in racks]
        body["demand_matrix"] = {"racks": racks, "mbps": rows}
    return body


def demand_as_measured(client: ControllerClient) -> JsonObject:
    """The part of a request body for the presently planned demand; empty unless demand is measured.

    Estimates of constrained pairs come with the expected rate.
    """
    document = client.get("/v1/demand")
    if document["source"] != "measured":
        return {}
    demand = []
    for entry in document["entries"]:
        planned, estimated = entry["planned_mbps"], entry["estimated_mbps"]
        expected = entry["expected_mbps"]
        if planned:
            pair_demand = {"src": entry["src"], "dst": entry["dst"], "mbps": planned}
            guess = (
                {} if expected == estimated else {"expected_mbps": planned * expected / estimated}
            )
            demand.append(pair_demand | guess)
    return {"demand": demand}


def _flows(source: str, racks: Sequence[str]) -> list[JsonObject]:
    if source.isalpha() and not is_there(source):
        raise click.UsageError(f"--demand {source}: made-up demand is for plans with --fabric")
    files = import_module("apps.offline.demand_files")
    flows: list[JsonObject] = files.read_flows(Path(source), racks)
    return flows
