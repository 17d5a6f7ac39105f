"""Every byte that drivers and devices exchange, by the manuals and captures."""

from __future__ import annotations

import socket
import threading

import pytest

from drivers.optical.polatis_scpi import PolatisScpi
from drivers.registry import optical_switch
from hydra.errors import DeviceError, OutcomeUnknown, ProtocolError
from hydra.model import CrossConnect, Login, Plane, PlaneId
from hydra.roles import Alarm, DeviceIdentity, PortState, Severity
from tests.unit.drivers.scripted import Scripted

VARIABLE = "HYDRA_TEST_SECRET"


@pytest.fixture(autouse=True)
def password(monkeypatch):
    monkeypatch.setenv(VARIABLE, "root")


@pytest.fixture
def play():
    """``play(driver, exchanges, …)`` → a driver whose device expects just these."""
    devices, drivers = [], []

    def start(driver, exchanges, *, user="", options=None, greeting=b"", timeout_s=2.0):
        device = Scripted(exchanges, greeting)
        login = Login(user, password_env=VARIABLE) if user else None
        plane = Plane(
            PlaneId(0), "p1", driver, device.address, 16, 5.0, 100.0, login, options or {}
        )
        switch = optical_switch(plane, timeout_s)
        devices.append(device)
        drivers.append(switch)
        return switch

    yield start
    for switch in drivers:
        switch.close()
    for device in devices:
        device.finish()


def completed(ctag: int, *records: str, source: str = "( nil )") -> bytes:
    lines = "".join(f'   "{record}"\r\n' for record in records)
    return f"\r\n\n   {source} 16-11-07 11:20:14\r\nM  {ctag} COMPLD\r\n{lines};".encode()


def denied(ctag: int, code: str, text: str, source: str = "( nil )") -> bytes:
    head = f"\r\n\n   {source} 16-11-07 11:20:14\r\nM  {ctag} DENY\r\n"
    return f"{head}   {code}\r\n   /* {text} */\r\n;".encode()


# --- Polatis, SCPI ------------------------------------------------------------------------------


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
    """Listed in another order it is the same, and what is missing is found out."""
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
    """As some do where several queries are in a line; and with LF alone at the end."""
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
    """And asks it once only."""
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
    switch = PolatisScpi("p1", address, timeout_s=0.3)
    for _ in range(2):
        switch.open()
        assert switch.size() == (16, 16)
        switch.close()
    server.join(10)
    assert [line.startswith(b":oxc:boot") for line in asked] == [True, False, False]


# --- Polatis, TL1 -------------------------------------------------------------------------------

POLATIS_LOGIN = [
    (b"ACT-USER::admin:1::root;\n", completed(1) + b"\r\n>"),
    (b"RLS-ARC-EQPT::REPMGR:2:;\n", completed(2)),
]
POLATIS_START = [
    *POLATIS_LOGIN,
    (b"RTRV-EQPT::SYSTEM:3:::PARAMETER=SIZE;\n", completed(3, "SYSTEM:SIZE=16x16")),
]


def test_polatis_tl1_identity(play):
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_LOGIN,
            (b"RTRV-NETYPE:::3:;\n", completed(3, "Polatis,N-VST-16x16,OCS,6.5.2.18")),
            (b"RTRV-INV::OCS:4:;\n", completed(4, "OCS:SN=002414")),
        ],
        user="admin",
    )
    assert switch.identity() == DeviceIdentity("Polatis", "N-VST-16x16", "002414", "6.5.2.18")


def test_polatis_tl1_change_with_a_report_before_a_reply(play):
    report = (
        b"\r\n\n   ( nil ) 16-11-07 11:20:14\r\n** 7 REPT ALM EQPT\r\n"
        b'   "17:MJ,LOS,NSA,11-07,11-20-14,,:\\"Low power\\""\r\n;'
    )
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_START,
            (b"RTRV-PATCH:::4:;\n", completed(4, "1,18", "4,20")),
            (b"DLT-PATCH::1:5:;\n", report + completed(5)),
            (b"ENT-PATCH::1&2,17&18:6:;\n", completed(6)),
            (b"RTRV-PATCH:::7:;\n", completed(7, "1,17", "2,18", "4,20")),
        ],
        user="admin",
    )
    switch.change([CrossConnect(1, 18)], [CrossConnect(1, 17), CrossConnect(2, 18)])
    assert switch.reports() == (Alarm(Severity.MAJOR, 17, "LOS", "Low power"),)


