"""``hydra quotas``: limits of tenants, and use."""

from __future__ import annotations

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.output import json_option, mbps, print_json, print_table


@click.command(cls=Command, examples=["hydra quotas", "hydra quotas --json"])
@url_option
@json_option
def quotas(url: str, as_json: bool) -> None:
    """Show each tenant's quota and current use.

    Tenants see only their own quota. `hydra token quota` sets quotas.
    """
    with ControllerClient(url) as client:
        document = client.get("/v1/quotas")
    if as_json:
        print_json(document)
        return
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
