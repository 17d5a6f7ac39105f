"""Every byte of Glimmerglass' TL1 between driver and device, by the manuals and captures."""

from __future__ import annotations

import pytest

from hydra.errors import DeviceError, OutcomeUnknown
from hydra.model import CrossConnect
from hydra.roles import DeviceIdentity, PortState
from tests.unit.drivers.scripted import completed

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
            echoed(b"DLT-CRS-FIBER::10001:3:::opmode=sync;\n", completed(3)),
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
    def port(number: int | str, name: str, health: str, category: str = "nor") -> str:
        told = f"PORTDIR=input,PORTHEALTH={health},PORTCAT={category}"
        return f"GGN:PORTID={number},PORTNAME={name},{told}"

    ports = [port(10001, "", "good"), port(10002, "", "bad"), port(10003, "NA", "NA")]
    ports += [port(20049, "MC-1", "good", "ref"), port("NA", "NA", "NA")]
    powers = ["GGN:PORTID=10001,PORTPOWER=NA", "GGN:PORTID=10002,PORTPOWER=-0.951"]
    powers += ["GGN:PORTID=NA,PORTPOWER=NA"]
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
            echoed(b"DLT-CRS-FIBER::10002:5:::opmode=sync;\n", completed(5)),
            echoed(b"RTRV-CRS-FIBER::all:6;\n", completed(6, disconnected)),
        ],
        user="ours",
    )
    with pytest.raises(DeviceError, match="locked by user admin"):
        switch.change([CrossConnect(1, 49)], [CrossConnect(1, 51)])
    switch.change([CrossConnect(2, 50)], [])