def test_polatis_tl1_ports_power_and_alarms(play):
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_START,
            (b"RTRV-PORT-SHUTTER::1&2:4:;\n", completed(4, "1:OPEN", "2:CLOSED")),
            (b"RTRV-PORT-POWER::1&17:5:;\n", completed(5, "17:-23.4")),
            (b"RTRV-ALM-ALL::ALL:6:;\n", completed(6, "SYSTEM,EQPT:MN,FAN,NSA,,,,")),
        ],
        user="admin",
    )
    assert switch.port_states([2, 1]) == {1: PortState.ENABLED, 2: PortState.DISABLED}
    assert switch.power_dbm([1, 17]) == {1: None, 17: -23.4}
    assert switch.alarms() == (Alarm(Severity.MINOR, None, "FAN", ""),)


def test_polatis_tl1_refusal(play):
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_START,
            (b"RTRV-PATCH:::4:;\n", completed(4)),
            (b"ENT-PATCH::1,17:5:;\n", denied(5, "IDNV", "Invalid OXC port: 1")),
            (b"RTRV-PATCH:::6:;\n", completed(6)),
        ],
        user="admin",
    )
    with pytest.raises(DeviceError) as caught:
        switch.change([], [CrossConnect(1, 17)])
    assert str(caught.value) == (
        "p1: the change was not made as asked: setting up: ENT-PATCH is refused: IDNV Invalid OXC "
        "port: 1; not connected: 1 to 17"
    )


def test_polatis_tl1_carried_out_in_part(play):
    partial = completed(5).replace(b"COMPLD\r\n", b"PRTL\r\n   SROF\r\n   /* port 2 */\r\n")
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_START,
            (b"RTRV-PATCH:::4:;\n", completed(4)),
            (b"ENT-PATCH::1&2,17&18:5:;\n", partial),
            (b"RTRV-PATCH:::6:;\n", completed(6, "1,17")),
        ],
        user="admin",
    )
    with pytest.raises(DeviceError, match=r"in part: SROF port 2; not connected: 2 to 18$"):
        switch.change([], [CrossConnect(1, 17), CrossConnect(2, 18)])


def test_a_login_that_is_refused_tells_no_secret(play, monkeypatch):
    monkeypatch.setenv(VARIABLE, "sesame")
    switch = play(
        "polatis-tl1",
        [(b"ACT-USER::admin:1::sesame;\n", denied(1, "PICC", "bad: ACT-USER::admin:1::sesame"))],
        user="admin",
    )
    with pytest.raises(DeviceError, match=r"refuses to log in admin \(PICC\)") as caught:
        switch.size()
    assert "sesame" not in f"{caught.value!r} {caught.value}"


def test_a_session_that_was_logged_out_repeats_what_was_refused(play):
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_LOGIN,
            (b"RTRV-EQPT::SYSTEM:3:::PARAMETER=SIZE;\n", denied(3, "PICC", "Permission denied")),
            (b"ACT-USER::admin:4::root;\n", completed(4)),
            (b"RLS-ARC-EQPT::REPMGR:5:;\n", completed(5)),
            (b"RTRV-EQPT::SYSTEM:6:::PARAMETER=SIZE;\n", completed(6, "SYSTEM:SIZE=16x16")),
            (b"RTRV-PATCH:::7:;\n", completed(7, "1,17")),
        ],
        user="admin",
    )
    assert switch.cross_connects() == {CrossConnect(1, 17)}


@pytest.mark.parametrize(
    ("code", "text"),
    [("PICC", "Permission denied"), ("PIUI", "Not logged in"), ("SNVS", "Login Not Active")],
)
def test_a_session_is_logged_out_whatever_the_code(play, code, text):
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_LOGIN,
            (b"RTRV-EQPT::SYSTEM:3:::PARAMETER=SIZE;\n", denied(3, code, text)),
            (b"ACT-USER::admin:4::root;\n", completed(4)),
            (b"RLS-ARC-EQPT::REPMGR:5:;\n", completed(5)),
            (b"RTRV-EQPT::SYSTEM:6:::PARAMETER=SIZE;\n", completed(6, "SYSTEM:SIZE=16x16")),
            (b"RTRV-PATCH:::7:;\n", completed(7, "1,17")),
        ],
        user="admin",
    )
    assert switch.cross_connects() == {CrossConnect(1, 17)}


