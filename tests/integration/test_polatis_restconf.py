"""The emulated Polatis on RESTCONF: expectations of public clients of the real switch, and
modules.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from drivers.codecs import polatis_restconf as codec
from hydra.model import CrossConnect
from mininet_scenarios import plain_http
from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.emulators.netconfd import YANG
from tests.conformance.devices import emulated

LIST = "/data/optical-switch:cross-connects"
DEVICE = EMULATORS["polatis-restconf"]


@pytest.fixture(scope="module")
def bench():
    with emulated("polatis-restconf")() as bench:
        yield bench


@pytest.fixture
def client(bench) -> Iterator[httpx.Client]:
    base = f"http://{bench.plane.address}/api"
    login = (DEVICE.user, DEVICE.password)
    with plain_http.client(base_url=base, auth=login) as client:
        client.delete(LIST).raise_for_status()
        yield client


def test_the_answers_that_public_clients_know(client):
    pair = {"pair": [{"ingress": 1, "egress": 17}]}
    assert client.get(LIST).status_code == 204
    assert client.get(LIST, auth=("admin", "wrong")).status_code == 401
    assert client.post(LIST, json=pair).status_code == 201
    assert client.get(LIST).json() == {"optical-switch:cross-connects": pair}
    taken = client.post(LIST, json={"pair": [{"ingress": 2, "egress": 17}]})
    assert taken.status_code == 409
    assert client.put(LIST, json={"optical-switch:cross-connects": pair}).status_code == 204
    assert client.delete(f"{LIST}/pair=1").status_code == 204
    assert client.delete(f"{LIST}/pair=1").status_code == 404


def test_a_request_for_another_state_is_refused(client):
    tag = client.get(LIST).headers["etag"]
    pair = {"pair": [{"ingress": 1, "egress": 17}]}
    assert client.post(LIST, json=pair, headers={"If-Match": tag}).status_code == 201
    late = client.delete(LIST, headers={"If-Match": tag})
    assert late.status_code == 412
    assert client.get(LIST).status_code == 200


def test_what_driver_and_emulator_say_is_of_the_modules(bench, client, tmp_path):
    driver = bench.driver()
    driver.change([], [CrossConnect(1, 17), CrossConnect(2, 18)])
    driver.close()
    documents: dict[str, object] = {}
    for path in (codec.CROSS_CONNECTS, codec.PRODUCT, codec.PORTS, codec.POWER):
        documents |= client.get(path).raise_for_status().json()
    start = client.get(codec.START).raise_for_status().json()
    documents["optical-switch:system-config"] = start
    validate(tmp_path, documents)
    validate(tmp_path, json.loads(codec.pairs_text([(3, 19), (4, 20)])))
    with pytest.raises(subprocess.CalledProcessError):
        validate(tmp_path, json.loads(codec.pairs_text([(3, 19), (4, 19)])))


def validate(folder, document: object) -> None:
    """Validated by libyang, with HydRA's modules."""
    file = folder / "document.json"
    file.write_text(json.dumps(document))
    modules = [str(YANG / f"{name}.yang") for name in ("optical-switch", "polatis-switch")]
    command = ["yanglint", "-p", str(YANG), "-f", "json", "-t", "data", *modules, str(file)]
    subprocess.run(command, check=True, capture_output=True)
