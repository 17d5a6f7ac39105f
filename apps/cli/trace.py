"""``hydra trace``: traces of flows between racks, shown, converted, and planned for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Final

import click
import numpy as np

from apps.cli.command import Command, Group
from apps.cli.output import (
    CommandError,
    drawn_by,
    json_option,
    print_columns,
    print_facts,
    print_json,
    print_outcome,
    warn,
)
from apps.cli.parameters import FABRIC_HELP, FiniteRange
from apps.cli.patience import Progress, ended_by_ctrl_c
from apps.offline.recording import MOST_BYTES, TraceWriter
from apps.offline.study import Limits, read_fabric
from apps.process.files import replacing
from apps.traces.comparing import Contestant, compare
from apps.traces.reading import Flow, Summary, read_trace, seconds, summarise
from apps.traces.synthetic import SAMPLE, SAMPLE_COFLOWS, SAMPLE_RACKS, SAMPLE_SEED, coflow_lines
from apps.traces.windows import Window, rack_numbers, windows
from hydra.errors import PlanError
from hydra.model import Fabric
from hydra.names import counted
from hydra_hybrid_network_client.errors import JsonObject
from topology.algorithms import ENTRIES, Product

_LISTED: Final = 20
_LEAST_READING_S: Final = 0.001
"""Resolution of times in a recording."""
_path = click.Path(dir_okay=False, path_type=Path)
_trace_argument = click.argument("trace_file", metavar="[TRACE]", type=_path, default=SAMPLE)
_window_option = click.option(
    "--window-s",
    type=FiniteRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Length of a window. The demand is the traffic of the flows that start in the window.",
)
_size_option = click.option(
    "--size-factor",
    type=FiniteRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Multiply all sizes.",
)
_fold_option = click.option(
    "--fold", is_flag=True, help="Merge several racks of a larger trace into a rack of the fabric."
)


@click.group(
    cls=Group,
    examples=(
        "hydra trace show",
        "hydra trace plan flows.txt --fabric 150x8@10000 --window-s 10 --plot windows.png",
    ),
)
def trace() -> None:
    """Read traces of flows between racks, and plan for their windows.

    TRACE is a file in coflow-benchmark form, a file of lines `src dst bytes start`, or CSV with
    these four names as heading.
    Without TRACE, the package's synthetic sample is taken.
    """


@trace.command(cls=Command, examples=("hydra trace show trace.txt --window-s 60",))
@_trace_argument
@_window_option
@json_option
def show(trace_file: Path, window_s: float, as_json: bool) -> None:
    """Show a trace's contents and windows."""
    with _errors():
        summary = _summarise(trace_file)
        found = [
            _window_document(window)
            for window in _cut(trace_file, summary, len(summary.racks), window_s)
        ]
    if as_json:
        print_json({"trace": str(trace_file), **asdict(summary), "windows": found})
        return
    print_facts(
        [
            ("trace", trace_file),
            ("racks", len(summary.racks)),
            ("flows", f"{summary.flows:,}, {summary.local_flows:,} of them within a rack"),
            ("bytes", f"{summary.size_bytes:,.0f}, {summary.local_bytes:,.0f} within a rack"),
            ("time", f"{seconds(summary.first_s)} to {seconds(summary.last_s)} s"),
        ]
    )
    busiest = sorted(found, key=lambda row: -row["mbps"])[:_LISTED]
    print_columns(
        f"Windows of {window_s:g} s, the busiest {len(busiest)} of {len(found)}",
        busiest,
        {
            "window>": "window",
            "from s>": lambda row: seconds(row["start_s"]),
            "flows>": "flows",
            "pairs>": "pairs",
            "Mb/s>": lambda row: f"{row['mbps']:,.1f}",
            "busiest rack Mb/s>": lambda row: f"{row['busiest_rack_mbps']:,.1f}",
        },
        empty="none with a flow between racks",
    )