def test_polatis_tl1_a_user_without_the_right_is_told_so_and_not_to_check_the_password(play):
    no_right = denied(4, "PICC", "Permission denied")
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_START,
            (b"RTRV-ALM-ALL::ALL:4:;\n", no_right),
            (b"ACT-USER::admin:5::root;\n", denied(5, "PICC", "Already logged in")),
            (b"RLS-ARC-EQPT::REPMGR:6:;\n", completed(6)),
            (b"RTRV-ALM-ALL::ALL:7:;\n", no_right.replace(b"M  4", b"M  7")),
        ],
        user="admin",
    )
    assert switch.size() == (16, 16)
    with pytest.raises(DeviceError, match="user admin may lack the right to") as caught:
        switch.alarms()
    assert "password" not in str(caught.value)


def test_a_login_that_is_refused_for_want_of_a_session_says_so(play):
    refusal = denied(1, "PICC", "Too many sessions")
    switch = play("polatis-tl1", [(b"ACT-USER::admin:1::root;\n", refusal)], user="admin")
    with pytest.raises(DeviceError, match="no session free: log out another client"):
        switch.size()


@pytest.mark.parametrize("second", ["COMPLD", "DENY"])
def test_polatis_tl1_says_if_it_will_not_be_told_of_alarms(play, caplog, second):
    answer = completed(3) if second == "COMPLD" else denied(3, "IPNV", "Parameter not valid")
    switch = play(
        "polatis-tl1",
        [
            (b"ACT-USER::admin:1::root;\n", completed(1)),
            (b"RLS-ARC-EQPT::REPMGR:2:;\n", denied(2, "IPMS", "Parameter missing")),
            (b"RLS-ARC-EQPT::REPMGR:3::IND;\n", answer),
        ],
        user="admin",
    )
    switch.open()
    warned = "RLS-ARC-EQPT is refused: IPNV Parameter not valid" in caplog.text
    assert warned == (second == "DENY")


def test_polatis_tl1_any_to_any(play):
    """Port 3 of 8 may stand on either side of a patch; two ports of one half are in use."""
    patches = ["7,3", "1,2"]
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_LOGIN,
            (b"RTRV-EQPT::SYSTEM:3:::PARAMETER=SIZE;\n", completed(3, "SYSTEM:SIZE=8xCC")),
            (b"RTRV-PATCH:::4:;\n", completed(4, *patches)),
            (b"RTRV-PATCH:::5:;\n", completed(5, *patches)),
            (b"RTRV-PATCH:::6:;\n", completed(6, *patches)),
            (b"DLT-PATCH::3:7:;\n", completed(7)),
            (b"ENT-PATCH::4,7:8:;\n", completed(8)),
            (b"RTRV-PATCH:::9:;\n", completed(9, "4,7", "1,2")),
        ],
        user="admin",
    )
    assert switch.size() == (4, 4)
    assert switch.cross_connects() == {CrossConnect(3, 7)}
    with pytest.raises(DeviceError, match="port 2 is connected to 1, on its own side"):
        switch.change([], [CrossConnect(2, 5)])
    switch.change([CrossConnect(3, 7)], [CrossConnect(4, 7)])


def test_a_banner_may_look_like_the_head_of_a_message(play):
    banner = b"Authorised users only.\r\nLast login: 16-11-07 11:20:14\r\nfrom 10.0.0.7\r\n\r\n>"
    switch = play(
        "polatis-tl1",
        [*POLATIS_START, (b"RTRV-PATCH:::4:;\n", completed(4, "1,17"))],
        user="admin",
        greeting=banner,
    )
    assert switch.cross_connects() == {CrossConnect(1, 17)}


