"""``hydra price``: costs of a network, of alternatives, and the papers' figures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from apps.cli.command import Command
from apps.cli.output import drawn_by, json_option, print_columns, print_json, print_table
from apps.cli.parameters import FiniteRange
from apps.prices import networks, pods
from apps.prices.files import (
    SHIPPED,
    PodPrices,
    RackPrices,
    read_prices,
    shipped_text,
)
from hydra_hybrid_network_client.errors import JsonObject

_MILLION: Final = 1e6
_THOUSAND: Final = 1e3


@click.command(
    cls=Command,
    examples=(
        "hydra price",
        "hydra price helios-2010 --plot prices.png",
        "hydra price hydra-2015 --planes 16 --oversubscription 6 --json",
        "hydra price --planes 20 --equal-cost",
        "hydra price hydra-2015 --show-file > ours.yaml",
    ),
)
@click.argument("prices", default=SHIPPED[0])
@click.option(
    "--planes",
    type=click.IntRange(0, 4096),
    multiple=True,
    help="Numbers of optical switches, instead of the file's; repeatable.",
)
@click.option(
    "--oversubscription",
    type=FiniteRange(1, 1e6),
    multiple=True,
    help="Oversubscription ratios of the fat tree, instead of the file's; repeatable.",
)
@click.option(
    "--equal-cost",
    is_flag=True,
    help="Show the oversubscription of the fat tree that costs as much, for each number of "
    "optical switches.",
)
@click.option("--show-file", is_flag=True, help="Print a price file of the package, to be edited.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Draw the prices: PNG, SVG or PDF.",
)
@json_option
def price(
    prices: str,
    planes: tuple[int, ...],
    oversubscription: tuple[float, ...],
    equal_cost: bool,
    show_file: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Show a network's costs, beside its alternatives and the papers' figures.

    PRICES is a file, or a price list of the package: hydra-2015 (Table I and Fig. 5) or helios-2010
    (Table 1 and Fig. 2).
    """
    if show_file and as_json:
        raise click.UsageError("--show-file prints YAML: leave out --json")
    if show_file:
        click.echo(shipped_text(prices), nl=False)
        return
    read = read_prices(prices)
    if isinstance(read, PodPrices):
        if planes or oversubscription or equal_cost:
            raise click.UsageError(f"{prices} prices pods: the file has no planes and no fat tree")
        _pods(read, plot, as_json=as_json)
    else:
        chosen: dict[str, Any] = {}
        if planes:
            chosen["planes"] = planes
        if oversubscription:
            chosen["oversubscription"] = oversubscription
        _racks(read.model_copy(update=chosen), plot, equal_cost=equal_cost, as_json=as_json)


