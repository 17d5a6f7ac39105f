"""Unasked text of devices: log lines, and text before an echo."""

import pytest

from drivers.codecs.unasked import is_echo, is_log_line


@pytest.mark.parametrize(
    "line",
    [
        "Oct 27 11:37 RS G8264 NOTICE link: port 5 up",
        "  Oct  7 1:37:02 10.0.0.1 NOTICE  mgmt: admin(admin) login from host",
        "*Mar  1 00:01:23.456: %LINK-3-UPDOWN: Interface Gi1/0/1, changed state to up",
        "%LINEPROTO-5-UPDOWN: Line protocol on Interface Gi1/0/1, changed state to down",
        "<189>Oct 27 11:37:02 switch link: up",
        "<14> Mar 24 05:34:05 10.131.12.183-1 UNKN[2176789276]: main_login.c(179)",
        "<165>1 2026-11-28T22:14:15.003Z switch link - - up",
        "2026-11-28 22:14:15 port 3: light lost",
        "2026 Nov 28 22:14:15 switch %ETHPORT-5-IF_UP: Interface is up",
        "Nov 28 2026 22:14:15: port 3 lost",
    ],
)
def test_log_lines(line):
    assert is_log_line(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "1       1   1G/10G   full   no   no   up    1",
        "interface port 1",
        " switchport trunk allowed vlan 1-3,",
        "% Error: unknown command",
        "%Error: no",
        "March the 3rd",
        "Oct 27",
        "3=8",
        "<12>",
        "-3.5",
    ],
)
def test_other_lines(line):
    assert not is_log_line(line)


def test_echoes():
    long = "switchport trunk allowed vlan " + ",".join(map(str, range(1, 40, 2)))
    assert is_echo("show clock", "show clock")
    assert is_echo("Oct 27 NOTICE link: upshow clock", "show clock")
    assert is_echo(long[:72], long)
    for line in ("", "show", "s", "show clocks", long[:39]):
        assert not is_echo(line, "show clock")
        assert not is_echo(line, long)
