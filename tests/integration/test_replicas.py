"""A short form of `python -m benchmarks.replicas`: controllers that share a store take over."""

from __future__ import annotations

import time

import pytest
import yaml

from mininet_scenarios.replicas import replicas
from mininet_scenarios.stage.etcd_members import EtcdMembers
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.streams import paced_stream

from .live import DEMO_CONFIG, dropped_frames
from .warm import warm

pytestmark = [pytest.mark.ovs, pytest.mark.takes(45)]


def test_x(demo_testbed, tmp_path):
    stage = Stage(
        demo_testbed, demo_testbed.fabric, yaml.safe_load(DEMO_CONFIG.read_text()), tmp_path
    )

    with (
        EtcdMembers(tmp_path / "etcd", 1) as etcd,
        replicas(stage, etcd, {}, {}, lease_s=5, launch=warm().launch) as these,
    ):
        http = these.http
        url = {name: one.base_url for name, one in these.processes.items()}
        told = http.get(f"{url['b']}/readyz")
        print(told.status_code, told.text)
        print(http.get(f"{url['b']}/v1/replicas").text)
        body = {"src": "r1", "dst": "r2", "bandwidth_mbps": 20}
        answer = http.post(
            f"{url['a']}/v1/reservations", json=body, headers={"Prefer": "wait=20"}, timeout=30
        )
        print(answer.status_code, answer.text)
        rid = answer.json()["id"]
        before = dropped_frames(demo_testbed)
        with paced_stream(stage, "h11", "h21", pps=300, payload_bytes=200, count=100_000) as stream:
            for _turn in range(2):
                t = time.monotonic()
                these.kill("a")
                print(these.leader(), time.monotonic() - t)
                print(http.get(f"{url['b']}/v1/reservations/{rid}").json()["state"])
                t = time.monotonic()
                these.start("a")
                these.standing_by(1)
                print("standby again", time.monotonic() - t)
                t = time.monotonic()
                these.freeze("b")
                print(these.leader(), time.monotonic() - t)
                print(http.get(f"{url['a']}/v1/reservations/{rid}").json()["state"])
                print("exit", these.thaw("b"))
                these.start("b")
                these.standing_by(1)
            t = time.monotonic()
            print(http.post(f"{url['a']}/v1/handover", json={}).text)
            print(these.leader("a"), time.monotonic() - t)
            print("exit", these.await_end("a"))
            result = stream.stop()
        print(result, dropped_frames(demo_testbed) - before)
        for p in ():
            print(p.log.read_text()[-6000:])