@trace.command(
    cls=Command,
    examples=(
        "hydra trace convert coflows.txt flows.txt",
        "hydra trace convert coflows.txt demand.json --window 3 --window-s 10",
        "hydra trace convert flows.csv day.trace --to replay --fabric fabric.yaml --window-s 1",
    ),
)
@_trace_argument
@click.argument("to_file", metavar="TO", type=_path)
@click.option(
    "--window", type=click.IntRange(0), help="Only this window, as a demand for `hydra plan`."
)
@click.option(
    "--to",
    "form",
    type=click.Choice(["flows", "replay"]),
    default="flows",
    show_default=True,
    help="Lines of flows; or a recording for `hydra replay`, a reading for each window.",
)
@click.option(
    "--fabric",
    metavar="FILE|RxP[@MBPS]",
    help=f"With --to replay: whose racks to name. {FABRIC_HELP}",
)
@_window_option
@_size_option
@_fold_option
@json_option
def convert(
    trace_file: Path,
    to_file: Path,
    window: int | None,
    form: str,
    fabric: str | None,
    window_s: float,
    size_factor: float,
    fold: bool,
    as_json: bool,
) -> None:
    """Write a trace as lines `src dst bytes start`, as a recording for `hydra replay`, or one of
    its windows as a demand (JSON).

    A demand names the racks, or numbers the racks from 0 if the trace has numbers. A recording has
    the mean rates of each window, between racks of --fabric.
    """
    _check_form(form, window, fabric, window_s, fold=fold)
    with _errors():
        if fabric is not None:
            kind = "readings"
            written = _write_recording(
                trace_file, to_file, fabric, window_s, size_factor, fold=fold
            )
        elif window is None:
            kind, written = "flows", _write_flows(trace_file, to_file, size_factor)
        else:
            kind = "pairs of racks"
            written = _write_demand(trace_file, to_file, window, window_s, size_factor)
    words = f"{to_file}: {written:,} {kind}"
    print_outcome({"written": str(to_file), "entries": written}, words, as_json)


@trace.command(
    cls=Command,
    examples=(
        "hydra trace plan --fabric 32x4@1000",
        "hydra trace plan coflows.txt --fabric 150x8@10000 --windows 5 --json",
    ),
)
@_trace_argument
@click.option("--fabric", metavar="FILE|RxP[@MBPS]", required=True, help=FABRIC_HELP)
@click.option(
    "--algorithm",
    "algorithms",
    multiple=True,
    help="Only this algorithm (a name, or MODULE:OBJECT); repeatable.",
)
@click.option("--windows", "n_windows", type=click.IntRange(1), help="Plan the first N windows.")
@click.option(
    "--max-hops", type=click.IntRange(1, 16), help="Most hops of a path; 1: as `edmonds` plans."
)
@click.option(
    "--budget-ms",
    type=FiniteRange(0, min_open=True),
    help="Time for each plan: an algorithm that tries several plans returns the best found.",
)
@click.option(
    "--weighted", is_flag=True, help="Count pairs as served only if all their demand is served."
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Draw the comparison: PNG, SVG or PDF.",
)
@_window_option
@_size_option
@_fold_option
@json_option
def plan(
    trace_file: Path,
    fabric: str,
    algorithms: tuple[str, ...],
    n_windows: int | None,
    max_hops: int | None,
    budget_ms: float | None,
    weighted: bool,
    plot: Path | None,
    window_s: float,
    size_factor: float,
    fold: bool,
    as_json: bool,
) -> None:
    """Plan every window of a trace with every algorithm, side by side.

    Each plan starts from the algorithm's circuits in the previous window. The plans are checked by
    code that plans nothing. Plans that take long are bounded by --budget-ms, or left out by naming
    the others with --algorithm.
    """
    with _errors(), Progress(f"reading {trace_file}") as progress, ended_by_ctrl_c():
        network, policy = read_fabric(fabric)
        seconds_each = float("inf") if budget_ms is None else budget_ms / 1000
        limits = Limits(
            max_hops or policy.max_hops,
            weighted=weighted,
            window_s=window_s,
            seconds=seconds_each,
        )
        summary = _summarise(trace_file)
        cut = list(
            islice(
                _cut(
                    trace_file,
                    summary,
                    len(network.racks),
                    window_s,
                    size_factor,
                    fold=fold,
                    fabric=[rack.name for rack in network.racks],
                ),
                n_windows,
            )
        )
        found = compare(network, cut, limits, algorithms or tuple(ENTRIES), progress.now)
        if plot is not None:
            drawn_by("trace_plots").plot_contest(found, window_s, plot)
    _print_contest(network, cut, found, as_json=as_json)
    _end_with_problems(found)


