"""Polatis over RESTCONF: exact documents, and a switch with simultaneous other clients."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from drivers.codecs import polatis_restconf as codec
from drivers.codecs.yang_json import YangJsonError, parse_refusal
from drivers.optical.polatis_restconf import PolatisRestconf
from drivers.registry import OPTICAL, optical_switch
from hydra.errors import DeviceError, OutcomeUnknown, ProtocolError
from hydra.model import CrossConnect, Login, Plane, PlaneId
from hydra.roles import DeviceIdentity, PortState
from tests.waiting import PATIENCE_S, SHORT_S

PRODUCT = {
    "manufacturer": "Polatis",
    "serial-number": "2000",
    "model-name": "N-VST-16x16-LA1-DMHNV-701",
    "software-version": "6.7.3.9",
}
START = "optical-switch:system-config/polatis-switch:startup-mode"


WHY = {"ietf-restconf:errors": {"error": [{"error-tag": "x", "error-message": "so it is"}]}}


# --- the codec ----------------------------------------------------------------------------------


def test_pairs_with_and_without_brackets_and_none_at_all():
    listed = b'{"optical-switch:cross-connects": {"pair": [{"ingress": 1, "egress": 513}]}}'
    alone = b'{"cross-connects": {"pair": {"ingress": "1", "egress": 513}}}'
    assert codec.parse_pairs(listed) == codec.parse_pairs(alone) == ((1, 513),)
    assert codec.parse_pairs(b"") == ()
    assert codec.parse_pairs(codec.pairs_text([(1, 17), (2, 18)])) == ((1, 17), (2, 18))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"<pair/>", "not JSON"),
        (b"{}", "no cross-connects"),
        (b'{"cross-connects": {"pair": [1]}}', "not an object"),
        (b'{"cross-connects": {"pair": [{"ingress": 1}]}}', "egress is no port number: 'None'"),
        (b'{"cross-connects": {"pair": [{"ingress": true, "egress": 2}]}}', "ingress is no port"),
        (b'{"cross-connects": {"pair": [{"ingress": 1.0, "egress": 2}]}}', "ingress is no port"),
        (
            b'{"cross-connects": {"pair": [{"ingress": 1, "egress": 2}, '
            b'{"ingress": 1, "egress": 3}]}}',
            "listed twice",
        ),
    ],
)
def test_what_is_no_list_of_pairs(text, told):
    with pytest.raises(YangJsonError, match=told):
        codec.parse_pairs(text)


def test_states_of_both_models():
    new = b'{"optical-switch:port-config": {"port": [{"port-id": 3, "status": "DISABLED"}]}}'
    old = b'{"optical-switch:ports": {"port": [{"port-id": 3, "port-state": "PC_DISABLED"}]}}'
    assert codec.parse_port_states(new) == {3: "DISABLED"}
    assert codec.parse_port_states(old) == {3: "PC_DISABLED"}


def test_power_is_text_or_a_number():
    text = (
        b'{"opm-power": {"port": [{"port-id": 9, "power": "-3.50"}, {"port-id": 10}, '
        b'{"port-id": 11, "power": ""}]}}'
    )
    assert codec.parse_powers(text) == {9: -3.5}
    assert codec.parse_powers(text.replace(b'"-3.50"', b"-3.5")) == {9: -3.5}
    for bad in (b'"LOW"', b"1e999", b"true", b"[]", b'"nan"'):
        with pytest.raises(YangJsonError, match="not a power in dBm"):
            codec.parse_powers(text.replace(b'"-3.50"', bad))


def test_attenuators_and_alarm_thresholds():
    voa = b'{"voa": {"port": [{"port-id": 9, "atten-mode": "ABS", "atten-level": "-3.5"}, '
    voa += b'{"port-id": 10}]}}'
    assert codec.parse_attenuators(voa) == {
        9: codec.AttenuatorEntry("ABS", -3.5),
        10: codec.AttenuatorEntry("", None),
    }
    alarms = b'{"opm-alarm-config": {"port": [{"port-id": 9, "mode": "SINGLE", '
    alarms += b'"signal-low-threshold": -30, "signal-high-threshold": ""}, {"port-id": 10}]}}'
    assert codec.parse_thresholds(alarms) == {
        9: codec.ThresholdEntry("SINGLE", -30.0, None),
        10: codec.ThresholdEntry("", None, None),
    }


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"error-tag": "in-use", "error-message": "so it is"}, "so it is"),
        ({"error-tag": "in-use"}, "in-use"),
        ({}, ""),
    ],
)
def test_a_refusal_is_told_by_its_message_or_its_tag(error, told):
    text = json.dumps({"ietf-restconf:errors": {"error": [error]}})
    assert parse_refusal(text.encode()) == told


# --- the driver ---------------------------------------------------------------------------------


class Switch(ThreadingHTTPServer):
    """A minimal switch on a real socket; ``meanwhile``: actions of other clients."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pairs = {1: 17}
        self.tag: int | None = 1
        self.tells_new_tags = True
        """False: answers to changes bear no ETag."""
        self.requests: list[str] = []
        self.refused: dict[str, int] = {}
        """Status of the answers to a method's requests."""
        self.why: object = None
        """The document in refusals; None: the document of a gateway in between."""
        self.obeys = False
        """True if the switch carries out the request, for any answer."""
        self.documents: dict[str, object] = {
            "optical-switch:product-information": {"optical-switch:product-information": PRODUCT}
        }
        self.meanwhile: list[Callable[[], None]] = []
        """Called one by one, after the list has been read."""
        self.restored = 0
        """Number of times that another client repeats a removed cross-connect."""

    def aim(self, ingress: int, egress: int | None) -> None:
        if egress is None:
            del self.pairs[ingress]
        else:
            self.pairs[ingress] = egress
        if self.tag is not None:
            self.tag += 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Switch

    def do_GET(self) -> None:
        path = self.path.removeprefix("/api/data/")
        if (status := self.server.refused.get("GET")) is not None:
            self.answer(status)
        elif path == "optical-switch:cross-connects":
            pairs = [{"ingress": a, "egress": b} for a, b in self.server.pairs.items()]
            self.answer(200, {path: {"pair": pairs}} if pairs else None)
            if self.server.meanwhile:
                self.server.meanwhile.pop(0)()
        elif path in self.server.documents:
            self.answer(200, self.server.documents[path])
        else:
            self.answer(404)

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.obeys:  # before the answer: a client with the answer may read at once
            self.aim_as(body)
        if self.may():
            self.aim_as(body)
            self.answer(204)

    def aim_as(self, body: Any) -> None:
        for pair in body["optical-switch:cross-connects"]["pair"]:
            self.server.aim(pair["ingress"], pair["egress"])

    def do_DELETE(self) -> None:
        if self.may():
            ingress = int(self.path.rpartition("=")[2])
            egress = self.server.pairs.get(ingress)
            self.server.aim(ingress, None)
            self.answer(204)
            if self.server.restored:
                self.server.restored -= 1
                self.server.aim(ingress, egress)

    def may(self) -> bool:
        self.server.requests.append(f"{self.command} {self.path.rpartition(':')[2]}")
        if (status := self.server.refused.get(self.command)) is not None:
            self.answer(status, self.server.why)
            return False
        given = self.headers["If-Match"]
        if self.server.tag is not None and given != f"1516-{self.server.tag}":
            self.answer(412)
            return False
        return True

    def answer(self, status: int, document: object = None) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status if body or status != 200 else 204)
        if self.server.tag is not None and (self.server.tells_new_tags or self.command == "GET"):
            self.send_header("ETag", f"1516-{self.server.tag}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None: ...


@pytest.fixture
def device() -> Iterator[Switch]:
    with Switch() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def plane_at(device: Switch, **options: object) -> Plane:
    address = f"127.0.0.1:{device.server_address[1]}"
    login = Login("admin", password_env="HYDRA_TEST_SECRET")
    return Plane(PlaneId(0), "p1", "polatis-restconf", address, 16, 25.0, 1.0, login, options)


@pytest.fixture
def switch(device, monkeypatch) -> Iterator[PolatisRestconf]:
    monkeypatch.setenv("HYDRA_TEST_SECRET", "secret")
    driver = optical_switch(plane_at(device), PATIENCE_S)
    yield driver
    driver.close()


def test_who_and_how_large(switch):
    assert switch.identity() == DeviceIdentity("Polatis", PRODUCT["model-name"], "2000", "6.7.3.9")
    assert switch.size() == (16, 16)


def test_a_move_and_a_new_connection_are_one_request_and_a_removal_comes_before(device, switch):
    device.pairs = {1: 17, 2: 18, 3: 19}
    switch.change(
        [CrossConnect(1, 17), CrossConnect(2, 18)], [CrossConnect(1, 18), CrossConnect(4, 20)]
    )
    assert device.requests == ["DELETE cross-connects/pair=2", "PATCH cross-connects"]
    assert device.pairs == {1: 18, 3: 19, 4: 20}


def test_a_switch_without_etags(device, switch):
    device.tag = None
    switch.change([CrossConnect(1, 17)], [CrossConnect(2, 17)])
    assert device.pairs == {2: 17}


def test_a_switch_that_tells_no_etag_of_what_it_has_changed(device, monkeypatch):
    """Each removal needs a new read of the list, which takes longer than a command may."""
    monkeypatch.setenv("HYDRA_TEST_SECRET", "secret")
    device.tells_new_tags = False
    device.pairs = {ingress: ingress + 16 for ingress in range(1, 11)}
    device.meanwhile = [lambda: time.sleep(SHORT_S / 6)] * 100
    driver = optical_switch(plane_at(device), SHORT_S)
    driver.change([CrossConnect(*pair) for pair in device.pairs.items()], [CrossConnect(11, 27)])
    assert device.pairs == {11: 27}
    driver.close()


def test_somebody_else_was_quicker_elsewhere(device, switch):
    device.meanwhile.append(lambda: device.aim(5, 21))
    switch.change([], [CrossConnect(2, 18)])
    assert device.requests == ["PATCH cross-connects"] * 2
    assert device.pairs == {1: 17, 2: 18, 5: 21}


def test_somebody_else_has_just_taken_the_port(device, switch):
    device.meanwhile.append(lambda: device.aim(2, 21))
    with pytest.raises(DeviceError, match="port 2 is connected to 21") as caught:
        switch.change([], [CrossConnect(2, 18)])
    assert not isinstance(caught.value, OutcomeUnknown)
    assert device.pairs == {1: 17, 2: 21}


def test_somebody_else_takes_the_port_in_the_middle_of_a_change(device, switch):
    """Removed cross-connects stay removed: the outcome is unknown until the list is read."""
    device.meanwhile.append(lambda: device.pairs.update({3: 19}))
    device.refused["PATCH"] = 412
    with pytest.raises(OutcomeUnknown, match="port 3 is connected to 19"):
        switch.change([CrossConnect(1, 17)], [CrossConnect(3, 18)])
    assert device.pairs == {3: 19}


def test_others_that_never_rest(device, monkeypatch):
    monkeypatch.setenv("HYDRA_TEST_SECRET", "secret")
    driver = optical_switch(plane_at(device), SHORT_S)
    device.meanwhile = [lambda: device.aim(5, 21)] * 10_000
    with pytest.raises(DeviceError, match="stop the other clients"):
        driver.change([], [CrossConnect(2, 18)])
    assert device.pairs == {1: 17, 5: 21}
    driver.close()


def test_somebody_who_makes_anew_what_is_removed_is_not_fought_for_ever(device, monkeypatch):
    monkeypatch.setenv("HYDRA_TEST_SECRET", "secret")
    driver = optical_switch(plane_at(device), SHORT_S)
    device.restored = 200
    with pytest.raises(OutcomeUnknown, match="stop the other clients"):
        driver.change([CrossConnect(1, 17)], [CrossConnect(2, 18)])
    assert device.pairs == {1: 17}
    assert device.restored > 0
    driver.close()


def test_a_refusal_after_something_was_taken_down_says_what_is_not_as_asked(device, switch):
    device.refused["PATCH"] = 409
    device.why = WHY
    with pytest.raises(DeviceError, match=r"HTTP 409.*not connected: 2 to 18") as caught:
        switch.change([CrossConnect(1, 17)], [CrossConnect(2, 18)])
    assert not isinstance(caught.value, OutcomeUnknown)
    assert device.pairs == {}


@pytest.mark.parametrize("status", [302, 400, 401, 403, 405, 407, 409, 413, 429, 500, 502, 503])
def test_an_answer_of_something_between_says_nothing_of_the_change(device, switch, status):
    """A gateway that has passed the request on, and answers itself."""
    device.refused["PATCH"] = status
    device.obeys = True
    with pytest.raises(OutcomeUnknown, match=f"a change was sent and not confirmed: HTTP {status}"):
        switch.change([], [CrossConnect(2, 18)])
    assert CrossConnect(2, 18) in switch.cross_connects()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413])
