"""Reserve 20 Mb/s between two racks for as long as a transfer takes."""

import os
import sys

from apps.client import ClientError, HydraClient, NotActive, Refused

URL = os.environ.get("HYDRA_URL", "http://127.0.0.1:8080")


def transfer() -> None:
    """Stand where your application moves its data."""


try:
    with HydraClient(URL) as hydra, hydra.bandwidth("r3", "r4", 20, duration_s=600) as granted:
        planes = " then ".join(hop.plane for hop in granted.path.hops) if granted.path else "?"
        print(f"{granted.bandwidth_mbps:g} Mb/s from r3 to r4, by plane {planes}")
        transfer()
except Refused as no:
    sys.exit(f"{no}; instead: {no.problem.alternatives}")
except (NotActive, ClientError) as error:
    sys.exit(str(error))
print("given back")
