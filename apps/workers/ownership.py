"""Owners of the racks' shards among workers: evenly, with the fewest moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hydra.model import DatapathId, Fabric


def assigned(shards: int, owners: Mapping[int, str], workers: Collection[str]) -> dict[int, str]:
    """Owner of each shard, given the owners until now; empty without workers.

    The numbers of shards of two workers differ by at most 1. Shards of absent owners go to the
    workers with fewest shards; then the workers with most shards give to the workers with fewest.
    """
    if not workers:
        return {}
    held: dict[str, list[int]] = {name: [] for name in sorted(workers)}
    free = []
    for shard in range(shards):
        owner = owners.get(shard)
        if owner in held:
            held[owner].append(shard)
        else:
            free.append(shard)
    for shard in free:
        min(held.values(), key=len).append(shard)
    while True:
        most, fewest = max(held.values(), key=len), min(held.values(), key=len)
        if len(most) - len(fewest) < 2:
            break
        fewest.append(most.pop())
    return {shard: name for name, some in held.items() for shard in some}


def shard_of_switches(fabric: Fabric, shards: int) -> dict[DatapathId, int]:
    """Shard of each OpenFlow switch: the shard of the switch's rack."""
    found = {datapath: rack.id % shards for datapath, rack in fabric.rack_by_tor_datapath.items()}
    for server in fabric.servers:
        if server.vswitch is not None:
            found[server.vswitch.datapath_id] = server.rack % shards
    return found
