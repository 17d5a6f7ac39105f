"""Which worker owns which shard of the racks: evenly, and moving as few as that allows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hydra.model import DatapathId, Fabric


def assigned(shards: int, owners: Mapping[int, str], workers: Collection[str]) -> dict[int, str]:
    """Owner of each shard, given who owned it until now; empty without workers.

    No worker owns two more than another one does. Shards whose owner is gone go to those who have
    fewest; then those who have most give to those who have fewest.
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
    """Shard of each switch that speaks OpenFlow: that of its rack."""
    found = {datapath: rack.id % shards for datapath, rack in fabric.rack_by_tor_datapath.items()}
    for server in fabric.servers:
        if server.vswitch is not None:
            found[server.vswitch.datapath_id] = server.rack % shards
    return found
