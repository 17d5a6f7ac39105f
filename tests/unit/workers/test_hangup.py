"""A worker whose terminal is closed, or that gets the reload signal of controllers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from mininet_scenarios.emulators.ports import free_port
from tests.integration.live import DEMO_CONFIG
from tests.unit.workers.test_links import LONG_S


def test_a_worker_outlives_sighup_and_ends_by_sigterm(tmp_path):
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    document["controller"]["workers"] = {"listen": f"127.0.0.1:{free_port()}"}
    config, log = tmp_path / "fabric.yaml", tmp_path / "log"
    config.write_text(yaml.safe_dump(document))
    command = [Path(sys.executable).with_name("hydra"), "worker", "--config", config]
    command += ["--name", "w", "--listen", f"127.0.0.1:{free_port()}"]
    with log.open("w") as output, subprocess.Popen(command, stderr=output) as process:
        try:
            until_s = time.monotonic() + 2 * LONG_S
            while "worker w: OpenFlow on" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until_s
                time.sleep(0.05)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert process.wait(2 * LONG_S) == 0, log.read_text()
        finally:
            process.kill()
    assert "stopped; the switches go on forwarding" in log.read_text()
