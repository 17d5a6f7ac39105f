"""Replies of switches that netconfd does not send: errors beside data, older models."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable

import paramiko
import pytest
from lxml import etree

from drivers.optical.polatis_netconf import Options, PolatisNetconf
from drivers.registry import optical_switch
from drivers.transports.netconf import NetconfTransport
from drivers.transports.netconf_requests import NETCONF_NS, NetconfRefusal
from drivers.transports.permit import permitted
from drivers.transports.ssh import SshOptions
from hydra.errors import OutcomeUnknown, ProtocolError
from hydra.model import CrossConnect, Login, Plane, PlaneId
from hydra.roles import PortState
from tests.unit.drivers.ssh_front import SshFront
from tests.waiting import PATIENCE_S, SHORT_S

VARIABLE = "HYDRA_TEST_SECRET"
SWITCH = "http://www.polatis.com/yang/optical-switch"
END = b"]]>]]>"
OPENFLOW = (
    "<rpc-error><error-type>application</error-type><error-tag>operation-failed</error-tag>"
    "<error-severity>error</error-severity>{path}<error-message>no OpenFlow</error-message>"
    "</rpc-error>"
)


ABILITIES = ("interleave:1.0", "notification:1.0", "writable-running:1.0")
TRIAL = ("interleave:1.0", "notification:1.0", "candidate:1.0", "confirmed-commit:1.1")


def served(
    answer: Callable[[str], str], revision: str, abilities: tuple[str, ...] = ABILITIES
) -> Callable[[paramiko.Channel], None]:
    """A server of base:1.0; ``answer`` gives the content of the reply to a request."""

    def serve(channel: paramiko.Channel) -> None:
        module = f"{SWITCH}?module=optical-switch&amp;revision={revision}"
        uris = ("urn:ietf:params:netconf:base:1.0", module)
        uris += tuple(f"urn:ietf:params:netconf:capability:{ability}" for ability in abilities)
        listed = "".join(f"<capability>{uri}</capability>" for uri in uris)
        hello = f'<hello xmlns="{NETCONF_NS}"><capabilities>{listed}</capabilities>'
        channel.sendall(f"{hello}<session-id>7</session-id></hello>".encode() + END)
        pending = b""
        while data := channel.recv(65536):
            *requests, pending = (pending + data).split(END)
            for request in map(bytes.decode, requests):
                number = re.search(r'message-id="([^"]+)"', request)
                if number is not None:
                    head = f'<rpc-reply xmlns="{NETCONF_NS}" message-id="{number[1]}">'
                    reply = f"{head}{answer(request)}</rpc-reply>".encode() + END
                    with contextlib.suppress(OSError):  # the client has left meanwhile
                        channel.sendall(reply)

    return serve


@pytest.fixture
def switch(monkeypatch):
    """``switch(answer, revision)`` → a driver of a server with these answers."""
    monkeypatch.setenv(VARIABLE, "root")
    fronts, drivers = [], []

    def start(answer, revision="2018-03-22", abilities=ABILITIES, timeout_s=PATIENCE_S, **options):
        front = SshFront(served(answer, revision, abilities))
        plane = Plane(
            PlaneId(0), "p1", "polatis-netconf", front.address, 16, 5.0, 1.0,
            Login("admin", password_env=VARIABLE), {"host_key": front.host_key, **options},
        )  # fmt: skip
        drivers.append(optical_switch(plane, timeout_s))
        fronts.append(front)
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.close()
    for front in fronts:
        front.stop()


def test_data_beside_an_error_counts_and_the_error_is_logged_once(switch, caplog):
    listed = f'<data><cross-connects xmlns="{SWITCH}"><pair><ingress>1</ingress>'
    listed += "<egress>17</egress></pair></cross-connects></data>"

    def answer(request: str) -> str:
        if "create-subscription" in request:
            return "<ok/>"
        return OPENFLOW.format(path="") + listed

    driver = switch(answer)
    for _ in range(3):
        assert driver.cross_connects() == {CrossConnect(1, 17)}
    assert caplog.text.count("data came with errors: get is refused: operation-failed") == 1


@pytest.mark.parametrize(
    ("path", "readable"),
    [
        ("", False),
        ("<error-path>/optical-switch:cross-connects</error-path>", False),
        ("<error-path>/polatis-switch:openflow</error-path>", True),
    ],
)
def test_what_may_be_missing_for_an_error_is_not_taken_for_nothing(switch, path, readable):
    def answer(request: str) -> str:
        return (
            "<ok/>" if "create-subscription" in request else OPENFLOW.format(path=path) + "<data/>"
        )

    driver = switch(answer)
    if readable:
        assert driver.cross_connects() == frozenset()
        return
    with pytest.raises(NetconfRefusal, match="no OpenFlow"):
        driver.cross_connects()


def test_cross_connects_of_which_one_may_be_missing_are_not_taken_for_all(switch):
    listed = f'<data><cross-connects xmlns="{SWITCH}"><pair><ingress>1</ingress>'
    listed += "<egress>17</egress></pair></cross-connects></data>"
    path = "<error-path>/optical-switch:cross-connects/pair[ingress='2']</error-path>"

    def answer(request: str) -> str:
        return "<ok/>" if "create-subscription" in request else OPENFLOW.format(path=path) + listed

    with pytest.raises(NetconfRefusal, match="no OpenFlow"):
        switch(answer).cross_connects()


PRODUCT = {
    "manufacturer": "Polatis",
    "serial-number": "002414",
    "model-name": "I-OST-16x16-LU1",
    "software-version": "6.4",
}


def listed(container: str, **leaves: str) -> str:
    """A reply with one port."""
    told = "".join(
        f"<{leaf.replace('_', '-')}>{text}</{leaf.replace('_', '-')}>"
        for leaf, text in leaves.items()
    )
    return f'<data><{container} xmlns="{SWITCH}"><port>{told}</port></{container}></data>'


@pytest.mark.parametrize("revision", ["2018-03-22", "2015-02-18"])
def test_alarm_thresholds_of_both_models(switch, caplog, revision):
    """As two public clients read and write the attributes; a new switch's alarms are off, from -60
    to 25.
    """
    thresholds = {
        "opm-alarm-config": listed(
            "opm-alarm-config", port_id="32", mode="POWER_ALARM_ENABLED",
            signal_low_threshold="-60.0", signal_degrade_threshold="-60.0",
            signal_high_threshold="25.0", alarm_clear_holdoff="20",
        ),
        "ports": listed(
            "ports", port_id="32",
            opm="<power-high-alarm>25.0</power-high-alarm><power-low-alarm>-60.0</power-low-alarm>"
            "<power-alarm-control>POWER_ALARM_DISABLED</power-alarm-control>",
        ),
    }  # fmt: skip

    def answer(request: str) -> str:
        if "product-information" in request:
            told = "".join(f"<{leaf}>{text}</{leaf}>" for leaf, text in PRODUCT.items())
            return (
                f'<data><product-information xmlns="{SWITCH}">{told}</product-information></data>'
            )
        found = (reply for name, reply in thresholds.items() if name in request)
        return "<ok/>" if "create-subscription" in request else next(found, "<data/>")

    switch(answer, revision, min_input_dbm=-5.0).open()
    older = revision.startswith("2015")
    told = "the alarm switched off" if older else "an alarm below -60.00 dBm, though receivers lose"
    assert f"p1: port 32 has {told}" in caplog.text


def server(answers: dict[str, str]) -> Callable[[str], str]:
    """Answers by the requested part; product, subscriptions and edits as usual."""
    told = "".join(f"<{leaf}>{text}</{leaf}>" for leaf, text in PRODUCT.items())
    product = f'<data><product-information xmlns="{SWITCH}">{told}</product-information></data>'

    def answer(request: str) -> str:
        if any(word in request for word in ("create-subscription", "lock>", "edit-config")):
            return "<ok/>"
        known = {"product-information": product, **answers}
        return next((reply for name, reply in known.items() if name in request), "<data/>")

    return answer


def test_powers_that_are_none_or_no_number(switch):
    """``nan`` would pass every limit."""
    answers = {"opm-power": listed("opm-power", port_id="1", power="")}
    driver = switch(server(answers))
    assert driver.power_dbm([1, 2]) == {1: None, 2: None}
    for text in ("nan", "inf", "1e999", "x"):
        answers["opm-power"] = listed("opm-power", port_id="1", power=text)
        with pytest.raises(ProtocolError, match="is no level or power"):
            driver.power_dbm([1])
    answers["opm-power"] = listed("opm-power", port_id="9" * 5000, power="1")
    with pytest.raises(ProtocolError, match="is no port number"):
        driver.power_dbm([1])


def test_a_refusal_to_read_back_leaves_the_outcome_unknown(switch):
    answer = server({})
    edited = []

    def refuse_afterwards(request: str) -> str:
        edited.extend([True] if "edit-config" in request else [])
        if edited and "cross-connects" in request and "edit-config" not in request:
            return OPENFLOW.format(path="")
        return answer(request)

    with pytest.raises(OutcomeUnknown, match="could not be read back"):
        switch(refuse_afterwards).change([], [CrossConnect(1, 17)])


def refusal(tag: str) -> str:
    return (
        f"<rpc-error><error-type>application</error-type><error-tag>{tag}</error-tag>"
        "<error-severity>error</error-severity></rpc-error>"
    )


@pytest.mark.parametrize("tag", ["rollback-failed", "partial-operation"])
def test_an_edit_that_could_not_be_undone_leaves_the_outcome_unknown(switch, tag):
    answer = server({})

    def fail(request: str) -> str:
        return refusal(tag) if "edit-config" in request else answer(request)

    abilities = (*ABILITIES, "rollback-on-error:1.0")
    with pytest.raises(OutcomeUnknown, match=f"part of a change may stand: .*{tag}"):
        switch(fail, abilities=abilities).change([], [CrossConnect(1, 17)])


def test_a_trial_whose_confirmation_is_refused_is_undone_at_once(switch):
    """Until then the change stands, at most for the length of the trial."""
    asked: list[str] = []
    made = f'<data><cross-connects xmlns="{SWITCH}"><pair><ingress>1</ingress>'
    made += "<egress>17</egress></pair></cross-connects></data>"
    answer = server({})

    def refuse(request: str) -> str:
        what = re.search(r"<(?:nc:)?(commit|cancel-commit|edit-config|get)\b", request)
        asked.append("" if what is None else what[1])
        if "edit-config" in asked and "cross-connects" in request and asked[-1] == "get":
            return made
        if asked[-1] == "commit":
            return refusal("operation-failed") if asked.count("commit") > 1 else "<ok/>"
        return "<ok/>" if asked[-1] == "cancel-commit" else answer(request)

    with pytest.raises(NetconfRefusal, match="confirming commit is refused"):
        switch(refuse, abilities=TRIAL).change([], [CrossConnect(1, 17)])
    assert [one for one in asked if "commit" in one] == ["commit", "commit", "cancel-commit"]


MONITORING = "urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring"


@pytest.mark.parametrize(
    ("user", "leads", "killed"),
    [("admin", True, True), ("somebody", True, False), ("admin", False, False)],
)
def test_the_lock_of_a_leader_before_is_broken_and_nobody_else_s(switch, user, leads, killed):
    """A paused controller's session stands as long as its kernel answers."""
    asked: list[str] = []
    answer = server({})
    denied = refusal("lock-denied").replace(
        "</rpc-error>", "<error-info><session-id>9</session-id></error-info></rpc-error>"
    )
    sessions = f'<data><netconf-state xmlns="{MONITORING}"><sessions><session>'
    sessions += f"<session-id>9</session-id><username>{user}</username></session></sessions>"
    sessions += "</netconf-state></data>"
    made = f'<data><cross-connects xmlns="{SWITCH}"><pair><ingress>1</ingress>'
    made += "<egress>17</egress></pair></cross-connects></data>"

    def hold(request: str) -> str:
        asked.append(request)
        if "kill-session" in request:
            assert "<session-id>9</" in request or ":session-id>9</" in request
            return "<ok/>"
        if "netconf-state" in request:
            return sessions
        if "unlock" not in request and re.search(r"<(?:\w+:)?lock[ >]", request):
            return "<ok/>" if any("kill-session" in one for one in asked) else denied
        if any("edit-config" in one for one in asked) and "cross-connects" in request:
            return "<ok/>" if "edit-config" in request else made
        return answer(request)

    # timed: half of a call is spent waiting for the lock, and a failing call takes its full time
    driver = switch(hold, timeout_s=PATIENCE_S)
    driver.open()
    driver._netconf._timeout_s = 10.0 if killed else SHORT_S
    with permitted(lambda: 60.0 if leads else float("inf")):
        if killed:
            driver.change([], [CrossConnect(1, 17)])
        else:
            with pytest.raises(NetconfRefusal, match="lock-denied"):
                driver.change([], [CrossConnect(1, 17)])
    assert any("kill-session" in one for one in asked) == killed


