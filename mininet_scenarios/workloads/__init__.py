"""Traffic to run inside the hosts of the testbed, each with a machine-readable report.

Every program here runs in a host's namespace (``python -m …``) and writes one JSON report, also
after SIGTERM. Times are seconds of ``CLOCK_MONOTONIC``, shared by all namespaces of a machine, so
that reports are comparable.
"""
