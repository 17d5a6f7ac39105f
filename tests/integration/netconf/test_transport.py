"""The NETCONF transport against netconfd behind sshd: locks, roll-back, lost sessions, bad keys."""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from lxml import etree
from ncclient.operations import RPCError

from drivers.transports.netconf import NetconfTransport
from drivers.transports.netconf_requests import NETCONF_NS, NetconfRefusal
from drivers.transports.permit import permitted
from drivers.transports.ssh import SshOptions
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown
from hydra.model import Login
from tests.integration.netconf.conftest import Stranger
from tests.waiting import HANGS_S, PATIENCE_S, SHORT_S, wait_until

pytestmark = pytest.mark.parametrize(
    "server", ["candidate", "running"], indirect=True, scope="module"
)

SWITCH = "http://www.polatis.com/yang/optical-switch"


def config(*pairs: tuple[int, int], operation: str = "merge") -> etree.Element:
    listed = "".join(
        f'<pair xmlns:nc="{NETCONF_NS}" nc:operation="{operation}"><ingress>{a}</ingress>'
        f"<egress>{b}</egress></pair>"
        for a, b in pairs
    )
    text = f'<cross-connects xmlns="{SWITCH}">{listed}</cross-connects>'
    return etree.fromstring(f'<config xmlns="{NETCONF_NS}">{text}</config>')


def pairs(transport: NetconfTransport) -> set[tuple[int, int]]:
    data = transport.get(etree.Element(f"{{{SWITCH}}}cross-connects"))
    listed = data.iter(f"{{{SWITCH}}}pair")
    return {tuple(int(leaf.text) for leaf in pair) for pair in listed}


def fine() -> None:
    """A read-back that finds the intended state."""


@pytest.fixture(autouse=True)
def emptied(server):
    """Every test leaves the server without cross-connects."""
    yield
    server.write(
        f'<cross-connects xmlns="{SWITCH}" xmlns:nc="{NETCONF_NS}" nc:operation="remove"/>'
    )


@pytest.fixture
def transport(server):
    options = SshOptions(host_key=server.host_key)
    transport = NetconfTransport("p1", server.address, server.login, options, timeout_s=PATIENCE_S)
    yield transport
    transport.close()


def test_an_edit_is_made_and_can_be_undone(transport):
    transport.edit(config((1, 17), (2, 18)), fine)
    assert pairs(transport) == {(1, 17), (2, 18)}
    transport.edit(config((1, 17), operation="delete"), fine)
    assert pairs(transport) == {(2, 18)}


def test_a_request_right_behind_the_greeting_is_answered(server, stranger):
    """A defect of the server, which its relay hides from these tests."""
    base, end = "urn:ietf:params:netconf:base", "]]>]]>"
    hello = f'<hello xmlns="{NETCONF_NS}"><capabilities>' + "".join(
        f"<capability>{base}:{version}</capability>" for version in ("1.0", "1.1")
    )
    request = f'<rpc xmlns="{NETCONF_NS}" message-id="7"><close-session/></rpc>'
    channel = stranger.session._session.transport.open_session(timeout=PATIENCE_S)
    channel.settimeout(PATIENCE_S)
    channel.invoke_subsystem("netconf")
    text = f"{hello}</capabilities></hello>{end}\n#{len(request)}\n{request}\n##\n"
    channel.sendall(text.encode())
    answer = b""
    while b'message-id="7"' not in answer:
        data = channel.recv(4096)
        assert data, answer
        answer += data


@pytest.mark.parametrize(
    ("bad", "tag"),
    [
        ([((3, 19), "delete"), ((4, 20), "delete")], "data-missing"),
        ([((1, 17), "create")], "data-exists"),
        ([((3, 0), "merge")], "invalid-value"),
    ],
)
def test_a_refused_edit_changes_nothing_and_all_its_errors_are_told(transport, bad, tag):
    """Edits that violate no ``unique`` of YANG: netconfd sometimes accepts a violation after
    another session has ended while holding the lock.
    """
    transport.edit(config((1, 17)), fine)
    mixed = config((5, 21))
    for pair, operation in bad:
        mixed[0].extend(config(pair, operation=operation)[0])
    with pytest.raises(NetconfRefusal) as refusal:
        transport.edit(mixed, fine)
    assert tag in str(refusal.value)
    assert not isinstance(refusal.value, OutcomeUnknown)
    assert pairs(transport) == {(1, 17)}
    transport.edit(config((6, 22)), fine)  # no part of the refused edit remains
    assert pairs(transport) == {(1, 17), (6, 22)}


