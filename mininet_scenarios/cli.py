"""``hydra experiment``, contributed to the ``hydra`` command by the installation.

Nothing heavy is imported before a command runs, so that ``hydra --help`` is fast.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from apps.cli.command import Command, Group
from hydra.names import counted

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


class Scale(click.ParamType[str | int]):
    """``short`` or ``full``, or the divisor of the paper's rates, as ``1:N``."""

    name = "short|full|1:N"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        if isinstance(value, int) or value in {"short", "full"}:
            return value
        numerator, colon, divisor = value.partition(":")
        if numerator != "1" or not colon or not divisor.isdecimal() or not int(divisor):
            self.fail(f"{value!r} is none of short, full, and 1:N such as 1:100", param, ctx)
        return int(divisor)


_results_option = click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Where each experiment has a directory.",
)


@click.group(
    cls=Group,
    examples=(
        "hydra experiment list",
        "hydra experiment run tournament --scale full",
        "hydra experiment report",
    ),
)
def experiment() -> None:
    """Run the papers' experiments, and hold them against the published figures."""


@experiment.command("list", cls=Command, examples=("hydra experiment list",))
@_json_option
def list_experiments(as_json: bool) -> None:
    """List the experiments, with sources and durations."""
    found = _module("runner").catalogue()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    output = import_module("apps.cli.output")
    output.print_table(
        "Experiments",
        ("name", "what", "source", "short>", "full>", "needs"),
        [
            (
                listed["name"],
                listed["title"],
                listed["source"],
                _duration(listed["expected_short_s"]),
                _duration(listed["expected_full_s"]),
                _needs(listed),
            )
            for listed in found
        ],
    )


def _needs(listed: Mapping[str, Any]) -> str:
    needs = ["root, Mininet"] if listed["needs_data_plane"] else []
    needs += ["Open MPI, FFTW"] if listed["needs_mpi"] else []
    return ", ".join(needs)


@experiment.command(
    cls=Command,
    examples=(
        "hydra experiment run prices",
        "hydra experiment run tournament --scale full",
        "hydra experiment run mordia-slots --repeat 3 --continue",
        "hydra experiment run trace --trace coflows.txt --repeat 5",
        "hydra experiment run trace --fabric fabric.yaml --trace flows.csv",
    ),
)
@click.argument("name")
@click.option(
    "--scale",
    "scales",
    type=Scale(),
    multiple=True,
    help="short, the default: two minutes at most; full: as in the published results. 1:N: rates "
    "of links against the paper's, which otherwise follow from what this machine forwards. A form "
    "and a ratio may both be given.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Repetitions in all, each with a workload of its own.",
)
@click.option(
    "--continue",
    "goes_on",
    is_flag=True,
    help="Keep the repetitions of an earlier run of the same form, interrupted or complete, and "
    "add those that are missing.",
)
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="For `trace`: coflows, lines `src dst bytes start`, or CSV, as `hydra trace` reads them.",
)
@click.option(
    "--fabric",
    type=click.Path(dir_okay=False, path_type=Path),
    help="For `trace`: a fabric to play on, such as `hydra init --emulated` writes.",
)
@_results_option
@_json_option
def run(
    name: str,
    scales: tuple[str | int, ...],
    repeat: int,
    goes_on: bool,
    trace_file: Path | None,
    fabric: Path | None,
    results: Path,
    as_json: bool,
) -> None:
    """Run an experiment; raw data, results and plots go to a directory of its name."""
    full = "full" in scales
    divisor = next((scale for scale in reversed(scales) if isinstance(scale, int)), None)
    runner = _module("runner")
    console = runner.console_for(as_json=as_json)
    order = runner.Order(name, full, repeat, results, divisor, goes_on, trace_file, fabric)
    result = runner.run(order, console)
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        runner.print_result(result, console)
        click.echo(f"written: {results / name}")


@experiment.command(cls=Command, examples=("hydra experiment calibrate",))
@_json_option
def calibrate(as_json: bool) -> None:
    """Measure the rate that this machine forwards between emulated racks, as experiments do
    beforehand.

    Traffic above the second figure meets the machine's limits before the limits of the links. The
    command has the requirements of experiments on packets, and takes 15 seconds.
    """
    runner = _module("runner")
    found = runner.calibrate(runner.console_for(as_json=as_json))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(
        f"forwarded: {found['forwarded_mbps']:.0f} Mb/s; carried by experiments at a time, at "
        f"most: {found['carried_mbps']:.0f} Mb/s"
    )


@experiment.command(
    cls=Command,
    examples=("hydra experiment conclude", "hydra experiment conclude fig7 --results docs/results"),
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_results_option
@_json_option
def conclude(names: tuple[str, ...], results: Path, as_json: bool) -> None:
    """Make figures and plots anew from raw data, of all experiments run before or of the named
    experiments.

    Nothing is measured: for use after a change of conclusions or drawings.
    """
    runner = _module("runner")
    found = [
        runner.conclude(name, results)
        for name in names or [listed["name"] for listed in runner.read_results(results)]
    ]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for result in found:
        click.echo(f"written: {results / result['name']}")


@experiment.command(cls=Command, examples=("hydra experiment report --to report.html",))
@_results_option
@click.option(
    "--to", type=click.Path(dir_okay=False, path_type=Path), help="Instead of RESULTS/report.html."
)
@_json_option
def report(results: Path, to: Path | None, as_json: bool) -> None:
    """Make one HTML page of all results: the paper's figures, ours, ratios, plots.

    The page begins with a table of all claims of the five papers, each with a band and a verdict:
    ours agrees, differs, or was not played.
    """
    path = to or results / "report.html"
    found = _module("runner").read_results(results)
    judgement = _module("judgement")
    verdicts = judgement.verdicts(found)
    counts = judgement.counts(verdicts)
    _module("page").write_page(found, verdicts, results, path)
    missed = [
        f"{listed['name']}: {row['figure']}"
        for listed in found
        for row in listed["rows"]
        if row["met"] is False
    ]
    if as_json:
        document = {"written": str(path), "not_met": missed, "papers": counts}
        document["claims"] = judgement.as_json(verdicts)
        click.echo(json.dumps(document, indent=2))
        return
    columns = ("rows", "two_sided", "agrees", "differs", "not_played")
    import_module("apps.cli.output").print_table(
        "The papers' claims",
        ("paper", *(f"{column.replace('_', ' ')}>" for column in columns)),
        [(paper, *(str(count[column]) for column in columns)) for paper, count in counts.items()],
    )
    click.echo(f"{path}: {counted(len(found), 'experiment')}")
    for line in missed:
        click.echo(f"not met: {line}")


def _module(name: str) -> ModuleType:
    try:
        return import_module(f"mininet_scenarios.experiments.{name}")
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"{error.name} is needed: pip install 'hydra-hybrid-network[experiments]', or in a "
            "clone pip install '.[experiments]'"
        ) from error


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