def test_a_report_in_the_middle_of_a_reply(play):
    report = (
        b"\r\n\n   ( nil ) 16-11-07 11:20:14\r\n** 7 REPT ALM EQPT\r\n"
        b'   "17:MJ,LOS,NSA,11-07,11-20-14,,:\\"Low power\\""\r\n;\r\n'
    )
    reply = completed(4, "1,17", "2,18", "3,19").replace(b'   "2,18"', report + b'   "2,18"')
    switch = play("polatis-tl1", [*POLATIS_START, (b"RTRV-PATCH:::4:;\n", reply)], user="admin")
    assert switch.cross_connects() == {CrossConnect(n, 16 + n) for n in (1, 2, 3)}
    assert switch.reports() == (Alarm(Severity.MAJOR, 17, "LOS", "Low power"),)


@pytest.mark.parametrize("driver", ["polatis-tl1", "calient-tl1", "glimmerglass-tl1"])
def test_a_session_is_logged_out_when_it_is_closed(driver, monkeypatch):
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
            Plane(PlaneId(0), "p1", driver, address, 16, 5.0, 100.0, login), timeout_s=2.0
        )
        switch.open()
        for _ in range(2):
            switch.close()
        server.join(5)
    assert [data.startswith(b"CANC-USER::admin:") for data in said] == [False] * (len(said) - 1) + [
        True
    ]


# --- Calient ------------------------------------------------------------------------------------

SIDES = "INAS=IS,INOS=IS,INOC=OK,INRS=NPR,OUTAS=OOS-NP,OUTOS=OOS,OUTOC=OK,OUTRS=NPR"
PORTS = [f"{name}:WX,NONE,NONE:{SIDES}" for name in ("1.1.2", "1.1.1", "1.2.1")]
CALIENT_START = [
    (b"ACT-USER::admin:1::root;", completed(1, "admin:admin,2", source="CAL") + b"\r\nagent>"),
    (b"RTRV-PORT::0:2;", completed(2, *PORTS, source="CAL")),
]


def connection(source: str, target: str, states: str, *, two_way: bool = False) -> str:
    name = f"{source}{'-' if two_way else '>'}{target}"
    way = "2WAY" if two_way else "1WAY"
    return (
        f"{name}:SRCPORT={source},DSTPORT={target},GRPNAME=Grp,CONNNAME={name},CONNTYPE={way},"
        f"{states},PS=UPR,AL=CL,MATRIXUSED=1"
    )


RESERVED, ON_THE_WAY, LIGHT = "AS=UMA,OS=RDY,OC=OK", "AS=IS,OS=OOS,OC=OK", "AS=IS,OS=IS,OC=OK"


def test_calient_change_waits_for_light(play):
    old, new = connection("1.1.1", "1.1.2", LIGHT), ("1.1.1", "1.2.1")
    switch = play(
        "calient-tl1",
        [
            *CALIENT_START,
            (b"RTRV-CRS:::3::ALL;", completed(3, old)),
            (b"CANC-CRS:::4::1.1.1>1.1.2;", completed(4)),
            (b"DLT-CRS:::5::1.1.1>1.1.2;", completed(5)),
            (b"ENT-CRS::1.1.1,1.2.1:6::Grp,1WAY;", completed(6)),
            (b"ACT-CRS::1.1.1,1.2.1:7::1.1.1>1.2.1,Grp;", completed(7)),
            (b"RTRV-CRS:::8::ALL;", completed(8, connection(*new, ON_THE_WAY))),
            (b"RTRV-CRS:::9::ALL;", completed(9, connection(*new, LIGHT))),
        ],
        user="admin",
        options={"group": "Grp"},
    )
    assert switch.size() == (3, 3)
    switch.change([CrossConnect(1, 5)], [CrossConnect(1, 6)])


def test_calient_makes_a_reserved_connection_anew(play):
    switch = play(
        "calient-tl1",
        [
            *CALIENT_START,
            (b"RTRV-CRS:::3::ALL;", completed(3, connection("1.1.2", "1.1.1", RESERVED))),
            (b"DLT-CRS:::4::1.1.2>1.1.1;", completed(4)),
            (b"ENT-CRS::1.1.2,1.1.1:5::HydRA,1WAY;", completed(5)),
            (b"ACT-CRS::1.1.2,1.1.1:6::1.1.2>1.1.1,HydRA;", completed(6)),
            (b"RTRV-CRS:::7::ALL;", completed(7, connection("1.1.2", "1.1.1", LIGHT))),
        ],
        user="admin",
    )
    switch.change([], [CrossConnect(2, 4)])


