"""Reserve bandwidth between a Spark application's hosts while they fetch a shuffle.

``tail --lines +1 --follow --pid=SPARK EVENT_LOG | spark_job.py 20``: 20 Mb/s for each two on
different racks, until the driver's process SPARK ends.
Spark needs ``spark.eventLog.enabled=true``, ``spark.eventLog.compress=false`` and
``spark.eventLog.rolling.enabled=false``. Hosts have the names of the fabric's servers.
"""

import sys

from apps.jobs.spark import shuffles
from hydra.errors import HydraError
from hydra_hybrid_network_client import ClientError, HydraClient

mbps, reserved = float(sys.argv[1]), dict[int, str]()

try:
    with HydraClient() as hydra:
        for shuffle in shuffles(sys.stdin.buffer):
            try:
                if shuffle.begins:  # an hour at most, should this be killed
                    if group := hydra.reserve_between(shuffle.hosts, mbps, duration_s=3600):
                        reserved[shuffle.stage] = group.id
                elif shuffle.stage in reserved:
                    hydra.release_group(reserved.pop(shuffle.stage))
            except ClientError as error:
                print(f"stage {shuffle.stage}: {error}", file=sys.stderr)
except (ClientError, HydraError) as error:
    sys.exit(f"{error}")
