"""Every byte of Polatis' TL1 between driver and device, by the manuals and captures."""

from __future__ import annotations

import pytest

from hydra.errors import DeviceError, OutcomeUnknown, ProtocolError
from hydra.model import CrossConnect
from hydra.roles import Alarm, DeviceIdentity, PortState, Severity
from tests.unit.drivers.scripted import VARIABLE, completed, denied

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


def test_polatis_tl1_a_part_of_the_cross_connects_is_not_taken_for_all(play):
    partial = completed(4, "1,17").replace(b"COMPLD", b"PRTL")
    switch = play("polatis-tl1", [*POLATIS_START, (b"RTRV-PATCH:::4:;\n", partial)], user="admin")
    with pytest.raises(ProtocolError, match="RTRV-PATCH is answered in part"):
        switch.cross_connects()


def test_polatis_tl1_a_refusal_to_read_back_leaves_the_outcome_unknown(play):
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_START,
            (b"RTRV-PATCH:::4:;\n", completed(4)),
            (b"ENT-PATCH::1,17:5:;\n", completed(5)),
            (b"RTRV-PATCH:::6:;\n", denied(6, "SARB", "Busy")),
        ],
        user="admin",
    )
    with pytest.raises(OutcomeUnknown, match="refuses RTRV-PATCH: SARB Busy"):
        switch.change([], [CrossConnect(1, 17)])


def test_polatis_tl1_an_alarm_that_can_not_be_read_is_told_as_it_came(play):
    alarms = completed(3, "fan 2 is slow", "17:MJ,LOS,NSA,,,,:low")
    switch = play(
        "polatis-tl1", [*POLATIS_LOGIN, (b"RTRV-ALM-ALL::ALL:3:;\n", alarms)], user="admin"
    )
    assert switch.alarms() == (
        Alarm(Severity.MINOR, None, "unreadable", "fan 2 is slow"),
        Alarm(Severity.MAJOR, 17, "LOS", ""),
    )


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


@pytest.mark.parametrize(
    ("code", "text"),
    [("PICC", "Permission denied"), ("PIUI", "Not logged in"), ("SNVS", "Login Not Active")],
)
def test_a_session_that_was_logged_out_repeats_what_was_refused(play, code, text):
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
    with pytest.raises(DeviceError, match="user admin may lack the right") as caught:
        switch.alarms()
    assert "password" not in str(caught.value)


def test_a_login_that_is_refused_for_want_of_a_session_says_so(play):
    refusal = denied(1, "PICC", "Too many sessions")
    switch = play("polatis-tl1", [(b"ACT-USER::admin:1::root;\n", refusal)], user="admin")
    with pytest.raises(DeviceError, match="no session is free: log out another client"):
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
    with pytest.raises(DeviceError, match="port 2 is connected to 1, on the same side"):
        switch.change([], [CrossConnect(2, 5)])
    switch.change([CrossConnect(3, 7)], [CrossConnect(4, 7)])


def test_polatis_tl1_attenuators_and_thresholds(play, caplog):
    modes = "ATTEN::CONFIG=ABSOLUTE"
    attenuators = ["5:NONE,,", "6:ABS,-10.0,", "7:FIX,,", "8:REL,2.0,4"]
    thresholds = ["5:CONT,LOW,25.0,-60.0", "6:OFF,LOW,25.0,-60.0", "7:SINGLE,LOW,25.0,-20.0"]
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_LOGIN,
            (b"RTRV-EQPT::SYSTEM:3:::PARAMETER=SIZE;\n", completed(3, "SYSTEM:SIZE=4x4")),
            (b"RTRV-EQPT::ATTEN:4:::PARAMETER=CONFIG;\n", completed(4, modes)),
            (b"RTRV-PORT-ATTEN::5&6&7&8:5:;\n", completed(5, *attenuators)),
            (b"RTRV-TH-PMON:::6:;\n", completed(6, *thresholds)),
            (b"RTRV-PATCH:::7:;\n", completed(7)),
            (b"RTRV-EQPT::ATTEN:8:::PARAMETER=CONFIG;\n", completed(8, modes)),
            (b"RTRV-PORT-ATTEN::6&8:9:;\n", completed(9, "6:ABS,-10.0,", "8:REL,2.0,4")),
        ],
        user="admin",
        options={"min_input_dbm": -4.0, "loss_budget_db": 3.0},
    )
    switch.open()
    for told in (
        "port 6 limits the light to -10.00 dBm (ABS), 6.00 dB below",
        "port 7 attenuates light (FIX), by an unreported amount",
        "port 5 has an alarm below -60.00 dBm",
        "port 6 has the alarm switched off",
    ):
        assert told in caplog.text
    assert "port 8" not in caplog.text
    with pytest.raises(DeviceError, match=r"port 6 limits the light to .*nothing was moved"):
        switch.change([], [CrossConnect(1, 8), CrossConnect(2, 6)])


@pytest.mark.parametrize("answer", [completed(4, "ATTEN::CONFIG=NONE"), denied(4, "ICNV", "what?")])
def test_polatis_tl1_without_attenuators(play, answer):
    switch = play(
        "polatis-tl1",
        [
            *POLATIS_START,
            (b"RTRV-EQPT::ATTEN:4:::PARAMETER=CONFIG;\n", answer),
            (b"RTRV-PATCH:::5:;\n", completed(5)),
            (b"RTRV-EQPT::ATTEN:6:::PARAMETER=CONFIG;\n", answer.replace(b"M  4", b"M  6")),
            (b"ENT-PATCH::1,17:7:;\n", completed(7)),
            (b"RTRV-PATCH:::8:;\n", completed(8, "1,17")),
        ],
        user="admin",
        options={"loss_budget_db": 3.0},
    )
    switch.open()
    switch.change([], [CrossConnect(1, 17)])


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