def test_calient_takes_down_a_two_way_connection_as_a_whole_only(play):
    both = connection("1.1.1", "1.1.2", LIGHT, two_way=True)
    switch = play(
        "calient-tl1",
        [
            *CALIENT_START,
            (b"RTRV-CRS:::3::ALL;", completed(3, both)),
            (b"RTRV-CRS:::4::ALL;", completed(4, both)),
            (b"CANC-CRS:::5::1.1.1-1.1.2;", completed(5)),
            (b"DLT-CRS:::6::1.1.1-1.1.2;", completed(6)),
            (b"RTRV-CRS:::7::ALL;", completed(7)),
        ],
        user="admin",
    )
    with pytest.raises(DeviceError, match=r"1\.1\.1-1\.1\.2 is one two-way connection"):
        switch.change([CrossConnect(1, 5)], [])
    switch.change([CrossConnect(1, 5), CrossConnect(2, 4)], [])


def test_calient_sends_several_commands_at_once(play):
    """Up to ``window`` of them, and replies may come in any order."""
    switch = play(
        "calient-tl1",
        [
            *CALIENT_START,
            (b"RTRV-CRS:::3::ALL;", completed(3)),
            (
                b"ENT-CRS::1.1.1,1.1.2:4::HydRA,1WAY;ENT-CRS::1.1.2,1.1.1:5::HydRA,1WAY;",
                completed(5) + completed(4),
            ),
            (
                b"ACT-CRS::1.1.1,1.1.2:6::1.1.1>1.1.2,HydRA;"
                b"ACT-CRS::1.1.2,1.1.1:7::1.1.2>1.1.1,HydRA;",
                completed(7) + completed(6),
            ),
            (
                b"RTRV-CRS:::8::ALL;",
                completed(
                    8, connection("1.1.1", "1.1.2", LIGHT), connection("1.1.2", "1.1.1", LIGHT)
                ),
            ),
        ],
        user="admin",
        options={"window": 2},
    )
    switch.change([], [CrossConnect(1, 5), CrossConnect(2, 4)])


def test_calient_one_item_of_several_is_refused(play):
    switch = play(
        "calient-tl1",
        [
            *CALIENT_START,
            (b"RTRV-CRS:::3::ALL;", completed(3)),
            (b"ENT-CRS::1.1.1,1.1.2:4::HydRA,1WAY;", completed(4)),
            (b"ENT-CRS::1.1.2,1.1.1:5::HydRA,1WAY;", denied(5, "SROF", "Invalid Connection")),
            (b"ACT-CRS::1.1.1,1.1.2:6::1.1.1>1.1.2,HydRA;", completed(6)),
            (b"RTRV-CRS:::7::ALL;", completed(7, connection("1.1.1", "1.1.2", LIGHT))),
        ],
        user="admin",
        options={"window": 1},
    )
    with pytest.raises(DeviceError) as caught:
        switch.change([], [CrossConnect(1, 5), CrossConnect(2, 4)])
    assert "2 to 4: ENT-CRS is refused: SROF Invalid Connection" in str(caught.value)
    assert "not connected: 2 to 4" in str(caught.value)
    assert "1 to 5" not in str(caught.value)


def test_calient_ports_and_power(play):
    summary = "ALIAS=NONE,INPWR=-2.5,OUTPWR=NONE,CONNNAME1=NONE"
    switch = play(
        "calient-tl1",
        [
            *CALIENT_START,
            (b"RTRV-PORT::0:3;", completed(3, *PORTS)),
            (b"RTRV-PORT-SUM::0:4;", completed(4, f"1.1.1:{summary}", f"1.2.1:{summary}")),
        ],
        user="admin",
    )
    assert switch.port_states([1, 6]) == {1: PortState.ENABLED, 6: PortState.ENABLED}
    assert switch.power_dbm([1, 6]) == {1: -2.5, 6: None}


