"""Traffic to run inside the hosts of the testbed, each with a machine-readable report.

Every program here runs on its own in a host's namespace (``python -m …``) and writes one JSON
report, also when it is told to stop by SIGTERM. Times are seconds of ``CLOCK_MONOTONIC``, which all
namespaces of one machine share, so that reports can be laid beside each other.
"""