def test_what_the_switch_gives_its_reason_for_is_a_refusal(device, switch, status):
    device.refused["PATCH"] = status
    device.why = WHY
    with pytest.raises(DeviceError, match=f"HTTP {status}: so it is") as caught:
        switch.change([], [CrossConnect(2, 18)])
    assert not isinstance(caught.value, OutcomeUnknown)


def test_an_answer_of_the_server_that_says_nothing_of_the_change(device, switch):
    device.refused["PATCH"] = 500
    with pytest.raises(OutcomeUnknown, match="HTTP 500"):
        switch.change([], [CrossConnect(2, 18)])


def test_what_was_deleted_meanwhile_is_gone(device, switch):
    device.refused["DELETE"] = 404
    with pytest.raises(DeviceError, match="still connected: 1 to 17"):
        switch.change([CrossConnect(1, 17)], [])


def test_a_switch_without_power_meters(device, switch):
    assert switch.power_dbm([1, 17]) == {1: None, 17: None}


def test_states_where_neither_model_knows_them(device, switch):
    with pytest.raises(DeviceError, match="HTTP 404"):
        switch.port_states([1])
    device.documents["optical-switch:ports"] = {
        "optical-switch:ports": {"port": {"port-id": 1, "port-state": "PC_ENABLED"}}
    }
    assert switch.port_states([1, 2]) == {1: PortState.ENABLED, 2: PortState.UNKNOWN}