@trace.command(cls=Command, examples=("hydra trace sample 64racks.txt --racks 64 --seed 2",))
@click.argument("to_file", metavar="TO", type=_path)
@click.option("--racks", type=click.IntRange(2, 4096), default=SAMPLE_RACKS, show_default=True)
@click.option("--coflows", type=click.IntRange(1), default=SAMPLE_COFLOWS, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=SAMPLE_SEED, show_default=True)
@json_option
def sample(to_file: Path, racks: int, coflows: int, seed: int, as_json: bool) -> None:
    """Make up a trace of coflows; the same arguments give the same trace."""
    with _errors(), replacing(to_file) as file:
        file.writelines(f"{line}\n" for line in coflow_lines(racks, coflows, seed))
    words = f"{to_file}: {coflows:,} coflows between {racks:,} racks, seed {seed}"
    made = {"racks": racks, "coflows": coflows, "seed": seed}
    print_outcome({"written": str(to_file), **made}, words, as_json)


# --- work -----------------------------------------------------------------------------------


def _summarise(trace_file: Path) -> Summary:
    """The first of two passes over a trace."""
    if trace_file.exists() and not trace_file.is_file():
        raise CommandError(f"{trace_file} can't be read twice: write the trace to a file first")
    summary = summarise(trace_file)
    if (doubt := summary.doubt()) is not None:
        warn(f"{trace_file}: {doubt}")
    return summary


def _cut(
    trace_file: Path,
    summary: Summary,
    racks: int,
    window_s: float,
    size_factor: float = 1.0,
    *,
    fold: bool = False,
    fabric: Sequence[str] = (),
) -> Iterator[Window]:
    numbers = rack_numbers(summary.racks, racks, fold=fold, fabric=fabric)
    return windows(read_trace(trace_file), numbers, racks, window_s, size_factor)


def _write_flows(trace_file: Path, to_file: Path, size_factor: float) -> int:
    _refuse_itself(trace_file, to_file)
    written = 0
    with replacing(to_file) as file:
        for flow in read_trace(trace_file):
            file.write(_line(flow, size_factor))
            written += 1
    return written


def _line(flow: Flow, size_factor: float) -> str:
    return f"{flow.src} {flow.dst} {flow.size_bytes * size_factor!r} {flow.start_s!r}\n"


def _write_demand(
    trace_file: Path, to_file: Path, number: int, window_s: float, size_factor: float
) -> int:
    _refuse_itself(trace_file, to_file)
    summary = _summarise(trace_file)
    cut = _cut(trace_file, summary, len(summary.racks), window_s, size_factor)
    chosen = next((window for window in cut if window.number == number), None)
    if chosen is None:
        raise CommandError(
            f"{trace_file} has no flow between racks in window {number} of {window_s:g} s: "
            "`hydra trace show` lists the windows"
        )
    demand = chosen.demand_mbps
    numbered = any(name.isdecimal() for name in summary.racks)
    called = range(len(summary.racks)) if numbered else summary.racks
    flows = [
        {"src": called[src], "dst": called[dst], "mbps": float(demand[src, dst])}
        for src, dst in np.argwhere(demand).tolist()
    ]
    with replacing(to_file) as file:
        json.dump(flows, file)
    return len(flows)


