"""Open vSwitch without a fabric: for tests and benchmarks of one bridge."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mininet_scenarios.testbed import ovs, sweep, sysctl
from mininet_scenarios.testbed.lock import testbed_lock
from mininet_scenarios.testbed.shell import require_root


@contextlib.contextmanager
def open_vswitch() -> Iterator[None]:
    """Start Open vSwitch, and keep it for this process alone, for the length of the block.

    Needs root. Names of the caller's bridges and interfaces must begin with
    :data:`~mininet_scenarios.testbed.sweep.PREFIX`; remaining names are removed at the end.
    """
    require_root()
    with testbed_lock():
        sweep.clean_up()
        try:
            sysctl.apply()
            ovs.ensure_running()
            sweep.delete_bridges()
            yield
        finally:
            sweep.clean_up()
