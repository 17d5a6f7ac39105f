"""``hydra schedule``: circuits by time in the slotted mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from apps.cli.client import ControllerClient, answered
from apps.cli.command import Command
from apps.cli.output import mbps, print_facts, print_table
from hydra_hybrid_network_client.errors import JsonObject

PATH: Final = "/v1/schedule"


@click.command(
    cls=Command,
    examples=[
        "hydra schedule",
        "hydra schedule --json | jq .week.slots",
        "hydra schedule --end",
    ],
)
@click.option("--end", is_flag=True, help="End a given schedule, and go back to the policy.")
@answered
def schedule(client: ControllerClient, end: bool) -> Iterator[object]:
    """Show the week of slots by which circuits are shared, and the present slot.

    For `hydra sharing slotted`, in periodic mode, and for a schedule that `hydra apply` has given.
    A slot is a night, while circuits move, and a day. The duty cycle is the share of day in the
    time: by the formula, from the expected length of a night, and as measured over the last slots.
    """
    document = client.delete(PATH) if end else client.get(PATH)
    yield document
    week = document["week"]
    print_facts([*_facts(document), *(_week_facts(document, week) if week else ())])
    if week:
        print_slots("This week", week, document["slot"])
    if document["ahead"]:
        print_slots("Next week", document["ahead"])


def _facts(document: JsonObject) -> list[tuple[str, str]]:
    night = document["night"]
    return [
        ("given", document["given"] or "no: planned for the demand"),
        ("shortest slot", f"{document['slot_s']:g} s"),
        (
            "night now",
            f"{night['total_s'] * 1000:.0f} ms: {night['mirrors_s'] * 1000:.0f} for the mirrors of "
            f"{night['plane']}, {night['drain_s'] * 1000:.0f} to drain, "
            f"{night['rest_s'] * 1000:.0f} for all else",
        ),
        ("week", f"{document['week']['period_s']:.3f} s" if document["week"] else "none"),
    ]


def _week_facts(document: JsonObject, week: JsonObject) -> list[tuple[str, str]]:
    measured = document["measured_duty_cycle"]
    return [
        ("slot", f"{document['slot']} of {len(week['slots'])}"),
        ("duty cycle", f"{week['duty_cycle']:.4f} by the formula"),
        ("", "not measured yet" if measured is None else f"{measured:.4f} measured"),
        ("carried", f"{mbps(week['served_mbps'])} of {mbps(week['demand_mbps'])} Mbps on circuits"),
    ]


def print_slots(title: str, week: JsonObject, current: int | None = None) -> None:
    """Print a table of slots; ``current`` is the number of the present slot."""
    print_table(
        title,
        ("slot>", "on", "ms>", "pairs"),
        (
            (
                number,
                "now" if number == current else "",
                f"{slot['length_s'] * 1000:.0f}",
                ", ".join(f"{pair['src']}-{pair['dst']}" for pair in slot["pairs"]) or "none",
            )
            for number, slot in enumerate(week["slots"], start=1)
        ),
    )
