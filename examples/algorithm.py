"""An algorithm of your own beside one of ours: a circuit for the greatest demands first."""

import sys

from apps.offline.study import Limits, Study, plain_fabric
from topology.algorithms import Entry, entry
from topology.direct import Joins, direct
from topology.synthetic import synthetic_demand


@direct
def greedy(joins: Joins) -> None:
    """Join each two racks, the greatest demand first, on the first plane with ports for both."""
    for a, b in joins.pairs():
        for plane in joins.planes(a, b)[:1]:
            joins.join(a, b, plane)


demand = synthetic_demand("gravity", 16, seed=7, busiest_mbps=20_000)
study = Study(plain_fabric(16, 4, rate_mbps=10_000), demand, Limits(max_hops=1))
own = Entry(greedy, "a circuit for the greatest demands first", "this file")
for name, chosen in {"greedy": own, "edmonds": entry("edmonds"), "static": entry("static")}.items():
    outcome = study.run_entry(name, chosen)
    if outcome.problems:
        sys.exit(f"{name}: {outcome.problems[0]}")
    print(f"{name}: {outcome.plan.served_share:.0%} of the demand on circuits")
