"""``hydra with-bandwidth``: reserve, run a command, release."""

from __future__ import annotations

import math
from collections.abc import Sequence

import click

from apps.cli.client import url_option
from apps.cli.command import Command
from apps.cli.job import connected, duration_option, run_with
from hydra_hybrid_network_client.documents import MatrixEntry


def read_entry(text: str) -> MatrixEntry:
    """Parse SRC:DST=MBPS. Raises BadParameter."""
    pair, _, rate = text.partition("=")
    src, _, dst = pair.partition(":")
    try:
        mbps = float(rate)
    except ValueError:
        mbps = 0
    if not (src and dst and 0 < mbps < math.inf):
        raise click.BadParameter(f"{text!r} is not SRC:DST=MBPS, such as r1:r2=50")
    return MatrixEntry(src=src, dst=dst, bandwidth_mbps=mbps)


def _read_entry(_ctx: click.Context, _param: click.Parameter, value: str) -> MatrixEntry:
    return read_entry(value)


def _read_entries(
    _ctx: click.Context, _param: click.Parameter, values: Sequence[str]
) -> list[MatrixEntry]:
    return [read_entry(value) for value in values]


@click.command(
    "with-bandwidth",
    cls=Command,
    examples=[
        "hydra with-bandwidth r1:r2=40 -- rsync -a data/ h21:data/",
        "hydra with-bandwidth r1:r2=40 --pair r1:r3=40 --duration 3600 -- ./shuffle.sh",
    ],
)
@click.argument("first", metavar="SRC:DST=MBPS", callback=_read_entry)
@click.argument("command", metavar="-- COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--pair",
    "more",
    metavar="SRC:DST=MBPS",
    multiple=True,
    callback=_read_entries,
    help="Another pair of racks or servers; repeatable. All or nothing.",
)
@duration_option("this command is killed")
@url_option
def with_bandwidth(
    first: MatrixEntry,
    command: Sequence[str],
    more: Sequence[MatrixEntry],
    duration_s: float | None,
    url: str,
) -> None:
    """Run COMMAND with bandwidth between SRC and DST.

    Reserves, waits until the circuits are up, runs COMMAND, and releases: also when COMMAND fails,
    and on Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and the like, which are passed on to COMMAND. Exits as
    COMMAND does (128 and more: by a signal), and with 1 if the bandwidth is not available.
    """
    with connected(url) as client:
        status = run_with(client, [first, *more], command, duration_s)
    click.get_current_context().exit(status)
