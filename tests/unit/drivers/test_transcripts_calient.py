"""Every byte of Calient's TL1 between driver and device, by the manuals and captures."""

from __future__ import annotations

import pytest

from drivers import looks
from hydra.errors import DeviceError, OutcomeUnknown
from hydra.model import CrossConnect
from hydra.roles import Alarm, PortState, Severity
from tests.unit.drivers.scripted import completed, denied

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
    """Up to ``window`` commands at a time; replies may come in any order."""
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


@pytest.fixture
def looks_once(monkeypatch):
    """No pause between two reads is short enough for a second read."""
    monkeypatch.setattr(looks, "_FIRST_PAUSE_S", 1000)


# --- Ports that are plain numbers, and bulk commands --------------------------------------------

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


@pytest.fixture
def bulk(play):
    """``bulk(exchange, …)`` → a driver with bulk commands; once open, its device expects these."""
    options = {"bulk": True}
    return lambda *script: play("calient-tl1", [*PLAIN, *script], user="admin", options=options)


def test_calient_bulk_change_waits_for_its_end(bulk):
    light = [
        connection("1", "2", LIGHT),
        connection("2", "10", LIGHT),
    ]
    switch = bulk(
        (b"RTRV-CRS:::3::ALL;", completed(3, LOOPBACK)),
        (b"RTRV-SAVERECALL:::4;", completed(4, "STATUS=Failed")),
        (b"DLT-CRS-BULK::1>1:5;", completed(5)),
        (b"RTRV-SAVERECALL:::6;", completed(6, "STATUS=Completed")),
        (b"RTRV-CRS:::7::ALL;", completed(7)),
        (b"RTRV-SAVERECALL:::8;", completed(8, "STATUS=Completed")),
        (b"ENT-CRS-BULK::1>2&2>10:9;", completed(9)),
        (b"RTRV-SAVERECALL:::10;", completed(10, "STATUS=In progress")),
        (b"RTRV-CRS:::11::ALL;", completed(11, light[0])),
        (b"RTRV-SAVERECALL:::12;", completed(12, "STATUS=Completed")),
        (b"RTRV-CRS:::13::ALL;", completed(13, *light)),
    )
    assert switch.capabilities.bulk
    switch.change([CrossConnect(1, 4)], [CrossConnect(1, 5), CrossConnect(2, 6)])


@pytest.mark.usefixtures("looks_once")
def test_calient_bulk_change_that_failed_in_part(bulk):
    switch = bulk(
        (b"RTRV-CRS:::3::ALL;", completed(3)),
        (b"RTRV-SAVERECALL:::4;", denied(4, "SNVS", "No save or recall yet")),
        (b"ENT-CRS-BULK::1>2&2>10:5;", completed(5)),
        (b"RTRV-SAVERECALL:::6;", completed(6, "1 connections failed")),
        (b"RTRV-CRS:::7::ALL;", completed(7, connection("1", "2", LIGHT))),
        (b"RTRV-CRS:::8::ALL;", completed(8, connection("1", "2", LIGHT))),
    )
    with pytest.raises(DeviceError, match="1 connections failed; not connected: 2 to 6"):
        switch.change([], [CrossConnect(1, 5), CrossConnect(2, 6)])


def test_calient_what_is_said_of_an_earlier_bulk_command_is_not_believed(bulk):
    """*Failed* belongs to an earlier connection here, and stays until the new connections are
    made.
    """
    said, made = "STATUS=Failed", connection("1", "2", LIGHT)
    switch = bulk(
        (b"RTRV-CRS:::3::ALL;", completed(3, LOOPBACK)),
        (b"RTRV-SAVERECALL:::4;", completed(4, said)),
        (b"DLT-CRS-BULK::1>1:5;", completed(5)),
        (b"RTRV-SAVERECALL:::6;", completed(6, said)),
        (b"RTRV-CRS:::7::ALL;", completed(7, LOOPBACK)),
        (b"RTRV-SAVERECALL:::8;", completed(8, said)),
        (b"RTRV-CRS:::9::ALL;", completed(9)),
        (b"RTRV-SAVERECALL:::10;", completed(10, said)),
        (b"ENT-CRS-BULK::1>2:11;", completed(11)),
        (b"RTRV-SAVERECALL:::12;", completed(12, said)),
        (b"RTRV-CRS:::13::ALL;", completed(13, made)),
        (b"RTRV-CRS:::14::ALL;", completed(14, made)),
    )
    switch.change([CrossConnect(1, 4)], [CrossConnect(1, 5)])


