"""Reserve 20 Mb/s between two racks for as long as a transfer takes."""

import sys

from hydra_hybrid_network_client import ClientError, HydraClient, NotActive, Refused


def transfer() -> None:
    """Stand where your application moves its data."""


try:
    with HydraClient() as hydra, hydra.bandwidth("r3", "r4", 20, duration_s=600) as granted:
        planes = " then ".join(hop.plane for hop in granted.path.hops) if granted.path else "?"
        print(f"{granted.bandwidth_mbps:g} Mb/s from r3 to r4, by plane {planes}")
        transfer()
except Refused as no:
    sys.exit(f"{no}; instead: {no.problem.alternatives}")
except (NotActive, ClientError) as error:
    sys.exit(str(error))
print("given back")