def _check_form(
    form: str, window: int | None, fabric: str | None, window_s: float, *, fold: bool
) -> None:
    """Raises UsageError for options that do not go together."""
    if form == "replay":
        if fabric is None:
            raise click.UsageError("--to replay names racks: add --fabric, as for `hydra replay`")
        if window is not None:
            raise click.UsageError("--to replay has all windows: leave out --window")
        if window_s < _LEAST_READING_S:
            raise click.UsageError(f"--window-s {window_s:g}: a recording counts time in ms")
    elif fabric is not None or fold:
        raise click.UsageError("--fabric and --fold are for recordings: add --to replay")


def _write_recording(
    trace_file: Path, to_file: Path, fabric: str, window_s: float, size_factor: float, *, fold: bool
) -> int:
    """Write a reading at the start of each window, and a reading without traffic after each run of
    consecutive windows.

    Returns the number of readings.
    """
    network, _ = read_fabric(fabric)
    names = [rack.name for rack in network.racks]
    summary = _summarise(trace_file)
    cut = _cut(trace_file, summary, len(names), window_s, size_factor, fold=fold, fabric=names)
    first = next(cut, None)
    if first is None:
        raise CommandError(f"{trace_file} has no flow between racks: nothing to replay")
    with TraceWriter(to_file, network.name, names, first.start_s, MOST_BYTES) as writer:
        written, ends = 0, first.number
        try:
            for window in chain([first], cut):
                if window.number > ends:
                    writer.append(ends * window_s, ())
                    written += 1
                demand = window.demand_mbps
                pairs = np.argwhere(demand).tolist()
                writer.append(window.start_s, ((a, b, float(demand[a, b])) for a, b in pairs))
                written, ends = written + 1, window.number + 1
            writer.append(ends * window_s, ())
        except PlanError:
            to_file.unlink(missing_ok=True)
            raise
    return written + 1


def _refuse_itself(trace_file: Path, to_file: Path) -> None:
    if to_file.exists() and to_file.samefile(trace_file):
        raise CommandError(f"{to_file} is the trace itself: name another file")


def _window_document(window: Window) -> JsonObject:
    demand = window.demand_mbps
    return {
        "window": window.number,
        "start_s": window.start_s,
        "flows": window.flows,
        "pairs": int((demand > 0).sum()),
        "mbps": window.total_mbps,
        "busiest_rack_mbps": window.busiest_rack_mbps,
    }


def _print_contest(
    fabric: Fabric, cut: list[Window], found: list[Contestant], *, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "fabric": fabric.name,
                "windows": [_window_document(window) for window in cut],
                "algorithms": [
                    {
                        "served_share": contestant.served_share if contestant.attempts else None,
                        "worst_share": contestant.worst_share if contestant.attempts else None,
                        "planning_ms": contestant.planning_ms if contestant.attempts else None,
                        "mean_hops": contestant.mean_hops,
                        **asdict(contestant),
                    }
                    for contestant in found
                ],
            }
        )
        return
    print_columns(
        f"{fabric.name}: {counted(len(fabric.racks), 'rack')}, "
        f"{counted(len(fabric.planes), 'plane')}, {counted(len(cut), 'window')}",
        found,
        {
            "algorithm": lambda row: row.algorithm,
            "served>": lambda row: f"{100 * row.served_share:.1f} %" if row.attempts else "",
            "least>": lambda row: f"{100 * row.worst_share:.1f} %" if row.attempts else "",
            "hops>": lambda row: "" if row.mean_hops is None else f"{row.mean_hops:.2f}",
            "ms>": lambda row: f"{row.planning_ms:,.1f}" if row.attempts else "",
            "circuits changed>": lambda row: (
                f"{row.changes:.1f}" if row.attempts and _stands(row) else ""
            ),
            "remark": lambda row: row.refused,
        },
    )


def _stands(contestant: Contestant) -> bool:
    """True if the algorithm plans circuits, which stay up until taken down."""
    return ENTRIES[contestant.algorithm].product is Product.CIRCUITS


def _end_with_problems(found: list[Contestant]) -> None:
    problems = [
        f"{contestant.algorithm}, window {attempt.window}: {problem}"
        for contestant in found
        for attempt in contestant.attempts
        for problem in attempt.problems
    ]
    if problems:
        raise CommandError("the checks found problems:\n" + "\n".join(problems))


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
