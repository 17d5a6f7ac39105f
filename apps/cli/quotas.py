"""``hydra quotas``: limits of tenants, and use."""

from __future__ import annotations

from collections.abc import Iterator

import click

from apps.cli.client import ControllerClient, answered
from apps.cli.command import Command
from apps.cli.output import mbps, print_table


@click.command(cls=Command, examples=["hydra quotas", "hydra quotas --json"])
@answered
def quotas(client: ControllerClient) -> Iterator[object]:
    """Show each tenant's quota and current use.

    Tenants see only their own quota. `hydra token quota` sets quotas.
    """
    document = client.get("/v1/quotas")
    yield document
    print_table(
        "Quotas",
        ("tenant", "reservations>", "of>", "peak Mb/s>", "of>"),
        (
            (
                quota["tenant"],
                quota["reservations"],
                _limit(quota["max_reservations"]),
                mbps(quota["peak_mbps"]),
                "-" if quota["max_mbps"] is None else mbps(quota["max_mbps"]),
            )
            for quota in document["quotas"]
        ),
    )


def _limit(count: int | None) -> str:
    return "-" if count is None else str(count)