# --- Glimmerglass -------------------------------------------------------------------------------

SYSTEM = [
    "GGN:SerialNumber=GG0042",
    "GGN:SystemType=System500",
    "GGN:ChassisType=3U",
    "GGN:LicensedPortMatrix=16x16",
    "GGN:SoftwareActiveVersion=5.0.1",
]


def echoed(command: bytes, reply: bytes) -> tuple[bytes, bytes]:
    return command, command.replace(b"\n", b"\r\n") + reply + b"\r\n<"


def row(source: int, target: int, state: str, cause: str = "none") -> str:
    return (
        f"GGN:IPORTID={source},IPORTNAME=from rack #1,OPORTID={target},OPORTNAME=to Force10 gi5/9,"
        f"CONNID=0,CONNSTATE={state},CONNCAUSE={cause},INPWR=-12.618,OUTPWR=-14.277,PWRLOSS=1.672,"
        "CONNLOCK=0,CONNLOCKUSER=admin"
    )


def test_glimmerglass_change_is_asynchronous(play):
    switch = play(
        "glimmerglass-tl1",
        [
            echoed(b"RTRV-SYSTEM-INFO:::1;\n", completed(1, *SYSTEM, source="GGN")),
            echoed(b"RTRV-CRS-FIBER::all:2;\n", completed(2, row(10001, 20002, "steady"))),
            echoed(b"DLT-CRS-FIBER::10001:3;\n", completed(3)),
            echoed(b"ENT-CRS-FIBER::10001&10002,20001&20002:4:::opmode=async;\n", completed(4)),
            echoed(
                b"RTRV-CRS-FIBER::all:5;\n",
                completed(5, row(10001, 20001, "steady"), row(10002, 0, "single")),
            ),
            echoed(
                b"RTRV-CRS-FIBER::all:6;\n",
                completed(6, row(10001, 20001, "steady"), row(10002, 20002, "steady")),
            ),
        ],
        greeting=b'\x1b[62;1"p\x1b>\x1b[?4l\r\n<',
    )
    switch.change([CrossConnect(1, 18)], [CrossConnect(1, 17), CrossConnect(2, 18)])


def test_glimmerglass_connected_and_in_fault(play):
    cause = "initial_connection_timer_expired"
    switch = play(
        "glimmerglass-tl1",
        [
            echoed(b"RTRV-SYSTEM-INFO:::1;\n", completed(1, *SYSTEM)),
            echoed(b"RTRV-CRS-FIBER::all:2;\n", completed(2)),
            echoed(b"ENT-CRS-FIBER::10001,20001:3:::opmode=async;\n", completed(3)),
            echoed(b"RTRV-CRS-FIBER::all:4;\n", completed(4, row(10001, 20001, "fault", cause))),
        ],
    )
    with pytest.raises(DeviceError, match=f"1 to 17 is in fault: {cause}") as caught:
        switch.change([], [CrossConnect(1, 17)])
    assert not isinstance(caught.value, OutcomeUnknown)


def test_glimmerglass_ports_and_power(play):
    def port(number: int, health: str, privileges: str) -> str:
        return (
            f"GGN:PORTID={number},PORTNAME=from 5530-stack #4,PORTDIR=input,PORTHEALTH={health},"
            f"PORTCAT=nor,PORTPRIV={privileges}"
        )

    ports = [port(10001, "good", "0x1"), port(10002, "bad", "0x1"), port(20001, "good", "0x0")]
    switch = play(
        "glimmerglass-tl1",
        [
            echoed(b"ACT-USER::admin:1::root;\n", completed(1)),
            echoed(b"RTRV-SYSTEM-INFO:::2;\n", completed(2, *SYSTEM)),
            echoed(b"RTRV-CFG-FIBER::all:3;\n", completed(3, *ports)),
            echoed(b"RTRV-PORT-POWER::all:4;\n", completed(4, "GGN:PORTID=10003,PORTPOWER=-0.951")),
        ],
        user="admin",
    )
    assert switch.port_states([1, 2, 17, 18]) == {
        1: PortState.ENABLED,
        2: PortState.FAILED,
        17: PortState.DISABLED,
        18: PortState.UNKNOWN,
    }
    assert switch.power_dbm([3, 4]) == {3: -0.951, 4: None}


