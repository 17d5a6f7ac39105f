"""OpenFlow over TLS, certificates by `hydra ca`, on real switches."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from apps.openflow.package import OS_KEN
from mininet_scenarios import plain_http
from mininet_scenarios.stage.controller_process import ALL_THERE, ControllerProcess
from mininet_scenarios.testbed import ovs
from tests.waiting import PATIENCE_S

from .certificates import authority, connected, of_openflow, use_certificates, vsctl
from .live import DEMO_CONFIG, wait_until
from .warm import warm

pytestmark = [
    pytest.mark.ovs,
    pytest.mark.takes(40),
    # The shipped host serves the connections of both packages: unit tests cover both.
    pytest.mark.parametrize("package", [OS_KEN], scope="module"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Path:
    return authority(tmp_path_factory.mktemp("ca") / "lab")


@pytest.fixture(scope="module")
def process(demo_testbed, lab, tmp_path_factory, package):
    """A controller and all bridges of the demo, with mutual certificates."""
    directory = tmp_path_factory.mktemp("tls")
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    document["controller"] |= {
        "journal": str(directory / "journal.db"),
        **of_openflow(lab),
    }
    config = directory / "demo.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    use_certificates(lab)
    old = {name: vsctl("get-controller", name).strip() for name in ovs.bridges()}
    steered = {name: target for name, target in old.items() if target}
    for name, target in steered.items():
        vsctl("set-controller", name, target.replace("tcp:", "ssl:"))
    try:
        with ControllerProcess(config, launch=warm(package).launch) as running:
            yield running
    finally:
        for name, target in steered.items():
            vsctl("set-controller", name, target)
        vsctl("del-ssl")


def test_all_switches_work_over_tls(process):
    address = f"{process.settings.openflow_host}:{process.settings.openflow_port}"
    wait_until(lambda: connected() == {f"ssl:{address}"})  # its report comes late


def test_a_switch_of_another_authority_is_not_let_in(process, lab, tmp_path):
    target = vsctl("get-controller", "hyv-h11").strip()
    try:
        use_certificates(authority(tmp_path / "other"))
        vsctl("del-controller", "hyv-h11")
        vsctl("set-controller", "hyv-h11", target)
        wait_until(lambda: "is not let in as a switch" in process.log.read_text())
        assert plain_http.get(process.base_url + ALL_THERE, timeout=PATIENCE_S).status_code == 503
    finally:
        use_certificates(lab)
    wait_until(
        lambda: plain_http.get(process.base_url + ALL_THERE, timeout=PATIENCE_S).status_code == 200
    )


def test_nobody_is_let_in_without_a_certificate(process, lab):
    address = process.settings.openflow_host, process.settings.openflow_port
    with socket.create_connection(address, timeout=PATIENCE_S) as plain:
        plain.sendall(b"\x04\x00\x00\x08\x00\x00\x00\x01")
        with suppress(ConnectionResetError):
            assert plain.recv(100)[:1] != b"\x04", "an OpenFlow HELLO"
    trusting = ssl.create_default_context(cafile=str(lab / "ca.pem"))
    raw = socket.create_connection(address, timeout=PATIENCE_S)
    with trusting.wrap_socket(raw, server_hostname="127.0.0.1") as nobody, suppress(OSError):
        assert nobody.recv(100) == b""
