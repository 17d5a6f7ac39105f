"""``hydra top``: the network at a glance, continuously updated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.output import UnreachableError, mbps
from apps.cli.parameters import FiniteRange
from apps.cli.patience import until_ctrl_c
from apps.cli.wording import describe_circuit, health, local, moment
from hydra.names import counted
from hydra_hybrid_network_client.errors import JsonObject

_SHOWN: Final = 15
_RECONFIGURATIONS: Final = 6
_CONDITIONS: Final = 8
_BAR: Final = 20
_BUSY: Final = 0.9
"""Share of a circuit's rate above which the circuit is shown as full."""


@click.command(
    cls=Command,
    examples=["hydra top", "hydra top --interval 5", "hydra top --count 1 --json | jq .ready"],
)
@click.option(
    "--interval",
    "interval_s",
    type=FiniteRange(0.2),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks.",
)
@click.option("--count", type=click.IntRange(1), help="End after this number of refreshes.")
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def top(interval_s: float, count: int | None, url: str, as_json: bool) -> None:
    """Show problems, busiest circuits, demand and reconfigurations, until Ctrl-C.

    With --count, all looks stay on the screen.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    looks = 0
    with (
        ControllerClient(url) as client,
        ExitStack() as screen,
        until_ctrl_c(),
    ):
        show: Callable[[RenderableType], None] = console.print  # one after the other, in a pipe
        if console.is_terminal and count is None:
            live = Live(console=console, screen=True, auto_refresh=False)
            show = partial(screen.enter_context(live).update, refresh=True)
        while count is None or looks < count:
            if looks:
                time.sleep(interval_s)
            looks += 1
            try:
                seen = _look(client)
            except UnreachableError as error:
                if looks == 1:
                    raise
                show(Text(f"{error.message}; trying again", style="bold red"))
                continue
            if as_json:
                click.echo(json.dumps(seen))
            else:
                show(_picture(seen))


def _look(client: ControllerClient) -> JsonObject:
    missing = client.get_readiness()
    return {
        "unix_s": time.time(),
        "ready": not missing,
        "missing": missing,
        **client.get("/v1/conditions"),
        "topology": client.get("/v1/topology"),
        "demand": client.get("/v1/demand"),
        "reconfigurations": client.get("/v1/reconfigurations")["reconfigurations"],
        "quarantine": client.get("/v1/quarantine")["ports"],
    }


def _picture(seen: JsonObject) -> Group:
    topology, demand = seen["topology"], seen["demand"]
    total = sum(entry["rate_mbps"] for entry in demand["entries"])
    head = Text.assemble(
        (topology["fabric"], "bold"),
        f"  epoch {topology['epoch']}  {moment(seen['unix_s'])}  ",
        ("ready", "bold green") if seen["ready"] else ("NOT READY", "bold red"),
        ", ",
        ("healthy", "bold green") if seen["healthy"] else (health(seen).upper(), "bold red"),
        f"\n{counted(len(topology['racks']), 'rack')}, "
        f"{counted(len(topology['planes']), 'plane')}, "
        f"{counted(len(topology['circuits']), 'circuit')}, "
        f"{counted(len(topology['paths']), 'path')}, "
        f"{counted(len(seen['quarantine']), 'port')} in quarantine, {mbps(total)} Mb/s measured",
    )
    if seen["missing"]:
        more = len(seen["missing"]) - 3
        head.append("\n" + "; ".join(seen["missing"][:3]))
        head.append(f"; and {more} more" if more > 0 else "")
    for condition in seen["conditions"][:_CONDITIONS]:
        head.append(f"\n{moment(condition['since_unix_s'])} ", "dim")
        head.append(local(condition["what"]))
        head.append(f"; {condition['to_do']}: {condition['command']}", "dim")
    if (more := len(seen["conditions"]) - _CONDITIONS) > 0:
        head.append(f"\nand {more} more: hydra status")
    return Group(head, _circuits(topology), _demand(topology, demand), _history(seen))


def _load(circuit: JsonObject) -> float:
    """Share of the rate in the busier direction."""
    sent = max(circuit["a_to_b_mbps"] or 0.0, circuit["b_to_a_mbps"] or 0.0)
    return float(sent / circuit["rate_mbps"]) if circuit["rate_mbps"] else 0.0


def _circuits(topology: JsonObject) -> Table:
    circuits = sorted(topology["circuits"], key=_load, reverse=True)
    table = _table(f"Circuits, the busiest of {len(circuits)}")
    for name in ("circuit", "", "load"):
        table.add_column(name)
    for circuit in circuits[:_SHOWN]:
        share = _load(circuit)
        filled = min(_BAR, round(share * _BAR))
        bar = Text("█" * filled + "·" * (_BAR - filled))
        bar.stylize("bold red" if share >= _BUSY else "cyan")
        table.add_row(describe_circuit(circuit), bar, f"{share:4.0%}")
    return table


def _demand(topology: JsonObject, demand: JsonObject) -> Table:
    served = {(path["src"], path["dst"]) for path in topology["paths"]}
    served |= {(path["dst"], path["src"]) for path in topology["paths"] if not path["one_way"]}
    entries = sorted(demand["entries"], key=lambda entry: -float(entry["rate_mbps"]))
    table = _table("Demand, the largest")
    table.add_column("pair")
    table.add_column("Mb/s", justify="right")
    table.add_column("goes")
    for entry in entries[:_SHOWN]:
        optical = (entry["src"], entry["dst"]) in served
        table.add_row(
            f"{entry['src']} to {entry['dst']}",
            mbps(entry["rate_mbps"]),
            "by circuits" if optical else "electrically",
        )
    return table


def _history(seen: JsonObject) -> Table:
    table = _table("Reconfigurations, the latest")
    for name in ("id", "created", "trigger", "state", "reason"):
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for change in seen["reconfigurations"][:_RECONFIGURATIONS]:
        table.add_row(
            change["id"],
            moment(change["created_unix_s"]),
            change["trigger"],
            change["state"],
            change["reason"],
        )
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