SYSTEM_100 = [
    "GGN:SerialNumber=GG0100",
    "GGN:SystemType=System100",
    "GGN:ChassisType=NA",
    "GGN:LicensedPortMatrix=48x48",
    "GGN:SoftwareActiveVersion=6.0",
]


def test_glimmerglass_software_6_tells_no_rights_and_na_is_no_value(play):
    def port(number: int, name: str, health: str, category: str = "nor") -> str:
        told = f"PORTDIR=input,PORTHEALTH={health},PORTCAT={category}"
        return f"GGN:PORTID={number},PORTNAME={name},{told}"

    ports = [port(10001, "", "good"), port(10002, "", "bad"), port(10003, "NA", "NA")]
    ports += [port(20049, "MC-1", "good", "ref")]
    powers = ["GGN:PORTID=10001,PORTPOWER=NA", "GGN:PORTID=10002,PORTPOWER=-0.951"]
    switch = play(
        "glimmerglass-tl1",
        [
            echoed(b"RTRV-SYSTEM-INFO:::1;\n", completed(1, *SYSTEM_100)),
            echoed(b"RTRV-SYSTEM-INFO:::2;\n", completed(2, *SYSTEM_100)),
            echoed(b"RTRV-CFG-FIBER::all:3;\n", completed(3, *ports)),
            echoed(b"RTRV-PORT-POWER::all:4;\n", completed(4, *powers)),
        ],
    )
    assert switch.identity() == DeviceIdentity("Glimmerglass", "System100", "GG0100", "6.0")
    assert switch.port_states([1, 2, 3]) == {
        1: PortState.ENABLED,
        2: PortState.FAILED,
        3: PortState.UNKNOWN,
    }
    assert switch.power_dbm([1, 2]) == {1: None, 2: -0.951}


def test_glimmerglass_multicast_ports_are_in_use_and_no_cross_connects(play):
    rows = [row(10001, 20049, "steady"), row(10049, 20002, "steady"), row(10003, 20003, "steady")]
    switch = play(
        "glimmerglass-tl1",
        [
            echoed(b"RTRV-SYSTEM-INFO:::1;\n", completed(1, *SYSTEM_100)),
            *[
                echoed(f"RTRV-CRS-FIBER::all:{n};\n".encode(), completed(n, *rows))
                for n in (2, 3, 4)
            ],
        ],
    )
    assert switch.cross_connects() == {CrossConnect(3, 51)}
    with pytest.raises(DeviceError, match="port 1 is connected by 10001 to 20049"):
        switch.change([], [CrossConnect(1, 52)])
    with pytest.raises(DeviceError, match="port 50 is connected by 10049 to 20002"):
        switch.change([], [CrossConnect(4, 50)])


@pytest.mark.parametrize("state", ["steady", "fault"])
def test_glimmerglass_leaves_alone_what_another_user_has_locked(play, state):
    locked = row(10001, 20001, state).replace("CONNLOCK=0", "CONNLOCK=1")
    ours = locked.replace("=admin", "=ours").replace("001", "002")
    listed = completed(3, locked, ours)
    disconnected = row(10001, 20001, "steady")
    switch = play(
        "glimmerglass-tl1",
        [
            echoed(b"ACT-USER::ours:1::root;\n", completed(1)),
            echoed(b"RTRV-SYSTEM-INFO:::2;\n", completed(2, *SYSTEM_100)),
            echoed(b"RTRV-CRS-FIBER::all:3;\n", listed),
            echoed(b"RTRV-CRS-FIBER::all:4;\n", listed.replace(b"M  3", b"M  4")),
            echoed(b"DLT-CRS-FIBER::10002:5;\n", completed(5)),
            echoed(b"RTRV-CRS-FIBER::all:6;\n", completed(6, disconnected)),
        ],
        user="ours",
    )
    with pytest.raises(DeviceError, match="user admin has locked it"):
        switch.change([CrossConnect(1, 49)], [CrossConnect(1, 51)])
    switch.change([CrossConnect(2, 50)], [])


# --- Calient, ports that are plain numbers, and bulk commands -----------------------------------

