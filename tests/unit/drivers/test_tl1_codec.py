"""The TL1 engine: events for any split, commands as in the manuals, vendors' records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drivers.codecs import calient_tl1, glimmerglass_tl1, polatis_tl1, tl1, tl1_values
from drivers.codecs.tl1 import Completion, Header
from hydra.roles import Severity

PROMPTS = ("agent>",)
HEADER = "\r\n\n   NE 16-11-07 11:20:14\r\n"
REPLY = HEADER + "M  1 COMPLD\r\n;"
FEW_BYTES = 64 * 1024
"""Limit of unfinished messages in bytes, in tests that fill the buffer."""


def events(data: bytes | str, step: int | None = None) -> list[tl1.Event]:
    raw = data.encode("latin-1") if isinstance(data, str) else data
    decoder, found = tl1.Decoder(PROMPTS), []
    for start in range(0, len(raw), step or max(1, len(raw))):
        decoder.receive(raw[start : start + (step or len(raw))])
        while (event := decoder.next_event()) is not None:
            found.append(event)
    return found


def test_a_reply():
    (reply,) = events(HEADER + 'M  12 COMPLD\r\n   "1,17"\r\n   "2,18"\r\n;')
    assert reply == tl1.Reply(
        Header("NE", "16-11-07", "11:20:14"), "12", Completion.COMPLETED, ('"1,17"', '"2,18"')
    )
    assert reply.records == ("1,17", "2,18")


def test_a_denial_has_a_code_and_a_reason():
    (reply,) = events(HEADER + "M  12 DENY\r\n   IDNV\r\n   /* Invalid OXC port: 1000 */\r\n;")
    assert (reply.completion, reply.code) == (Completion.DENIED, "IDNV")
    assert reply.reason == "IDNV Invalid OXC port: 1000"
    (bare,) = events(HEADER + "M  12 DENY\r\n;")
    assert (bare.code, bare.reason) == ("", "without a reason")


def test_the_end_is_told_without_waiting_for_more():
    decoder = tl1.Decoder()
    decoder.receive((HEADER + "M  1 COMPLD\r\n;").encode())
    assert isinstance(decoder.next_event(), tl1.Reply)


def test_blocks_are_joined_with_reports_between_them():
    data = HEADER + 'M  5 COMPLD\r\n   "a"\r\n>\r\n'
    data += HEADER + '*C 9 REPT ALM CRS\r\n   "1.1.1:CR,LOS,SA"\r\n;\r\n'
    data += HEADER + 'M  6 COMPLD\r\n   "other"\r\n;\r\n'
    data += HEADER + 'M  5 COMPLD\r\n   "b"\r\n;'
    report, other, joined = events(data)
    assert (report.alarm_code, report.tag, report.verb) == ("*C", "9", "REPT ALM CRS")
    assert (other.ctag, joined.ctag, joined.records) == ("6", "5", ("a", "b"))


def test_semicolons_in_quotes_and_comments_end_nothing():
    text = 'M  1 COMPLD\r\n   "a;\\";b"\r\n   /* c;\r\n d */\r\n;'
    (reply,) = events(HEADER + text)
    assert reply.records == ('a;";b',)
    assert reply.lines[1] == "/* c;   d */"


def test_what_stands_between_messages_is_an_echo_and_prompts_are_nothing():
    data = (
        '\x1b[62;1"p\r\nagent>RTRV-CRS:::1::ALL;\r\nagent>' + HEADER + "M  1 COMPLD\r\n;\r\nagent>"
    )
    echoes = [event.text for event in events(data) if isinstance(event, tl1.Echo)]
    assert echoes == ['[62;1"p', "RTRV-CRS:::1::ALL;"]


def test_an_acknowledgement():
    assert events("\r\nIP 12\r\n<\r\n") == [tl1.Acknowledgement("IP", "12")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HEADER + ";", "a message without a type"),
        (REPLY + HEADER + "X 1 COMPLD\r\n;", "neither a reply nor an autonomous message"),
        (HEADER + 'M  1 COMPLD\r\n"a\x00"\r\n;', "byte 0x00 in a message"),
        ("x" * (tl1.MAX_LINE_BYTES + 1), "without a line end"),
        (HEADER + "M  1 COMPLD\r\n" + "x" * FEW_BYTES, "messages of more than"),
        (HEADER + "M  1 COMPLD\r\n" + "x\n" * (FEW_BYTES // 2), "messages of more than"),
        (HEADER + "M  1 COMPLD\r\n/*" + "\n" * FEW_BYTES, "messages of more than"),
        ((HEADER + 'M  1 COMPLD\r\n   "' + "x" * 4000 + '"\r\n>') * 20, "messages of more than"),
        ("".join(f"{HEADER}M  {n} COMPLD\r\n>\r\n" for n in range(65)), "begun and not ended"),
    ],
)
def test_bytes_outside_the_grammar_are_an_error_for_good(text, reason, monkeypatch):
    monkeypatch.setattr(tl1, "MAX_MESSAGE_BYTES", FEW_BYTES)
    decoder = tl1.Decoder(PROMPTS)
    decoder.receive(text.encode())
    decoder.receive((HEADER + "M  1 COMPLD\r\n;").encode())
    for _ in range(2):
        with pytest.raises(tl1.Tl1Error, match=reason):
            while decoder.next_event() is not None:
                pass


def test_a_buffer_is_bounded_not_a_session(monkeypatch):
    monkeypatch.setattr(tl1, "MAX_MESSAGE_BYTES", FEW_BYTES)
    data = (HEADER + 'M  1 COMPLD\r\n   "' + "x" * (FEW_BYTES // 2) + '"\r\n;').encode()
    decoder = tl1.Decoder()
    for _ in range(4):
        decoder.receive(data)
        assert isinstance(decoder.next_event(), tl1.Reply)


def test_64_replies_may_be_under_way():
    blocks = (f'{HEADER}M  {n} COMPLD\r\n   "{n}"\r\n' for n in range(64))
    assert events(">\r\n".join([*blocks, f"{HEADER}M  63 COMPLD\r\n;"]))[0].records == ("63",)


@pytest.mark.parametrize(
    ("command", "sent"),
    [
        (polatis_tl1.enter_patches([(1, 17), (2, 18)]), "ENT-PATCH::1&2,17&18:5:;"),
        (polatis_tl1.delete_patches([2, 1]), "DLT-PATCH::1&2:5:;"),
        (polatis_tl1.PATCHES_QUERY, "RTRV-PATCH:::5:;"),
        (polatis_tl1.SIZE_QUERY, "RTRV-EQPT::SYSTEM:5:::PARAMETER=SIZE;"),
        (polatis_tl1.REPORTS_ON[0], "RLS-ARC-EQPT::REPMGR:5:;"),
        (polatis_tl1.REPORTS_ON[1], "RLS-ARC-EQPT::REPMGR:5::IND;"),
        (tl1.logout("admin"), "CANC-USER::admin:5:;"),
        (polatis_tl1.ALARMS_QUERY, "RTRV-ALM-ALL::ALL:5:;"),
        (polatis_tl1.shutter_query([1, 2]), "RTRV-PORT-SHUTTER::1&2:5:;"),
        (polatis_tl1.power_query([1]), "RTRV-PORT-POWER::1:5:;"),
        (calient_tl1.enter("1.1.1", "1.2.1", "Grp"), "ENT-CRS::1.1.1,1.2.1:5::Grp,1WAY;"),
        (
            calient_tl1.activate("1.1.1", "1.2.1", "Grp"),
            "ACT-CRS::1.1.1,1.2.1:5::1.1.1>1.2.1,Grp;",
        ),
        (calient_tl1.cancel("1.1.1>1.2.1"), "CANC-CRS:::5::1.1.1>1.2.1;"),
        (calient_tl1.delete("1.1.1>1.2.1"), "DLT-CRS:::5::1.1.1>1.2.1;"),
        (calient_tl1.CONNECTIONS_QUERY, "RTRV-CRS:::5::ALL;"),
        (
            glimmerglass_tl1.enter([(10001, 20005), (10002, 20006)]),
            "ENT-CRS-FIBER::10001&10002,20005&20006:5:::opmode=async;",
        ),
        (glimmerglass_tl1.delete([10001]), "DLT-CRS-FIBER::10001:5:::opmode=sync;"),
        (tl1.login("admin", "root"), "ACT-USER::admin:5::root;"),
        (tl1.login("admin", 'a;b"c\\d'), 'ACT-USER::admin:5::"a;b\\"c\\\\d";'),
    ],
)
def test_commands_as_in_the_manuals(command, sent):
    assert tl1.encode_command(command, "5") == sent


def test_a_password_is_not_in_the_repr():
    assert "sesame" not in repr(tl1.login("admin", "sesame"))


def test_a_password_that_cant_be_sent_is_not_shown():
    command = replace(tl1.login("admin", "x"), blocks=("", "se;cret"))
    with pytest.raises(tl1.Tl1Error, match="ACT-USER: a value can't be sent") as caught:
        tl1.encode_command(command, "5")
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        tl1.Command("RTRV;X"),
        tl1.Command("RTRV-X", "a:b"),
        tl1.Command("RTRV-X", "", ('"open',)),
        tl1.Command("RTRV-X", "", ("é",)),
        tl1.Command("RTRV-X", "x" * tl1.MAX_COMMAND_CHARS),
    ],
)
def test_a_command_that_would_break_the_grammar_is_refused(command):
    with pytest.raises(tl1.Tl1Error):
        tl1.encode_command(command, "5")


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (polatis_tl1.parse_patch, "1,17", (1, 17)),
        (polatis_tl1.parse_shutter, "1:OPEN", (1, "OPEN")),
        (polatis_tl1.parse_power, "1:-23.4", (1, -23.4)),
        (polatis_tl1.parse_power, "1:+3.20", (1, 3.2)),
        (polatis_tl1.parse_size, "SYSTEM:SIZE=114xCC", (114, None)),
        (polatis_tl1.parse_size, "SYSTEM:SIZE=48x48", (48, 48)),
        (polatis_tl1.parse_serial, "OCS:SN=002414", "002414"),
        (
            polatis_tl1.parse_type,
            "Polatis,N-VST,OCS,6.5.2.18",
            polatis_tl1.NetworkElement("Polatis", "N-VST", "OCS", "6.5.2.18"),
        ),
        (
            calient_tl1.parse_element,
            "CALIENT01TS:SERIALNUMBER=C00002227,SWPACKAGE=6.0-3,STATUS=OK,CHASSISTYPE=S162,"
            "PLATFORM=VERSION2",
            calient_tl1.NetworkElement("C00002227", "6.0-3", "S162"),
        ),
        (
            calient_tl1.parse_port,
            "1.1.1:WX,NONE,NONE:INAS=OOS-NP,INOS=OOS,INOC=OK,INRS=NPR,OUTAS=IS,OUTOS=OOS,"
            "OUTOC=FAIL,OUTRS=NPR",
            calient_tl1.Port(
                "1.1.1", calient_tl1.PortSide("OOS-NP", "OK"), calient_tl1.PortSide("IS", "FAIL")
            ),
        ),
        (
            calient_tl1.parse_power,
            "1.1.1:ALIAS=NONE,INPWR=-2.5,OUTPWR=NONE,CONNNAME1=NONE,CONNSTATE1=NONE",
            calient_tl1.PortPower("1.1.1", -2.5, None),
        ),
        (
            calient_tl1.parse_connection,
            "2.8.5>2.3.3:SRCPORT=2.8.5,DSTPORT=2.3.3,GRPNAME=G,CONNNAME=2.8.5>2.3.3,"
            "CONNTYPE=1WAY,AS=UMA,OS=RDY,OC=FAIL,PS=UPR,AL=CL",
            calient_tl1.CrossConnectRow(
                "2.8.5>2.3.3", "2.8.5", "2.3.3", False, "UMA", "RDY", "FAIL", "CL"
            ),
        ),
        (
            calient_tl1.parse_connection,
            "x:SRCPORT=1.1.1,DSTPORT=1.1.2,CONNNAME=NONE,CONNTYPE=2WAY,AS=IS,OS=IS,OC=OK",
            calient_tl1.CrossConnectRow("", "1.1.1", "1.1.2", True, "IS", "IS", "OK", "CL"),
        ),
        (
            glimmerglass_tl1.parse_connection,
            "GGN:IPORTID=10042,IPORTNAME=from Bea, room 7,OPORTID=20058,OPORTNAME=to #4 gi5/9,"
            "CONNID=0,CONNSTATE=steady,CONNCAUSE=none,INPWR=-12.618,OUTPWR=-14.277,PWRLOSS=1.672,"
            "CONNLOCK=0,CONNLOCKUSER=admin",
            glimmerglass_tl1.CrossConnectRow(10042, 20058, "steady", "none"),
        ),
        (
            glimmerglass_tl1.parse_connection,
            "GGN:IPORTID=10001,IPORTNAME=,OPORTID=0,OPORTNAME=,CONNSTATE=single,CONNCAUSE=none",
            glimmerglass_tl1.CrossConnectRow(10001, None, "single", "none"),
        ),
        (
            glimmerglass_tl1.parse_power,
            "GGN:PORTID=10003,PORTPOWER=-0.951",
            (10003, -0.951),
        ),
        (
            glimmerglass_tl1.parse_port,
            "GGN:PORTID=10064,PORTNAME=from 5530-stack #4,PORTDIR=input,PORTHEALTH=good,"
            "PORTCAT=nor,PORTPRIV=0x1",
            glimmerglass_tl1.Port(10064, True, "0x1"),
        ),
        (
            tl1_values.parse_alarm,
            '1-A-2-2,OTU4:MN,LOS,NSA,11-05,06-46-17,,,:"Loss of Signal"',
            tl1_values.AlarmRecord("1-A-2-2", Severity.MINOR, "LOS", "Loss of Signal"),
        ),
        (
            tl1_values.parse_alarm,
            "17:CL,LOS,NSA",
            tl1_values.AlarmRecord("17", Severity.CLEARED, "LOS", ""),
        ),
    ],
)
def test_records_as_in_captures(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (polatis_tl1.parse_patch, "1,17,3"),
        (polatis_tl1.parse_patch, "0,17"),
        (polatis_tl1.parse_power, "1:bright"),
        (polatis_tl1.parse_size, "SIZE=48x48"),
        (polatis_tl1.parse_type, "Polatis"),
        (polatis_tl1.parse_serial, "OCS"),
        (calient_tl1.parse_port, "1.1:A,B,C:INAS=IS,INOC=OK,OUTAS=IS,OUTOC=OK"),
        (calient_tl1.parse_port, "1.1.1:A,B,C:INAS=IS"),
        (calient_tl1.parse_connection, "x:SRCPORT=1.1.1,DSTPORT=1.1.2,CONNTYPE=3WAY"),
        (calient_tl1.parse_connection, "x:SRCPORT=1.1.1,SRCPORT=1.1.2"),
        (glimmerglass_tl1.parse_power, "GGN:PORTID=30003,PORTPOWER=-0.951"),
        (glimmerglass_tl1.parse_connection, "IPORTID=10001"),
        (tl1_values.parse_alarm, "17"),
        (tl1_values.parse_alarm, "17:CR"),
    ],
)
def test_bad_records_are_refused(parse, text):
    with pytest.raises(tl1.Tl1Error):
        parse(text)


def test_calient_ports_are_counted_by_their_names():
    names = ["1.2.1", "1.1.10", "2.1.1", "1.1.2", "1.1.1"]
    assert sorted(names, key=calient_tl1.port_order) == [
        "1.1.1",
        "1.1.2",
        "1.1.10",
        "1.2.1",
        "2.1.1",
    ]