def _racks(prices: RackPrices, plot: Path | None, *, equal_cost: bool, as_json: bool) -> None:
    hydra = [networks.hydra_bill(prices, planes) for planes in prices.planes]
    fat_tree = [networks.fat_tree_bill(prices, ratio) for ratio in prices.oversubscription]
    compared = networks.comparisons(prices)
    equal = [
        (bill, networks.equal_cost(prices, k)) for bill, k in zip(hydra, prices.planes, strict=True)
    ]
    if plot is not None:
        drawn_by("price_plots").plot_racks(prices, hydra, fat_tree, plot)
    if as_json:
        print_json(
            {
                "title": prices.title,
                "networks": [_bill_document(bill) for bill in (*hydra, *fat_tree)],
                "published": [_comparison_document(comparison) for comparison in compared],
                "equal_cost": [
                    {"hydra": bill.network, "usd": bill.usd, "oversubscription": ratio}
                    for bill, ratio in equal
                ],
            }
        )
        return
    if equal_cost:
        print_columns(
            f"{prices.title}: fat trees of equal cost",
            equal,
            {
                "network": lambda row: row[0].network,
                "million USD>": lambda row: f"{row[0].usd / _MILLION:,.2f}",
                "fat tree of β>": lambda row: "none" if row[1] is None else f"{row[1]:.2f}",
            },
        )
        return
    print_columns(
        f"{prices.title}: {prices.racks * prices.servers_per_rack:,} servers",
        (*hydra, *fat_tree),
        {
            "network": lambda bill: bill.network,
            "million USD>": lambda bill: f"{bill.usd / _MILLION:,.2f}",
            "USD per server>": lambda bill: (
                f"{bill.usd / prices.racks / prices.servers_per_rack:,.0f}"
            ),
            "higher rate, million USD>": lambda bill: f"{bill.upgrade_usd / _MILLION:,.2f}",
            "kW>": lambda bill: f"{bill.watt / _THOUSAND:,.1f}",
            "the dearest part": lambda bill: f"{bill.dearest.count:,.0f} × {bill.dearest.what}",
            "of it>": lambda bill: f"{100 * bill.dearest.usd / bill.usd:.0f} %" if bill.usd else "",
        },
    )
    print_columns(
        "The paper's figures",
        compared,
        {
            "where": lambda row: row.where,
            "networks": lambda row: f"{row.hydra.network} against {row.fat_tree.network}",
            "paper: cheaper by>": lambda row: f"{row.published_percent:g} %",
            "ours>": lambda row: f"{row.cheaper_percent:.1f} %",
            "HydRA would cost, for that>": lambda row: (
                f"{row.missing_usd / _MILLION:+,.2f} million USD"
            ),
        },
        empty="the price file names none",
    )


def _bill_document(bill: networks.Bill) -> JsonObject:
    return {
        "network": bill.network,
        "usd": bill.usd,
        "upgrade_usd": bill.upgrade_usd,
        "watt": bill.watt,
        "positions": [{**asdict(position), "usd": position.usd} for position in bill.positions],
    }


def _comparison_document(comparison: networks.Comparison) -> JsonObject:
    return {
        "where": comparison.where,
        "hydra": comparison.hydra.network,
        "fat_tree": comparison.fat_tree.network,
        "hydra_usd": comparison.hydra.usd,
        "fat_tree_usd": comparison.fat_tree.usd,
        "cheaper_percent": comparison.cheaper_percent,
        "published_cheaper_percent": comparison.published_percent,
        "missing_usd": comparison.missing_usd,
    }


def _pods(prices: PodPrices, plot: Path | None, *, as_json: bool) -> None:
    study = pods.study(prices)
    if plot is not None:
        drawn_by("price_plots").plot_pods(study, plot)
    best = study.cheapest(max(prices.destinations))
    published = prices.published
    figures = pods.held_against(study, best, published) if published else []
    if as_json:
        print_json(
            {
                "title": prices.title,
                "electrical": asdict(study.electrical),
                "helios": [asdict(row) for row in study.helios],
                "cheapest": asdict(best),
                "published": [asdict(figure) for figure in figures],
            }
        )
        return
    sizes = [kind.superlink for kind in prices.transceivers]
    by_kind = {(row.superlink, row.destinations): row for row in study.helios}
    print_table(
        f"{prices.title}: million USD, electrical {study.electrical.usd / _MILLION:,.1f}",
        ["pods sent to>", *[f"w = {size}>" for size in sizes]],
        [
            [
                count,
                *[f"{by_kind[size, count].network.usd / _MILLION:,.1f}" for size in sizes],
            ]
            for count in prices.destinations
        ],
    )
    print_columns(
        f"The paper's figures; ours at w = {best.superlink}, {best.destinations} pods sent to",
        figures,
        {
            "figure": lambda figure: figure.name,
            "paper>": lambda figure: figure.text(figure.published),
            "ours>": lambda figure: figure.text(figure.ours),
            "ours / paper>": lambda figure: f"{figure.ours / figure.published:.2f}",
        },
        empty="the price file names none",
    )
    if published:
        paper = " to ".join(map(str, published.best_superlinks))
        ours = sorted({study.cheapest(count).superlink for count in prices.destinations})
        click.echo(f"cheapest superlinks: {', '.join(map(str, ours))}; the paper's: {paper}")
