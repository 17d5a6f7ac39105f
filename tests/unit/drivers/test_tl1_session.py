"""TL1 sessions with devices that send too much, fall silent, or echo."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time

import pytest

from drivers.codecs import polatis_tl1, tl1
from drivers.registry import optical_switch
from drivers.transports.tcp import TcpStream
from drivers.transports.tl1_session import Tl1Session
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import Login, Plane, PlaneId
from tests.unit.drivers.scripted import VARIABLE, Scripted
from tests.waiting import HANGS_S, PATIENCE_S, SHORT_S, wait_until

HEADER = b"\r\n\n   NE 16-11-07 11:20:14\r\n"
REPORT = HEADER + b'*C 7 REPT ALM EQPT\r\n   "17:CR,LOS,SA"\r\n;'
FIRST, SECOND = tl1.Command("RTRV-A"), tl1.Command("RTRV-B")


def completed(ctag: int) -> bytes:
    return HEADER + b"M  %d COMPLD\r\n;" % ctag


def session(address: str, timeout_s: float = PATIENCE_S, log_in=lambda ask: None) -> Tl1Session:
    stream = TcpStream("p1", address)
    return Tl1Session("p1", stream, polatis_tl1.DIALECT, log_in=log_in, timeout_s=timeout_s)


def test_a_device_that_never_stops_talking_holds_nobody():
    stop = threading.Event()

    def talk() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(0.2)  # timed: the device checks whether it should stop
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    connection.sendall(REPORT * 100)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        talker = threading.Thread(target=talk)
        talker.start()
        ours = session(f"127.0.0.1:{listener.getsockname()[1]}", timeout_s=SHORT_S)
        ours.open()
        started, reports = time.monotonic(), []
        wait_until(lambda: reports.extend(ours.reports()) or reports)
        assert time.monotonic() - started < HANGS_S
        assert len(reports) <= 1000
        started = time.monotonic()
        with pytest.raises(DeviceUnavailable, match=r"no answer within 2 s"):
            ours.query(FIRST)
        assert time.monotonic() - started < HANGS_S
        stop.set()
        ours.close()
        talker.join(PATIENCE_S)


def test_a_silent_device_in_the_middle_of_several_commands():
    device = Scripted([(b"RTRV-A:::1;\nRTRV-B:::2;\n", completed(2))])
    ours = session(device.address, timeout_s=SHORT_S)
    with pytest.raises(OutcomeUnknown, match=r"no answer within 2 s"):
        ours.write_all([FIRST, SECOND], window=2)
    device.finish()


@pytest.mark.parametrize("first_is_done", [True, False])
def test_a_log_in_that_is_refused_in_the_middle_of_changes(first_is_done):
    """The outcome is unknown if an earlier command was carried out."""
    out = HEADER + b"M  %d DENY\r\n   PLNA\r\n   /* Login Not Active */\r\n;"
    said = b"RTRV-A:::1;\nRTRV-B:::2;\n"
    device = Scripted([(said, (completed(1) if first_is_done else out % 1) + out % 2)])
    logins = iter([None, DeviceError("p1", "it refuses to log in admin")])

    def log_in(_ask):
        if (refusal := next(logins)) is not None:
            raise refusal

    ours = session(device.address, log_in=log_in)
    words = "it refuses to log in admin"
    if first_is_done:
        words = f"after 1 of 2 commands were carried out: p1: {words}; read the device back"
    with pytest.raises(DeviceError, match=words) as caught:
        ours.write_all([FIRST, SECOND], window=2)
    assert isinstance(caught.value, OutcomeUnknown) is first_is_done
    assert not ours.connected
    device.finish()


def test_a_command_that_cant_be_sent_leaves_none_under_way(caplog):
    """The message names the value and the remedy; earlier commands in the window are not sent."""
    device = Scripted([(b"RTRV-B:::3;\n", completed(3))])
    ours = session(device.address)
    bad = tl1.Command("DLT-CRS", "", ("", "rack\u00e9;1"))
    words = r"p1: DLT-CRS: 'rack\u00e9;1' can't be sent: .*; rename the object on the device"
    with pytest.raises(DeviceError, match=words) as caught:
        ours.write_all([FIRST, bad], window=2)
    assert type(caught.value) is DeviceError
    assert ours.connected
    assert ours.query(SECOND).ctag == "3"
    assert "dropped a reply" not in caplog.text
    ours.close()
    device.finish()


def test_late_replies_and_reports_between_commands_are_told_apart(caplog):
    device = Scripted(
        [(b"RTRV-A:::1;\n", completed(1) + completed(9) + REPORT), (b"RTRV-B:::2;\n", completed(2))]
    )
    ours = session(device.address)
    with caplog.at_level(logging.WARNING):
        assert [ours.query(FIRST).ctag, ours.query(SECOND).ctag] == ["1", "2"]
    assert "dropped a reply with ctag 9" in caplog.text
    assert [report.tag for report in ours.reports()] == ["7"]
    ours.close()
    device.finish()


def test_bytes_outside_the_grammar_end_the_session():
    device = Scripted([(b"RTRV-A:::1;\n", completed(9) + HEADER + b"X\r\n")])
    ours = session(device.address)
    with pytest.raises(ProtocolError, match="neither a reply nor an autonomous message"):
        ours.query(FIRST)
    device.finish()


def test_a_device_that_repeats_a_password_does_not_get_it_logged(caplog):
    said = b"ACT-USER::admin:1::sesame;\n"
    device = Scripted([(said, said + HEADER + b"M  1 DENY\r\n   PICC\r\n   /* sesame */\r\n;")])

    def log_in(ask):
        assert ask(tl1.login("admin", "sesame")).code == "PICC"

    with caplog.at_level(logging.DEBUG):
        ours = session(device.address, log_in=log_in)
        ours.open()
        ours.close()
    assert "sesame" not in caplog.text
    device.finish()


@pytest.mark.parametrize("driver", ["polatis-tl1", "calient-tl1", "glimmerglass-tl1"])
def test_a_session_is_logged_out_when_it_is_closed(driver, monkeypatch):
    monkeypatch.setenv(VARIABLE, "root")
    said: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(1000):
                said.append(data)
                connection.sendall(completed(int(data.split(b":")[3])))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        login = Login("admin", password_env=VARIABLE)
        switch = optical_switch(
            Plane(PlaneId(0), "p1", driver, address, 16, 5.0, 100.0, login), timeout_s=PATIENCE_S
        )
        switch.open()
        for _ in range(2):
            switch.close()
        server.join(PATIENCE_S)
    assert [data.startswith(b"CANC-USER::admin:") for data in said] == [False] * (len(said) - 1) + [
        True
    ]


def test_a_user_by_a_name_that_tl1_cant_say_is_told_so_and_leaves(play):
    switch = play("calient-tl1", [], user="J\u00fcrgen")
    with pytest.raises(DeviceError, match="the login can't be sent"):
        switch.open()
    switch.close()