def test_an_edit_that_does_not_read_back_well_is_undone_where_that_is_possible(transport, server):
    def disappointed() -> None:
        assert pairs(transport) == {(1, 17)}
        raise DeviceError("p1", "that is not what was asked")

    with pytest.raises(DeviceError, match="not what was asked"):
        transport.edit(config((1, 17)), disappointed)
    assert pairs(transport) == (set() if _target(transport) == "candidate" else {(1, 17)})


def test_somebody_elses_lock_is_waited_for(transport, stranger, server):
    target = _target(transport)
    stranger.session.lock(target)
    timer = threading.Timer(0.5, lambda: stranger.session.unlock(target))  # timed: locked so long
    started = time.monotonic()
    timer.start()
    transport.edit(config((1, 17)), fine)
    assert time.monotonic() - started >= 0.5
    timer.join()
    assert pairs(transport) == {(1, 17)}


def _target(transport: NetconfTransport) -> str:
    transport.open()
    candidate = any(":capability:candidate:" in uri for uri in transport.capabilities)
    return "candidate" if candidate else "running"


def test_the_lock_of_a_leader_before_is_broken(server):
    """The other client is paused: its session stands, and holds the lock."""
    options = SshOptions(host_key=server.host_key)
    # timed: half of the call's time-out is spent waiting for the lock
    transport = NetconfTransport("p1", server.address, server.login, options, timeout_s=10.0)
    target, paused = _target(transport), Stranger(server)
    paused.session.lock(target)
    with closing(transport), permitted(lambda: 60.0):
        transport.edit(config((1, 17)), fine)
        assert pairs(transport) == {(1, 17)}
    wait_until(lambda: not paused.session.connected)


@pytest.mark.quiet("tells the driver's time-out from that of the NETCONF library, 30 s")
def test_a_lock_that_stays_is_named(server, stranger):
    options = SshOptions(host_key=server.host_key)
    transport = NetconfTransport("p1", server.address, server.login, options, timeout_s=SHORT_S)
    target = _target(transport)
    with stranger.session.locked(target):  # released in any case: other tests need the lock
        started = time.monotonic()
        with pytest.raises(DeviceError, match=f"lock of {target} is refused: lock-denied"):
            transport.edit(config((1, 17)), fine)
        assert time.monotonic() - started < 10.0
    assert pairs(transport) == set()
    transport.close()


def test_the_lock_is_given_back_after_success_and_after_refusal(transport, stranger):
    transport.edit(config((1, 17)), fine)
    with pytest.raises(NetconfRefusal):
        transport.edit(config((1, 17), operation="create"), fine)
    target = _target(transport)
    stranger.session.lock(target)
    stranger.session.unlock(target)


def test_a_session_killed_between_calls_is_replaced(transport, stranger):
    transport.open()
    stranger.end_other_sessions()
    wait_until(lambda: not transport.connected)
    transport.edit(config((1, 17)), fine)
    assert pairs(transport) == {(1, 17)}


def test_a_session_killed_in_the_middle_of_an_edit_leaves_the_outcome_unknown(transport, stranger):
    def kill() -> None:
        stranger.end_other_sessions()
        wait_until(lambda: not transport.connected)

    if _target(transport) == "running":
        transport.edit(config((1, 17)), kill)  # written, and no commit awaits confirmation
        assert pairs(transport) == {(1, 17)}
        return
    with pytest.raises(OutcomeUnknown, match="confirm"):
        transport.edit(config((1, 17)), kill)
    wait_until(lambda: pairs(transport) == set())


