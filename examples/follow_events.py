"""Print what happens to reservations.

``follow_events.py ID...`` follows the named reservations, and ends once all of them have ended.
"""

import os
import sys

from hydra_hybrid_network_client import ClientError, EventKind, Gap, HydraClient
from hydra_hybrid_network_client import ReservationState as State

ENDS = {State.RELEASED, State.FAILED, State.CANCELLED, State.EXPIRED, State.PREEMPTED}


def follow(hydra: HydraClient, open_ids: set[str]) -> None:
    named = sorted(open_ids)
    # From 0 on: all kept events come first. Whoever starts again gives the last id that was seen.
    last_seen = os.environ.get("LAST_EVENT_ID") or ("0" if named else None)
    for number, event in hydra.events(EventKind.RESERVATION, last_id=last_seen, reservations=named):
        if isinstance(event, Gap):
            # The server no longer has all events after the last id.
            reservations = [
                hydra.reservation(reservation_id) for reservation_id in sorted(open_ids)
            ]
            for now in reservations:
                print(now.id, now.state, flush=True)
        else:
            print(number, event.model_dump_json(), flush=True)
            reservations = [event.reservation] if event.reservation else []
        open_ids -= {after.id for after in reservations if after.state in ENDS}
        if named and not open_ids:
            return


try:
    with HydraClient() as client:
        follow(client, set(sys.argv[1:]))
except ClientError as error:
    sys.exit(str(error))
