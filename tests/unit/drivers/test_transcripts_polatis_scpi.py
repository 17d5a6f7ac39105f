"""Every byte of Polatis' SCPI between driver and device, by the manuals and captures."""

from __future__ import annotations

import socket
import threading

import pytest

from drivers.optical.polatis_scpi import PolatisScpi
from hydra.errors import DeviceError, ProtocolError
from hydra.model import CrossConnect
from tests.waiting import PATIENCE_S, SHORT_S


def test_polatis_scpi_change(play):
    switch = play(
        "polatis-scpi",
        [
            (b":oxc:swit:size?\r\n", b"16,16\r"),
            (b"*cls;:oxc:swit:conn:stat?\r\n", b"(@1,4),(@18,20)\r"),
            (
                b":oxc:swit:conn:sub (@1),(@18);:oxc:swit:conn:add (@1,2),(@17,18);*opc?\r\n",
                b"1\r",
            ),
            (
                b":syst:err:all?;:oxc:swit:conn:stat?\r\n",
                b'0,"No error";(@1,2,4),(@17,18,20)\r',
            ),
        ],
    )
    switch.change([CrossConnect(1, 18)], [CrossConnect(1, 17), CrossConnect(2, 18)])


def test_polatis_scpi_reads_what_was_not_expected(play):
    """The order of the list does not matter, and a missing cross-connect is found."""
    asked = b"*cls;:oxc:swit:conn:stat?\r\n"
    told = b":syst:err:all?;:oxc:swit:conn:stat?\r\n"
    switch = play(
        "polatis-scpi",
        [
            (b":oxc:swit:size?\r\n", b"16,16\r"),
            (asked, b"(@),(@)\r"),
            (b":oxc:swit:conn:add (@1,2),(@17,18);*opc?\r\n", b"1\r"),
            (told, b'0,"No error";(@2,1),(@18,17)\r'),
            (asked, b"(@2,1),(@18,17)\r"),
            (b":oxc:swit:conn:add (@3),(@19);*opc?\r\n", b"1\r"),
            (told, b'0,"No error";(@1,2),(@17,18)\r'),
            (asked, b"(@1,2),(@17,18)\r"),
            (b":oxc:swit:conn:add (@3),(@19);*opc?\r\n", b"1\r"),
            (told, b'0,"No error";(@1,2,3),(@17,18,19)\r'),
            (b":oxc:swit:conn:stat?\r\n", b"(@1,2,3),(@17,18,19)\r"),
        ],
    )
    first, third = [CrossConnect(1, 17), CrossConnect(2, 18)], CrossConnect(3, 19)
    switch.change([], first)
    with pytest.raises(DeviceError, match="not connected: 3 to 19"):
        switch.change([], [third])
    switch.change([], [third])
    assert switch.cross_connects() == {*first, third}


@pytest.mark.parametrize("reply", [b"\r", b"(@1)\r", b"(@1),(@17,18)\r"])
def test_polatis_scpi_takes_no_other_line_for_a_list(play, reply):
    switch = play("polatis-scpi", [(b":oxc:swit:conn:stat?\r\n", reply)])
    with pytest.raises(ProtocolError, match=r"p1: .*conn:stat\?"):
        switch.cross_connects()


def test_polatis_scpi_power(play):
    switch = play(
        "polatis-scpi",
        [
            (b":oxc:swit:size?\r\n", b"16,16\r"),
            (b":pmon:pow? (@1,2);*opc?\r\n", b"1\r"),  # no monitors at ingress ports
            (b":pmon:pow? (@17,18);*opc?\r\n", b"(-3.25,9.91E37);1\r"),
        ],
    )
    assert switch.power_dbm([2, 1, 17, 18]) == {1: None, 2: None, 17: -3.25, 18: None}


def test_polatis_scpi_answers_line_by_line(play):
    """As by some devices for several queries in a line; and with LF alone at the end."""
    switch = play(
        "polatis-scpi",
        [
            (b":oxc:boot:mode?;*opc?\r\n", b"REST\n1\n"),
            (b":oxc:swit:size?\r\n", b"16,16\n"),
            (b"*cls;:oxc:swit:conn:stat?\r\n", b"(@),(@)\n"),
            (b":oxc:swit:conn:add (@1),(@17);*opc?\r\n", b"1\n"),
            (b":syst:err:all?;:oxc:swit:conn:stat?\r\n", b'0,"No error"\n(@1),(@17)\n'),
            (b":pmon:pow? (@17);*opc?\r\n", b"(-3.25)\n1\n"),
            (b":pmon:pow? (@1);*opc?\r\n", b"1\n"),
            (b":oxc:swit:conn:stat?\r\n", b"(@1),(@17)\n"),
        ],
    )
    switch.open()
    switch.change([], [CrossConnect(1, 17)])
    assert switch.power_dbm([17]) == {17: -3.25}
    assert switch.power_dbm([1]) == {1: None}
    assert switch.cross_connects() == {CrossConnect(1, 17)}


@pytest.mark.parametrize("reply", [b"DARK;1\r", b"DARK\r1\r", b'"dark"\n1\n', b"AUT;1\r", b"1\r"])
def test_polatis_scpi_warns_at_attach_of_a_switch_that_starts_dark(play, caplog, reply):
    switch = play("polatis-scpi", [(b":oxc:boot:mode?;*opc?\r\n", reply)])
    for _ in range(2):
        switch.open()
    warned = [record for record in caplog.messages if "a power cycle cuts every circuit" in record]
    assert len(warned) == (b"DARK" in reply.upper())


def test_polatis_scpi_works_with_a_switch_that_is_silent_about_its_start():
    """And sends the query only once."""
    asked = []

    def serve():
        with listener:
            for _ in range(3):
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as lines:
                    for line in lines:
                        asked.append(line)
                        if line.startswith(b":oxc:swit:size?"):
                            connection.sendall(b"16,16\r")

    listener = socket.create_server(("127.0.0.1", 0))
    server = threading.Thread(target=serve)
    server.start()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    switch = PolatisScpi("p1", address, timeout_s=SHORT_S)
    for _ in range(2):
        switch.open()
        assert switch.size() == (16, 16)
        switch.close()
    server.join(PATIENCE_S)
    assert [line.startswith(b":oxc:boot") for line in asked] == [True, False, False]
