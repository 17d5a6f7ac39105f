"""``hydra availability``: bandwidth that could be reserved, over a time."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import click

from apps.cli.client import ControllerClient, answered
from apps.cli.command import Command
from apps.cli.output import mbps, print_columns
from apps.cli.parameters import read_coming_moment
from apps.cli.wording import moment


@click.command(
    cls=Command,
    examples=["hydra availability r1 r3", "hydra availability h11 h31 --end 2026-12-01T06:00"],
)
@click.argument("src")
@click.argument("dst")
@click.option("--start", metavar="TIME", callback=read_coming_moment, help="Start. Without: now.")
@click.option(
    "--end",
    metavar="TIME",
    callback=read_coming_moment,
    help="End. Without: a day after the start.",
)
@answered
def availability(
    client: ControllerClient, src: str, dst: str, start: float | None, end: float | None
) -> Iterator[object]:
    """Show the bandwidth that SRC and DST, racks or servers, could reserve at which time."""
    asked = {"src": src, "dst": dst, "start_unix_s": start, "end_unix_s": end}
    query = {name: value for name, value in asked.items() if value is not None}
    document = client.get(f"/v1/availability?{urlencode(query)}")
    yield document
    print_columns(
        f"Available between {src} and {dst}",
        document["spans"],
        {
            "from": lambda row: moment(row["start_unix_s"]),
            "until": lambda row: moment(row["end_unix_s"]),
            "Mb/s>": lambda row: mbps(row["mbps"]),
        },
    )