def product_information() -> str:
    leaves = (("manufacturer", "Polatis"), ("model-name", "I-OST-16x16-LU1"))
    leaves += (("serial-number", "002414"), ("software-version", "6.4"))
    told = "".join(f"<{leaf}>{text}</{leaf}>" for leaf, text in leaves)
    return f'<data><product-information xmlns="{SWITCH}">{told}</product-information></data>'


def test_the_model_before_2017(switch):
    asked: list[str] = []

    def answer(request: str) -> str:
        asked.append(request)
        if "product-information" in request:
            return product_information()
        if "ports" in request:
            told = "".join(
                f"<port><port-id>{port}</port-id><port-state>{state}</port-state></port>"
                for port, state in ((1, "PC_ENABLED"), (2, "PC_DISABLED"), (3, "PC_ASLEEP"))
            )
            return f'<data><ports xmlns="{SWITCH}">{told}</ports></data>'
        if "pairs" in request:
            told = "<pairs><ingress>3</ingress><egress>27</egress></pairs>"
            return f'<data><cross-connects xmlns="{SWITCH}">{told}</cross-connects></data>'
        return "<ok/>" if "create-subscription" in request else "<data/>"

    driver = switch(answer, "2015-02-18")
    assert driver.cross_connects() == {CrossConnect(3, 27)}
    assert driver.port_states([1, 2, 3, 4]) == {
        1: PortState.ENABLED,
        2: PortState.DISABLED,
        3: PortState.UNKNOWN,
        4: PortState.UNKNOWN,
    }
    assert not any("port-config" in request for request in asked)