PLAIN = [
    (b"ACT-USER::admin:1::root;", completed(1, source="CAL") + b"\r\nagent>"),
    (b"RTRV-PORT::0:2;", completed(2, *(f"{n}:WX,NONE,NONE:{SIDES}" for n in (1, 10, 2)))),
]
LOOPBACK = (
    "1>1:SRCPORT=1,DSTPORT=1,GRPNAME=SYSTEM,CONNNAME=LOOPBACK_001,CONNTYPE=1WAY,AS=IS,OS=IS,OC=OK,"
    "PS=UPR,AL=CL"
)


def test_calient_ports_that_are_plain_numbers(play):
    switch = play(
        "calient-tl1",
        [
            *PLAIN,
            (b"RTRV-CRS:::3::ALL;", completed(3, LOOPBACK + ",")),
            (b"RTRV-PORT-SUM::10:4;", completed(4, "10:ALIAS=NONE,INPWR=-2.5,OUTPWR=NONE")),
        ],
        user="admin",
    )
    assert switch.size() == (3, 3)
    assert switch.cross_connects() == {CrossConnect(1, 4)}
    assert switch.power_dbm([3, 6]) == {3: -2.5, 6: None}


def test_calient_reads_all_powers_in_one_exchange(play):
    powers = [f"{name}:ALIAS=NONE,INPWR=-{name}.5,OUTPWR=NONE" for name in (1, 2, 10)]
    switch = play(
        "calient-tl1",
        [*PLAIN, (b"RTRV-PORT-SUM::0:3;", completed(3, *powers))],
        user="admin",
    )
    assert switch.power_dbm([1, 2, 3, 4]) == {1: -1.5, 2: -2.5, 3: -10.5, 4: None}


def test_calient_alarm_of_a_port_that_is_a_plain_number(play):
    report = (
        b"\r\n\n   CAL 16-11-07 11:20:14\r\n** 7 REPT ALM EQPT\r\n"
        b'   "10>2:MJ,LOS,NSA,,,,:\\"Low power\\""\r\n;'
    )
    switch = play(
        "calient-tl1",
        [*PLAIN, (b"RTRV-CRS:::3::ALL;", report + completed(3))],
        user="admin",
    )
    switch.cross_connects()
    assert switch.reports() == (Alarm(Severity.MAJOR, 3, "LOS", "Low power"),)


def test_calient_bulk_change_waits_for_its_end(play):
    light = [
        connection("1", "2", LIGHT),
        connection("2", "10", LIGHT),
    ]
    switch = play(
        "calient-tl1",
        [
            *PLAIN,
            (b"RTRV-CRS:::3::ALL;", completed(3, LOOPBACK)),
            (b"DLT-CRS-BULK::1>1:4;", completed(4)),
            (b"RTRV-SAVERECALL:::5;", completed(5, "STATUS=Completed")),
            (b"ENT-CRS-BULK::1>2&2>10:6;", completed(6)),
            (b"RTRV-SAVERECALL:::7;", completed(7, "STATUS=In progress")),
            (b"RTRV-SAVERECALL:::8;", completed(8, "STATUS=Completed")),
            (b"RTRV-CRS:::9::ALL;", completed(9, *light)),
        ],
        user="admin",
        options={"bulk": True},
    )
    assert switch.capabilities.bulk
    switch.change([CrossConnect(1, 4)], [CrossConnect(1, 5), CrossConnect(2, 6)])


def test_calient_bulk_change_that_failed_in_part(play):
    switch = play(
        "calient-tl1",
        [
            *PLAIN,
            (b"RTRV-CRS:::3::ALL;", completed(3)),
            (b"ENT-CRS-BULK::1>2&2>10:4;", completed(4)),
            (b"RTRV-SAVERECALL:::5;", completed(5, "1 connections failed")),
            (b"RTRV-CRS:::6::ALL;", completed(6, connection("1", "2", LIGHT))),
        ],
        user="admin",
        options={"bulk": True},
    )
    with pytest.raises(DeviceError, match="1 connections failed; not connected: 2 to 6"):
        switch.change([], [CrossConnect(1, 5), CrossConnect(2, 6)])
