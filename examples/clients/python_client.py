"""Reserve with the client of openapi-python-client: URL, start in Unix seconds."""

import sys

from hydra_client import Client
from hydra_client.api.reservations import create_reservation, get_reservation
from hydra_client.models import ReservationBody

client, start = Client(base_url=sys.argv[1]), float(sys.argv[2])
body = ReservationBody(src="r1", dst="r2", bandwidth_mbps=1, start_unix_s=start, duration_s=60)
made = create_reservation.sync(client=client, body=body)
read = get_reservation.sync(made.id, client=client)
print(f"{made.state.value} {read.start_unix_s:.6f}")
