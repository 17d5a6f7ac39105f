"""Reserve 40 Mb/s between two racks for an hour from 18:00, wait for them, and release them."""

import sys
from datetime import datetime, timedelta

from hydra_hybrid_network_client import ClientError, HydraClient
from hydra_hybrid_network_client import ReservationState as State

start = datetime.now().replace(hour=18, minute=0, second=0, microsecond=0)
if start < datetime.now():
    start += timedelta(days=1)
try:
    with HydraClient() as hydra:
        reservation = hydra.reserve("r1", "r3", 40, start_unix_s=start.timestamp(), duration_s=3600)
        print(reservation.id, reservation.state, f"from {start:%H:%M}", flush=True)
        while reservation.state in {State.SCHEDULED, State.ACTIVATING}:
            reservation = hydra.reservation(reservation.id, wait=State.ACTIVE)  # a minute at most
        print(reservation.id, reservation.state, reservation.reason, flush=True)
        # Your application moves its data here, if the state is active.
        hydra.release(reservation.id)
except ClientError as error:
    sys.exit(str(error))
