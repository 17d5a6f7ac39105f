"""Print what happens to reservations; with ids as arguments, until all of these have ended."""

import sys

from hydra_hybrid_network_client import ClientError, EventKind, Gap, HydraClient
from hydra_hybrid_network_client import ReservationState as State

ENDS = {State.RELEASED, State.FAILED, State.CANCELLED, State.EXPIRED, State.PREEMPTED}
named = set(sys.argv[1:])
left = set(named)
try:
    with HydraClient() as hydra:
        # After event 0, a gap comes first, then all kept events. Give the last id that was seen
        # instead, and nothing is missed while your program is away.
        for number, event in hydra.events(EventKind.RESERVATION, last_id="0", reservations=named):
            if isinstance(event, Gap):  # events are missing: read the reservations
                now = [hydra.reservation(reservation_id) for reservation_id in sorted(left)]
            else:
                now = [after for after in [event.reservation] if after]
            for after in now:
                print(number, after.id, after.state, after.reason, flush=True)
            left -= {after.id for after in now if after.state in ENDS}
            if named and not left:
                break
except ClientError as error:
    sys.exit(str(error))
