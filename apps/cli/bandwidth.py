"""``hydra with-bandwidth``: reserve, run a command, release."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import click

from apps.cli.client import url_option
from apps.cli.command import Command
from apps.cli.job import connected, duration_option, run_with
from hydra_hybrid_network_client.documents import CreatedGroup, MatrixEntry, Shape


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


def read_shape_rate(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> float | Literal["most"] | None:
    if value is None:
        return None
    if value == "most":
        return "most"
    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise click.BadParameter(f"{value!r} is neither a rate in Mb/s, such as 40, nor most")
    return rate


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
        "hydra with-bandwidth --shape ring r1,r2,r3,r4 --mbps most -- ./train.sh",
    ],
)
@click.argument(
    "words",
    metavar="[SRC:DST=MBPS] -- COMMAND…",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
)
@click.option(
    "--pair",
    "more",
    metavar="SRC:DST=MBPS",
    multiple=True,
    callback=_read_entries,
    help="A further pair of racks or servers; repeatable. Either all pairs are reserved, or none.",
)
@click.option(
    "--shape",
    metavar="PATTERN RACK,RACK,…",
    nargs=2,
    help="A pattern of racks instead of pairs: see `hydra shape reserve --help`.",
)
@click.option(
    "--mbps",
    "rate",
    metavar="RATE",
    callback=read_shape_rate,
    help="Bandwidth of each pair of --shape; `most`: the highest that fits at all pairs.",
)
@duration_option("this command is killed")
@url_option
def with_bandwidth(
    words: Sequence[str],
    more: Sequence[MatrixEntry],
    shape: tuple[str, str] | None,
    rate: float | Literal["most"] | None,
    duration_s: float | None,
    url: str,
) -> None:
    """Run COMMAND with bandwidth between SRC and DST, or between racks in a --shape.

    Reserves, waits until the circuits are up, runs COMMAND, and releases: also when COMMAND fails,
    and on Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and the like, which are passed on to COMMAND. Exits with
    COMMAND's status (above 128: COMMAND was ended by a signal), or with 1 if the bandwidth is not
    available.
    """
    if (shape is None) != (rate is None) or (shape is not None and more):
        raise click.UsageError("--shape and --mbps go together, without --pair")
    entries = [] if shape is not None else [read_entry(words[0]), *more]
    command = words[1:] if entries else words
    if not command:
        raise click.UsageError(f"no command: give one after --, as in {words[0]} -- COMMAND")
    with connected(url) as client:
        reserve: Callable[[], CreatedGroup | Shape]
        if shape is None or rate is None:
            reserve = partial(client.reserve_matrix, entries, duration_s=duration_s)
        else:
            racks = shape[1].split(",")
            reserve = partial(client.reserve_shape, shape[0], racks, rate, duration_s=duration_s)
        status = run_with(client, reserve, command)
    click.get_current_context().exit(status)
