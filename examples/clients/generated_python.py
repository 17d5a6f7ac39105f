"""Reserve with the Python client of openapi-generator: URL, start in Unix seconds."""

import sys

from openapi_client import ApiClient, Configuration, ReservationBody, ReservationsApi

url, start = sys.argv[1], float(sys.argv[2])
with ApiClient(Configuration(host=url)) as client:
    api = ReservationsApi(client)
    body = ReservationBody(src="r1", dst="r2", bandwidth_mbps=1, start_unix_s=start, duration_s=60)
    made = api.create_reservation(body)
    print(f"{made.state.value} {api.get_reservation(made.id).start_unix_s:.6f}")
