"""Print what happens to reservations; ``follow_events.py 3`` ends after three events."""

import os
import sys
from itertools import islice

from hydra_hybrid_network_client import EventKind, Gap, HydraClient

count = int(sys.argv[1]) if len(sys.argv) > 1 else None

with HydraClient() as hydra:
    # Whoever starts again gives the last id that was seen, and misses nothing.
    last_seen = os.environ.get("LAST_EVENT_ID")
    for number, event in islice(hydra.events(EventKind.RESERVATION, last_id=last_seen), count):
        if isinstance(event, Gap):
            print("events were missed: read the reservations anew", flush=True)
        else:
            print(number, event.model_dump_json(), flush=True)
