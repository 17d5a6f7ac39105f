"""``hydra record`` and ``hydra replay``: demand to a file, and through other policies."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from rich import progress

from apps.cli.client import ControllerClient, answered
from apps.cli.command import Command
from apps.cli.output import (
    UnreachableError,
    drawn_by,
    json_option,
    print_columns,
    print_json,
    warn,
)
from apps.cli.parameters import Duration, FiniteRange
from apps.cli.patience import Progress, ended_by_ctrl_c, progress_bar
from apps.offline.recording import Entry, TraceFull, TraceWriter, read_trace
from apps.offline.replay import KEYS, Run, Variant, document_of, read_variant
from apps.offline.replay import replay as run_replay
from apps.offline.study import read_fabric
from hydra_hybrid_network_client.errors import JsonObject

_MIB: Final = 1 << 20
_OUTAGE_MS: Final = 300.0
"""Duration of a reconfiguration assumed by the controller before the first measurement."""


@click.command(
    cls=Command,
    examples=[
        "hydra record busy-hour.trace --duration 3600",
        "hydra record all.trace --interval 10",
    ],
)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--interval",
    "interval_s",
    type=FiniteRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between readings.",
)
@click.option(
    "--duration", "duration_s", type=Duration(min=0), help="End after seconds, or after 90m, 2h."
)
@click.option(
    "--max-mib",
    type=click.IntRange(1, 1024),
    default=64,
    show_default=True,
    help="End before the file becomes larger.",
)
@answered
def record(
    client: ControllerClient, path: Path, interval_s: float, duration_s: float | None, max_mib: int
) -> Iterator[object]:
    """Record the measured demand to a new FILE, until Ctrl-C.

    Readings that the controller can't give are left out. docs/planning.md describes the file.
    """
    network = client.get("/v1/topology")
    position = {name: number for number, name in enumerate(network["racks"])}
    writer = TraceWriter(path, network["fabric"], network["racks"], time.time(), max_mib * _MIB)
    with writer, progress_bar() as bar:
        readings = _record(client, writer, position, interval_s, duration_s, bar)
    yield {"file": str(path), "readings": readings}
    click.echo(f"{readings} readings in {path}")


def _record(
    client: ControllerClient,
    writer: TraceWriter,
    position: dict[str, int],
    interval_s: float,
    duration_s: float | None,
    bar: progress.Progress,
) -> int:
    task = bar.add_task("recording", total=duration_s)
    readings = 0
    due_s = started_s = time.monotonic()
    try:
        while duration_s is None or due_s <= started_s + duration_s:
            time.sleep(max(0.0, due_s - time.monotonic()))
            bar.update(task, completed=due_s - started_s, description=f"{readings} readings")
            due_s = max(due_s + interval_s, time.monotonic())
            try:
                document = client.get("/v1/demand")
            except UnreachableError as error:
                warn(f"{error.message}; skipping this reading")
                continue
            if document["source"] == "measured":
                writer.append(time.time(), _entries(document, position))
                readings += 1
    except TraceFull as full:
        warn(str(full))
    except KeyboardInterrupt:
        pass
    return readings


def _entries(document: JsonObject, position: dict[str, int]) -> list[Entry]:
    return [
        (position[entry["src"]], position[entry["dst"]], entry["rate_mbps"])
        for entry in document["entries"]
    ]


@click.command(
    cls=Command,
    examples=[
        "hydra replay busy-hour.trace --fabric fabric.yaml",
        "hydra replay b.trace --fabric f.yaml --what-if gain_factor=1,epoch_s=2 --plot what-if.png",
    ],
)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--fabric", required=True, metavar="CONFIG", help="The configuration of the fabric.")
@click.option(
    "--what-if",
    "what_ifs",
    multiple=True,
    metavar="KEY=VALUE[,…]",
    help=f"Another policy; repeatable. Keys: {', '.join(KEYS)}.",
)
@click.option(
    "--outage-ms",
    type=FiniteRange(min=0),
    default=_OUTAGE_MS,
    show_default=True,
    help="Time for which a change keeps traffic off the moved circuits.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the comparison: PNG or SVG.",
)
@json_option
def replay(
    path: Path,
    fabric: str,
    what_ifs: Sequence[str],
    outage_ms: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Replay a recorded demand with the configured policy and other policies, side by side.

    Runs without a controller, and changes nothing. The periodic mode is played on the times of the
    trace, with no circuits at first; the first row is the electrical network alone.
    """
    with Progress(f"reading {path}") as progress, ended_by_ctrl_c():
        network, policy = read_fabric(fabric)
        variants = [
            Variant("no circuits", None),
            Variant(f"as configured ({policy.algorithm})", policy),
            *(read_variant(text, policy) for text in what_ifs),
        ]
        trace = read_trace(path, network)
        if trace.torn_line is not None:
            warn(f"{path}: line {trace.torn_line} is incomplete: skipping the line")
        runs = []
        for variant in variants:
            progress.now(f"replaying with {variant.name}")
            runs.append(run_replay(network, policy, trace, variant, outage_ms / 1000))
    if plot is not None:
        drawn_by("plots").plot_replay(runs, f"{path.name} on {network.name}", plot)
    if as_json:
        print_json({"trace": str(path), "runs": [document_of(run) for run in runs]})
    else:
        _print(runs, trace.readings[-1].at_s - trace.readings[0].at_s)


def _short(run: Run, lasts_s: float) -> str:
    """Remark on a trace with a single decision because it ends within an epoch; else empty."""
    decisions = sum(moment.decision is not None for moment in run.moments)
    if run.variant.policy is None or decisions > 1 or len(run.moments) == 1:
        return ""
    epoch_s = run.variant.policy.epoch_s
    return f"one decision: {lasts_s:g} s are within epoch_s={epoch_s:g}; shorten by --what-if"


def _print(runs: Sequence[Run], lasts_s: float) -> None:
    click.echo(f"{len(runs[0].moments)} readings over {lasts_s:.0f} s")
    print_columns(
        "Replay",
        runs,
        {
            "variant": lambda run: run.variant.name,
            "served>": lambda run: run.served_words,
            "GB>": lambda run: f"{run.served_gb:.3f}",
            "of GB>": lambda run: f"{run.wanted_gb:.3f}",
            "changes>": lambda run: run.changes,
            "circuits set up>": lambda run: run.circuits_set_up,
            "cost GB>": lambda run: f"{run.cost_gb:.3f}",
            "prediction error>": lambda run: (
                "" if run.prediction_error is None else f"{100 * run.prediction_error:.0f} %"
            ),
            "remark": lambda run: run.refused or _short(run, lasts_s),
        },
    )