@pytest.mark.parametrize(("mode", "warned"), [("VOLATILE", True), ("preserve", False), ("", False)])
def test_a_switch_that_starts_dark_is_warned_of(device, switch, caplog, mode, warned):
    if mode:
        device.documents[START] = {"polatis-switch:startup-mode": mode}
    with caplog.at_level(logging.WARNING):
        switch.open()
        switch.open()
    told = [record.message for record in caplog.records if record.name.startswith("drivers")]
    assert [("a power cycle cuts every circuit" in line) for line in told] == [True] * warned


@pytest.mark.parametrize(
    "document", [{"optical-switch:system-config": {"startup-mode": "preserve"}}, ["preserve"]]
)
def test_a_switch_that_tells_its_start_up_mode_otherwise_is_attached(device, switch, document):
    device.documents[START] = document
    switch.open()
    assert switch.cross_connects() == {CrossConnect(1, 17)}


def test_a_wrong_login_is_told_each_time(device, switch):
    device.refused["GET"] = 401
    for _ in range(2):
        with pytest.raises(DeviceError, match="does not let admin in; check login") as caught:
            switch.open()
        assert "secret" not in f"{caught.value}"


def test_an_answer_that_makes_no_sense(device, switch):
    device.documents["optical-switch:product-information"] = {"optical-switch:product": {}}
    with pytest.raises(ProtocolError, match="no product-information"):
        switch.identity()


def test_any_to_any_switches_are_left_to_tl1(device, switch):
    device.documents["optical-switch:product-information"] = {
        "optical-switch:product-information": {**PRODUCT, "model-name": "N-VST-114xCC-LU1"}
    }
    with pytest.raises(DeviceError, match="use polatis-tl1"):
        switch.size()


def test_options_of_tls_want_tls(device):
    check = OPTICAL["polatis-restconf"].check
    assert list(check(plane_at(device, tls=True, ca_file="/etc/ca.pem"))) == []
    (problem,) = check(plane_at(device, ca_file="/etc/ca.pem"))
    assert "mean nothing without tls: true" in f"{problem}"
