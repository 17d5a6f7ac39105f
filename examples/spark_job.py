"""Reserve bandwidth between a Spark application's hosts while they fetch a shuffle.

``tail --lines +1 --follow EVENT_LOG | spark_job.py 20`` (spark.eventLog.enabled, not compressed):
20 Mb/s for each two on different racks. Hosts have the names of the fabric's servers.
"""

import json
import os
import sys
from itertools import combinations

from apps.client import ClientError, HydraClient
from apps.rest.models import MatrixEntry

URL = os.environ.get("HYDRA_URL", "http://127.0.0.1:8080")
mbps = float(sys.argv[1])
host_of: dict[str, str] = {}
group_of: dict[int, str] = {}


def follow(hydra: HydraClient) -> None:
    """Reserve when a stage begins that fetches from others, and release when it is over."""
    rack_of = {server.name: server.rack for server in hydra.servers().servers}
    for event in map(json.loads, sys.stdin):
        stage = event.get("Stage Info", {})
        match event["Event"]:
            case "SparkListenerExecutorAdded":
                host_of[event["Executor ID"]] = event["Executor Info"]["Host"]
            case "SparkListenerExecutorRemoved":
                host_of.pop(event["Executor ID"], None)
            case "SparkListenerStageSubmitted" if stage["Parent IDs"]:
                pairs = combinations(sorted({*host_of.values()} & rack_of.keys()), 2)
                wanted = [
                    MatrixEntry(src=a, dst=b, bandwidth_mbps=mbps)
                    for a, b in pairs
                    if rack_of[a] != rack_of[b]
                ]
                if not wanted:
                    continue
                try:  # an hour at most, should this be killed
                    group = hydra.reserve_matrix(wanted, all_or_nothing=False, duration_s=3600)
                    group_of[stage["Stage ID"]] = group.id
                except ClientError as error:
                    print(f"no circuits for stage {stage['Stage ID']}: {error}", file=sys.stderr)
            case "SparkListenerStageCompleted" if stage["Stage ID"] in group_of:
                hydra.release_group(group_of.pop(stage["Stage ID"]))


try:
    with HydraClient(URL) as hydra:
        follow(hydra)
        for group in group_of.values():
            hydra.release_group(group)
except ClientError as error:
    sys.exit(str(error))