def test_a_server_that_hangs_is_unavailable_for_a_read_and_unknown_after_a_write(server):
    options = SshOptions(host_key=server.host_key)
    transport = NetconfTransport("p1", server.address, server.login, options, timeout_s=SHORT_S)
    transport.open()

    def freeze() -> None:
        server.freeze(frozen=True)
        pairs(transport)

    try:
        started = time.monotonic()
        with pytest.raises(OutcomeUnknown, match=r"could not be read back: p1: get: no answer"):
            transport.edit(config((1, 17)), freeze)
        with pytest.raises(DeviceUnavailable):
            transport.get(etree.Element(f"{{{SWITCH}}}cross-connects"))
        assert time.monotonic() - started < HANGS_S
    finally:
        server.freeze(frozen=False)
    transport.close()
    client = NetconfTransport("p1", server.address, server.login, options, timeout_s=PATIENCE_S)
    if _target(client) == "candidate":
        wait_until(lambda: pairs(client) == set())  # the lost session's commit is undone
    client.close()


def test_notifications_come_beside_replies(server):
    options = SshOptions(host_key=server.host_key)
    transport = NetconfTransport(
        "p1", server.address, server.login, options, timeout_s=PATIENCE_S, stream="NETCONF"
    )
    transport.open()
    transport.edit(config((1, 17)), fine)
    heard: list[str] = []
    wait_until(
        lambda: (
            heard.extend(etree.QName(e).localname for e in transport.notifications())
            or "netconf-config-change" in heard
        )
    )
    transport.close()
    assert transport.notifications() == []


def test_a_stream_that_does_not_exist_is_named(server):
    options = SshOptions(host_key=server.host_key)
    transport = NetconfTransport(
        "p1", server.address, server.login, options, timeout_s=PATIENCE_S, stream="Nonsense"
    )
    with pytest.raises(DeviceError, match="subscription to stream Nonsense is refused"):
        transport.open()
    transport.close()


# --- whom to trust ------------------------------------------------------------------------------


def test_an_unknown_host_key_is_shown_and_nothing_is_sent(server, tmp_path):
    options = SshOptions(known_hosts=str(tmp_path / "known_hosts"))
    transport = NetconfTransport("p1", server.address, server.login, options, timeout_s=PATIENCE_S)
    with pytest.raises(DeviceError, match=r"host key of .* is not known: ssh-ed25519 SHA256:"):
        transport.open()


def test_a_known_host_is_trusted_and_another_key_is_not(server, tmp_path):
    host, _, port = server.address.partition(":")
    known = tmp_path / "known_hosts"
    options = SshOptions(known_hosts=str(known))
    known.write_text(f"[{host}]:{port} {server.host_key}\n")
    transport = NetconfTransport("p1", server.address, server.login, options, timeout_s=PATIENCE_S)
    transport.open()
    transport.close()
    client_key = tmp_path / "other.pub"
    client_key.write_text(_public(server.login.key_file))
    known.write_text(f"[{host}]:{port} {client_key.read_text()}\n")
    with pytest.raises(DeviceError, match=r"shows another host key than .*known_hosts"):
        transport.open()
    pinned = SshOptions(host_key=client_key.read_text())
    other = NetconfTransport("p1", server.address, server.login, pinned, timeout_s=PATIENCE_S)
    with pytest.raises(DeviceError, match=r"another host key than options\.host_key"):
        other.open()


def _public(key_file: str) -> str:
    return " ".join(Path(f"{key_file}.pub").read_text().split()[:2])


def test_a_key_that_the_server_does_not_know_is_refused(server, tmp_path):
    login = Login("root", key_file=str(tmp_path / "stranger"))
    options = SshOptions(host_key="any")
    transport = NetconfTransport("p1", server.address, login, options, timeout_s=PATIENCE_S)
    with pytest.raises(DeviceError, match=r"can't use .*stranger as a private SSH key"):
        transport.open()
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "stranger")],
        check=True,
    )
    with pytest.raises(DeviceError, match="refuses root with this key"):
        transport.open()


def test_the_reference_client_sees_several_errors_in_one_reply(stranger):
    """The defect that this transport works around: ncclient's own property fails on such a
    reply.
    """
    target = "candidate" if ":candidate" in stranger.session.server_capabilities else "running"
    with pytest.raises(RPCError) as refusal:
        stranger.session.edit_config(target=target, config=config((0, 17), (0, 18)))
    errors = getattr(refusal.value, "errors", None)
    assert errors is None or len(errors) > 1
