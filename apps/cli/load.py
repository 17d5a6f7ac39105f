"""``hydra load``: the last hour of circuits and rack pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final
from urllib.parse import urlencode

import click

from apps.cli.client import ControllerClient, answered
from apps.cli.command import Command
from apps.cli.output import mbps, print_table
from apps.cli.wording import describe_circuit, moment
from hydra_hybrid_network_client.errors import JsonObject

_BARS: Final = "▁▂▃▄▅▆▇█"
_UNKNOWN: Final = "·"
_WIDTH: Final = 30
_COLUMNS: Final = ("now>", "most>", "mean>")

_Samples = Sequence[float | None]


@click.command(
    cls=Command,
    examples=[
        "hydra load",
        "hydra load r1",
        "hydra load r1 r2",
        "hydra load --limit 100 --json | jq '.circuits[] | {plane, a_to_b_mbps}'",
    ],
)
@click.argument("racks", metavar="[RACK [RACK]]", nargs=-1)
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="Number of circuits, and of pairs.",
)
@answered
def load(client: ControllerClient, racks: tuple[str, ...], limit: int) -> Iterator[object]:
    """Show the load of the last hour, of circuits and of the rack pairs that carry most.

    With one rack: only circuits and pairs at the rack; with two: only between the racks. Sorted by
    the highest rate in the hour, in Mb/s. Each line is drawn from 0 to its own highest rate. A dot
    is a time without data: data are kept for the 1,024 busiest pairs.
    """
    if len(racks) > 2:
        raise click.UsageError(f"{len(racks)} racks: name two at most")
    query = urlencode([("limit", limit), *(("rack", rack) for rack in racks)])
    document = client.get(f"/v1/load?{query}")
    yield document
    if document["interval_s"] is None:
        click.echo("Load is not recorded: policy.poll_interval_s is 0.")
        return
    click.echo(_span(document))
    print_table(
        "Circuits",
        ("circuit", "from", *_COLUMNS, "of>", "load"),
        (
            (*name, *figures, mbps(circuit["rate_mbps"]), line)
            for circuit in document["circuits"]
            for name, samples in _directions(circuit)
            for *figures, line in [_row(samples)]
        ),
    )
    print_table(
        "Pairs",
        ("from", "to", *_COLUMNS, "load"),
        ((pair["src"], pair["dst"], *_row(pair["mbps"])) for pair in document["pairs"]),
    )


def _span(document: JsonObject) -> str:
    times = document["unix_s"]
    if not times:
        return f"No sample yet: the first comes {document['interval_s']:g} s after the start."
    return f"{moment(times[0])} to {moment(times[-1])}, every {document['interval_s']:g} s, in Mb/s"


def _directions(circuit: JsonObject) -> Iterable[tuple[tuple[str, str], _Samples]]:
    name = describe_circuit(circuit)
    yield (name, circuit["a"]["rack"]), circuit["a_to_b_mbps"]
    if circuit["b_to_a_mbps"] is not None:
        yield (name, circuit["b"]["rack"]), circuit["b_to_a_mbps"]


def _row(samples: _Samples) -> tuple[str, ...]:
    """The latest, the highest and the mean rate, and a line; empty where unknown."""
    known = [sample for sample in samples if sample is not None]
    if not known:
        return "", "", "", _sparkline(samples)
    now = "" if samples[-1] is None else mbps(samples[-1])
    return now, mbps(max(known)), mbps(sum(known) / len(known)), _sparkline(samples)


def _sparkline(samples: _Samples) -> str:
    """A bar for each part of the time: the mean of the known samples; at most 30 bars."""
    many = min(_WIDTH, len(samples))
    ends = [k * len(samples) // max(1, many) for k in range(many + 1)]
    means = [_mean(samples[begin:end]) for begin, end in pairwise(ends)]
    most = max((mean for mean in means if mean is not None), default=0.0)
    return "".join(_UNKNOWN if mean is None else _bar(mean, most) for mean in means)


def _mean(samples: _Samples) -> float | None:
    known = [sample for sample in samples if sample is not None]
    return sum(known) / len(known) if known else None


def _bar(rate_mbps: float, most_mbps: float) -> str:
    share = rate_mbps / most_mbps if most_mbps else 0.0
    return _BARS[min(len(_BARS) - 1, int(share * len(_BARS)))]
