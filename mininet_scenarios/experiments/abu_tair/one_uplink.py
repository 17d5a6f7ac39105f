"""A rack's transfers over one uplink, at the paper's own rates and sizes, without a controller.

The uplink is a veth pair with Mininet's link of 1 Gb/s: HTB, and a queue of 1000 frames. So it
shows whether scaled rates and times make the difference to the paper's mice.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.stage.stage import CONGESTION, ScenarioError
from mininet_scenarios.stage.transfers import Transferred, Wish
from mininet_scenarios.testbed.shell import run
from mininet_scenarios.workloads.mesh import Endpoint
from mininet_scenarios.workloads.reports import read_report, write_moment
from mininet_scenarios.workloads.transfers import Done, Order

_ENDS: Final = {"hyuA": "10.77.0.1", "hyuB": "10.77.0.2"}
_QUEUE_FRAMES: Final = 1000
_PORT: Final = 5600
_POLL_S: Final = 0.05
_MODULE: Final = "mininet_scenarios.workloads.transfers"


def play(wishes: Sequence[Wish], mbps: float, work_dir: Path) -> tuple[Transferred, ...]:
    """Make all transfers at once over an uplink of ``mbps``; raises ScenarioError."""
    work_dir.mkdir(parents=True)
    (sender, _), (receiver, address) = _ENDS.items()
    to = Endpoint(address, _PORT)
    orders, report = work_dir / "orders.json", work_dir / "report.json"
    orders.write_text(json.dumps([Order(to, wish.size_bytes).to_json() for wish in wishes]))
    began, ready, begin = (work_dir / name for name in ("receives", "ready", "begin"))
    with _uplink(mbps), ExitStack() as stack:
        options = ["receive", "--bind", address, "--port", str(_PORT), "--ready", str(began)]
        receives = stack.enter_context(_inside(receiver, options))
        _wait_for(began, receives)
        options = ["send", "--orders", str(orders), "--report", str(report)]
        options += ["--congestion", CONGESTION, "--ready", str(ready), "--begin", str(begin)]
        sends = stack.enter_context(_inside(sender, options))
        _wait_for(ready, sends)
        write_moment(begin, time.monotonic())
        if sends.wait():
            raise ScenarioError("the transfers over one uplink have failed")
    done = [Done(**transfer) for transfer in read_report(report)["transfers"]]
    first_s = min(each.started_s for each in done)
    return tuple(
        Transferred(
            wish.source,
            wish.destination,
            wish.size_bytes,
            wish.kind,
            each.started_s - first_s,
            each.finished_s - first_s,
        )
        for wish, each in zip(wishes, done, strict=True)
    )


@contextmanager
def _uplink(mbps: float) -> Iterator[None]:
    """Two network namespaces, joined by a link of ``mbps``."""
    try:
        for name in _ENDS:
            run(["ip", "netns", "add", name])
        (a, _), (b, _) = _ENDS.items()
        run(["ip", "link", "add", a, "netns", a, "type", "veth", "peer", "name", b, "netns", b])
        for name, address in _ENDS.items():
            run(["ip", "-n", name, "address", "add", f"{address}/24", "dev", name])
            run(["ip", "-n", name, "link", "set", name, "up"])
            tc = ["tc", "-n", name]
            run([*tc, "qdisc", "add", "dev", name, "root", "handle", "5:", "htb", "default", "1"])
            rate = ["htb", "rate", f"{mbps:g}Mbit", "burst", "15k"]
            run([*tc, "class", "add", "dev", name, "parent", "5:", "classid", "5:1", *rate])
            queue = ["pfifo", "limit", str(_QUEUE_FRAMES)]
            run([*tc, "qdisc", "add", "dev", name, "parent", "5:1", *queue])
        yield
    finally:
        for name in _ENDS:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextmanager
def _inside(name: str, options: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    command = ["ip", "netns", "exec", name, sys.executable, "-m", _MODULE, *options]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.terminate()


def _wait_for(file: Path, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not file.exists():
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise ScenarioError(f"the transfers over one uplink made no {file.name}")
        time.sleep(_POLL_S)