@pytest.mark.quiet("tells one time-out from two")
def test_a_change_ends_in_its_time_with_what_it_reads_before(monkeypatch):
    """A switch that takes some time for a read, and then fails to write."""
    monkeypatch.setenv(VARIABLE, "root")
    over = threading.Event()

    def answer(request: str) -> str:
        if "cross-connects" in request and "edit-config" not in request:
            time.sleep(1.5)  # timed: a slow device, inside the driver's time-out
            return "<data/>"
        if "product-information" in request:
            return product_information()
        if "edit-config" in request:
            over.wait(PATIENCE_S)
        return "<ok/>" if re.search(r"<(\w+:)?(lock|unlock|create-)", request) else "<data/>"

    front = SshFront(served(answer, "2018-03-22"))
    driver = PolatisNetconf(
        "p1",
        front.address,
        Login("admin", password_env=VARIABLE),
        Options(host_key=front.host_key),
        timeout_s=4.0,  # timed: under test
    )
    try:
        driver.open()
        assert driver.size() == (16, 16)
        started = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            driver.change([], [CrossConnect(3, 27)])
        assert time.monotonic() - started < 5.2
    finally:
        over.set()
        driver.close()
        front.stop()


@pytest.mark.quiet("tells one time-out from two")
def test_an_edit_ends_in_its_time_with_what_it_reads_back(monkeypatch):
    """A switch that takes most of the time for a write, and then fails to read."""
    monkeypatch.setenv(VARIABLE, "root")
    over = threading.Event()

    def answer(request: str) -> str:
        if "edit-config" in request:
            time.sleep(1.5)  # timed: a slow device, inside the driver's time-out
        elif re.search(r"<(\w+:)?get>", request):
            over.wait(PATIENCE_S)
        return "<ok/>"

    front = SshFront(served(answer, "2018-03-22"))
    transport = NetconfTransport(
        "p1",
        front.address,
        Login("admin", password_env=VARIABLE),
        SshOptions(host_key=front.host_key),
        timeout_s=SHORT_S,
    )
    listed = etree.Element(f"{{{SWITCH}}}cross-connects")
    try:
        transport.open()
        started = time.monotonic()
        with pytest.raises(OutcomeUnknown, match="could not be read back"):
            transport.edit(etree.Element(f"{{{NETCONF_NS}}}config"), lambda: transport.get(listed))
        assert time.monotonic() - started < 3.0
    finally:
        over.set()
        transport.close()
        front.stop()
