"""A controller killed between the two commands by which a Calient removes a cross-connect."""

from __future__ import annotations

import pytest
import yaml

from apps.process.configuration import load_configuration
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed import Testbed

from .live import CONFIGS, live, wait_until
from .test_crash import consistent

pytestmark = [pytest.mark.ovs, pytest.mark.takes(35)]

LOGIN_VARIABLE = "HYDRA_CALIENT_PASSWORD"
SLOW_S = 0.6
"""Delay of each answer, in which the controller is killed."""


@pytest.fixture(scope="module", params=["demo", "openflow-only"])
def fabric_file(request, tmp_path_factory):
    """A shipped fabric with Calient's optical switches."""
    document = yaml.safe_load((CONFIGS / f"{request.param}.yaml").read_text())
    for planes in document["planes"]:
        login = {"username": "admin", "password_env": LOGIN_VARIABLE}
        planes |= {"driver": "calient-tl1", "login": login}
    path = tmp_path_factory.mktemp("calient") / "fabric.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def testbed(machine, fabric_file):
    loaded = load_configuration(fabric_file)
    with Testbed(loaded.fabric, loaded.controller, fdb_age_s=loaded.policy.fdb_age_s) as testbed:
        yield testbed


def test_what_is_half_removed_carries_nothing_and_is_removed(
    testbed, fabric_file, tmp_path, monkeypatch
):
    monkeypatch.setenv(LOGIN_VARIABLE, "root")
    changes = {"planes": yaml.safe_load(fabric_file.read_text())["planes"]}
    policy = {"probe_interval_s": 0, "audit_interval_s": 0}
    with live(testbed, tmp_path, policy, changes, cold=True) as network:
        network.change("r1", "r2", "p1")
        assert network.planes_between("r1", "r2") == ("p1",)
        admin = testbed.ocs("p1").admin
        dark = network.dark_frames()
        with paced_stream(network.stage, "h11", "h21", pps=100, payload_bytes=200) as udp:
            admin.fault(FaultKind.SLOW, delay_s=SLOW_S)
            network.begin_change("r1", "r2", "p2")
            wait_until(lambda: admin.counters().cross_connects == 0)
            network.process.kill()
            admin.clear()
            network.process.start()
            wait_until(lambda: consistent(network))
            result = udp.stop()
        assert network.lost_but_in_queues(result) == 0
        assert network.dark_frames() == dark
        assert network.get("/v1/drift") == {"items": [], "silent": []}
        network.change("r1", "r2", "p1")
        assert network.planes_between("r1", "r2") == ("p1",), "its ports are free again"
        assert network.everyone_reaches_everyone()