def test_calient_waits_for_somebody_elses_bulk_command(bulk):
    made = connection("1", "2", LIGHT)
    switch = bulk(
        (b"RTRV-CRS:::3::ALL;", completed(3)),
        (b"RTRV-SAVERECALL:::4;", completed(4, "In progress")),
        (b"RTRV-SAVERECALL:::5;", completed(5, "Completed")),
        (b"ENT-CRS-BULK::1>2:6;", completed(6)),
        (b"RTRV-SAVERECALL:::7;", completed(7, "PROGRESS=100,STATUS=Completed")),
        (b"RTRV-CRS:::8::ALL;", completed(8, made)),
        (b"RTRV-CRS:::9::ALL;", completed(9, made)),
    )
    switch.change([], [CrossConnect(1, 5)])


@pytest.mark.parametrize("end", ["Completed", "Failed"])
def test_calient_the_end_of_a_command_that_came_before_ours_is_not_believed(bulk, end):
    """Another client's command was sent between the driver's read and its command, and is carried
    out first.
    """
    made = connection("1", "2", LIGHT)
    switch = bulk(
        (b"RTRV-CRS:::3::ALL;", completed(3, LOOPBACK)),
        (b"RTRV-SAVERECALL:::4;", completed(4, "Completed")),
        (b"DLT-CRS-BULK::1>1:5;", completed(5)),
        (b"RTRV-SAVERECALL:::6;", completed(6, "In progress")),
        (b"RTRV-SAVERECALL:::7;", completed(7, end)),
        (b"RTRV-CRS:::8::ALL;", completed(8, LOOPBACK)),
        (b"RTRV-SAVERECALL:::9;", completed(9, "In progress")),
        (b"RTRV-SAVERECALL:::10;", completed(10, "Completed")),
        (b"RTRV-CRS:::11::ALL;", completed(11)),
        (b"RTRV-SAVERECALL:::12;", completed(12, "Completed")),
        (b"ENT-CRS-BULK::1>2:13;", completed(13)),
        (b"RTRV-SAVERECALL:::14;", completed(14, "In progress")),
        (b"RTRV-CRS:::15::ALL;", completed(15, made)),
        (b"RTRV-CRS:::16::ALL;", completed(16, made)),
    )
    switch.change([CrossConnect(1, 4)], [CrossConnect(1, 5)])


def test_calient_the_failure_of_a_command_that_came_before_ours_is_not_believed(bulk):
    """Nor if the driver's connection is in the same place: it is made while the switch still
    reports *Failed*.
    """
    made = connection("1", "2", LIGHT)
    switch = bulk(
        (b"RTRV-CRS:::3::ALL;", completed(3)),
        (b"RTRV-SAVERECALL:::4;", completed(4, "Completed")),
        (b"ENT-CRS-BULK::1>2:5;", completed(5)),
        (b"RTRV-SAVERECALL:::6;", completed(6, "Failed")),
        (b"RTRV-CRS:::7::ALL;", completed(7)),
        (b"RTRV-SAVERECALL:::8;", completed(8, "Failed")),
        (b"RTRV-CRS:::9::ALL;", completed(9, made)),
        (b"RTRV-CRS:::10::ALL;", completed(10, made)),
    )
    switch.change([], [CrossConnect(1, 5)])


@pytest.mark.parametrize("is_made", [True, False])
def test_calient_a_bulk_command_refused_for_the_sake_of_its_like(bulk, is_made):
    """A like command was sent before, its answer got lost, and the switch still carries it out."""
    rows = [connection("1", "2", LIGHT)] if is_made else []
    switch = bulk(
        (b"RTRV-CRS:::3::ALL;", completed(3)),
        (b"RTRV-SAVERECALL:::4;", completed(4, "Completed")),
        (b"ENT-CRS-BULK::1>2:5;", denied(5, "SROF", "Invalid Connection")),
        (b"RTRV-SAVERECALL:::6;", completed(6, "In progress")),
        (b"RTRV-CRS:::7::ALL;", completed(7, connection("1", "2", ON_THE_WAY))),
        (b"RTRV-SAVERECALL:::8;", completed(8, "Completed")),
        (b"RTRV-CRS:::9::ALL;", completed(9, *rows)),
        (b"RTRV-CRS:::10::ALL;", completed(10, *rows)),
    )
    if is_made:
        switch.change([], [CrossConnect(1, 5)])
    else:
        with pytest.raises(DeviceError, match="is refused: SROF Invalid Connection"):
            switch.change([], [CrossConnect(1, 5)])


@pytest.mark.usefixtures("looks_once")
def test_calient_sends_no_bulk_command_while_another_is_under_way(bulk):
    switch = bulk(
        (b"RTRV-CRS:::3::ALL;", completed(3)),
        (b"RTRV-SAVERECALL:::4;", completed(4, "In progress")),
    )
    with pytest.raises(DeviceError, match="a different bulk command is under way") as caught:
        switch.change([], [CrossConnect(1, 5)])
    assert not isinstance(caught.value, OutcomeUnknown)


@pytest.mark.usefixtures("looks_once")
def test_calient_nothing_is_connected_while_a_bulk_command_still_disconnects(bulk):
    """Commands under way at the time-out may still take effect: the outcome is unknown."""
    switch = bulk(
        (b"RTRV-CRS:::3::ALL;", completed(3, LOOPBACK)),
        (b"RTRV-SAVERECALL:::4;", completed(4, "Completed")),
        (b"DLT-CRS-BULK::1>1:5;", completed(5)),
        (b"RTRV-SAVERECALL:::6;", completed(6, "In progress")),
        (b"RTRV-CRS:::7::ALL;", completed(7, LOOPBACK)),
    )
    with pytest.raises(OutcomeUnknown, match="tearing down: DLT-CRS-BULK: In progress"):
        switch.change([CrossConnect(1, 4)], [CrossConnect(1, 5)])


# --- Connections that are not quite ours ---------------------------------------------------------


def nameless(source: str, target: str, name: str = "") -> str:
    row = connection(source, target, LIGHT)
    return row.replace(f"CONNNAME={source}>{target}", f"CONNNAME={name}")


def test_calient_connections_without_a_name_go_by_their_ends(play):
    """Two such connections stay two: neither is taken for the other, or for half of it."""
    one, other = nameless("1", "2"), nameless("2", "10", "NONE")
    switch = play(
        "calient-tl1",
        [
            *PLAIN,
            (b"RTRV-CRS:::3::ALL;", completed(3, one, other)),
            (b"CANC-CRS:::4::1>2;", completed(4)),
            (b"DLT-CRS:::5::1>2;", completed(5)),
            (b"RTRV-CRS:::6::ALL;", completed(6, other)),
        ],
        user="admin",
    )
    switch.change([CrossConnect(1, 5)], [])


def test_calient_deletes_by_no_name_that_two_connections_go_by(play):
    rows = nameless("1", "2"), nameless("2", "10", "1>2"), nameless("10", "1", "x")
    switch = play(
        "calient-tl1", [*PLAIN, (b"RTRV-CRS:::3::ALL;", completed(3, *rows))], user="admin"
    )
    with pytest.raises(DeviceError, match="2 connections of the switch have the name 1>2"):
        switch.change([CrossConnect(1, 5), CrossConnect(3, 4)], [])


def test_calient_connections_of_other_kinds_take_ports_and_no_reading_down(play, caplog):
    rows = [
        connection("1", "99", LIGHT),
        connection("2", "2", LIGHT).replace("=1WAY", "=1PLUS1"),
        connection("10", "1", LIGHT),
    ]
    listed = [(f"RTRV-CRS:::{n}::ALL;".encode(), completed(n, *rows)) for n in (3, 4, 5)]
    switch = play("calient-tl1", [*PLAIN, *listed], user="admin")
    assert switch.cross_connects() == {CrossConnect(3, 4)}
    with pytest.raises(DeviceError, match="port 1 is in use by connection 1>99"):
        switch.change([], [CrossConnect(1, 6)])
    with pytest.raises(DeviceError, match="port 5 is in use by connection 2>2"):
        switch.change([CrossConnect(3, 4)], [CrossConnect(3, 5)])
    (line,) = [record for record in caplog.messages if "left out" in record]
    assert line == (
        "p1: left out of the device's cross-connects: connection 1>99 uses port 99, missing in the "
        "list of ports; connection 2>2 is neither one-way nor two-way"
    )
