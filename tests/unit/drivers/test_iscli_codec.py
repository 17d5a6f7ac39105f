"""The isCLI codec: a terminal's bytes in any split; lists and tables in the switches' format."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drivers.codecs import iscli
from drivers.codecs.iscli import IscliError, Membership, Pager, PasswordWanted, Reply
from mininet_scenarios.emulators.g8264_switch import G8264, OldG8264, Place

GREETING = b"\r\nIBM Networking Operating System RackSwitch G8264.\r\n\r\nRS G8264>"
LEARNED = GREETING + b"!hydra\r\nRS G8264>"
PIECES = st.lists(
    st.sampled_from(
        [
            b"RS G8264>", b"RS G8264(config-if)#", b"RS G8264#", b"\r\n", b"\n\r", b"\r", b"\x08",
            b"!hydra", b"show version\r\n", iscli.PAGER.encode(), b"\x00\x07", b"Password:",
            b"\xe9",            b"\x1b[0m", b" ", b"Error: no", b"interface port 1-5,19\r\n", b"#",
        ]
    )
    | st.binary(max_size=8)
).map(b"".join)  # fmt: skip
VLANS = st.sets(st.integers(1, 4094), min_size=1)
TEXT = st.text(st.characters(max_codepoint=0x7F), max_size=60) | st.text(max_size=20)
LINES = st.lists(
    st.sampled_from(
        [
            "interface port 1-5,19", "interface port MGT", "        switchport mode trunk", "exit",
            "        switchport trunk allowed vlan 27,2000,", "                30-40,", "!", "end",
            "        switchport trunk allowed vlan add 5", "switchport nonsense",
            "switchport trunk allowed vlan remove 27", "switchport access vlan 3",
            "switchport trunk native vlan 7",
            "Alias   Port   Speed    Duplex     Flow Ctrl      Link     Description",
            "1  1  10000  full  no no  up  1", "switchport trunk allowed vlan none",
        ]
    )
    | TEXT
)  # fmt: skip


def events(chunks):
    """(events, error) after feeding these chunks."""
    terminal, found = iscli.Terminal(), []
    try:
        for chunk in chunks:
            terminal.receive(chunk)
            while (event := terminal.next_event()) is not None:
                found.append(event)
    except IscliError as error:
        return found, str(error)
    return found, None


@given(PIECES | PIECES.map(LEARNED.__add__))
@example(LEARNED + b"show x\r\n1\r\nRS G8264>")
def test_the_same_bytes_give_the_same_events_however_they_are_split(data):
    assert events([data]) == events([data[i : i + 1] for i in range(len(data))])


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", [Reply("!hydra", (), ">")]),
        (
            b"enable\r\n\r\nEnable privilege granted.\r\nRS G8264#",
            [
                Reply("!hydra", (), ">"),
                Reply("enable", ("", "Enable privilege granted."), "#"),
            ],
        ),
        (b" show x\r\nEnter password: ", [Reply("!hydra", (), ">"), PasswordWanted()]),
        (
            b"show x\r\na\r\nPress q to quit, any other key to continue\r"
            + b" " * 42
            + b"\rb\r\nRS G8264>",
            [Reply("!hydra", (), ">"), Pager(), Reply("show x", ("a", "b"), ">")],
        ),
        (
            b"conf\r\n\x07RS G8264(config)# interface port 1\r\nRS G8264(config-if)#",
            [
                Reply("!hydra", (), ">"),
                Reply("conf", (), "(config)#"),
                Reply("interface port 1", (), "(config-if)#"),
            ],
        ),
        (
            b"\r\nOct 27 NOTICE link: up\r\nRS G8264>show x\r\nabx\x08\x08c\r\nRS G8264>",
            [
                Reply("!hydra", (), ">"),
                Reply("", ("Oct 27 NOTICE link: up",), ">"),
                Reply("show x", ("ac",), ">"),
            ],
        ),
    ],
)
def test_what_a_session_looks_like(data, found):
    assert events([LEARNED + data]) == (found, None)


def test_the_name_is_taken_from_the_line_that_echoes_the_mark():
    terminal = iscli.Terminal()
    terminal.receive(b"Rack #4: authorised users only\r\nsw-1.lab#")
    assert terminal.may_be_prompt
    assert not terminal.named
    terminal.receive(b" !hydra\r\nsw-1.lab#")
    assert terminal.named
    assert terminal.next_event() == Reply("!hydra", (), "#")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("% Error: unknown command", True),
        ("Error: there is no port 99", True),
        ("  % Invalid input at '^' marker.", True),
        ("% Incomplete command", True),
        ("Ambiguous command", True),
        ("'5' returned error code 3", True),
        ("0 input errors, 0 CRC", False),
        ("Errors are counted below", False),
        ("Enable privilege granted.", False),
    ],
)
def test_what_is_an_error(line, error):
    assert (Reply("x", (line,), "#").error is not None) == error


def test_bytes_outside_the_grammar_end_the_session_for_good():
    terminal = iscli.Terminal()
    terminal.receive(LEARNED + b"\x1b[2J")
    assert terminal.next_event() == Reply("!hydra", (), ">")
    for _ in range(2):
        with pytest.raises(IscliError, match="byte 0x1b"):
            terminal.next_event()
    terminal.receive(b"RS G8264>")
    with pytest.raises(IscliError):
        terminal.next_event()


@pytest.mark.parametrize("excess", [0, 1])
def test_a_line_has_a_longest_length(excess):
    line = b"x" * (iscli.MAX_LINE_CHARACTERS + excess)
    told = "a line of more than 4096 characters" if excess else None
    assert events([LEARNED + b"show x\r\n" + line])[1] == told


def test_a_reply_has_a_longest_length_and_what_exceeds_it_asks_for_no_user(monkeypatch):
    monkeypatch.setattr(iscli, "MAX_REPLY_CHARACTERS", 6)
    terminal = iscli.Terminal()
    terminal.receive(LEARNED)
    terminal.expect("show x")
    terminal.receive(b"show x\r\nabc\r\nd\r\nRS G8264>")
    assert terminal.next_event() == Reply("!hydra", (), ">")
    assert terminal.next_event() == Reply("show x", ("abc", "d"), ">")
    terminal.receive(b"show x\r\nabc\r\nde\r\n")
    with pytest.raises(IscliError, match="a reply of more than 6 characters"):
        terminal.next_event()
    assert not terminal.asks_for_user


@given(LINES)
def test_arbitrary_lines_give_a_table_or_an_error_and_nothing_else(lines):
    for parse in (iscli.parse_memberships, iscli.parse_links):
        try:
            parse(lines)
        except IscliError:
            continue


@pytest.mark.parametrize(
    "lines",
    [
        ("interface port 1", " switchport trunk allowed vlan 1-5,27,", "NOTICE link up on port 3"),
        ("interface port 1-4,", "NOTICE  link up on port 3", "9", " switchport mode trunk"),
    ],
)
def test_a_list_that_something_stands_in_the_middle_of_is_not_read_in_part(lines):
    with pytest.raises(IscliError, match=r"an incomplete list of numbers: '1-[45],"):
        iscli.parse_memberships([*lines, "200,300", "!"])


@given(TEXT | st.text("0123456789-,", max_size=30))
def test_lists_of_numbers_survive(text):
    try:
        numbers = iscli.parse_numbers(text)
    except IscliError:
        return
    assert iscli.parse_numbers(",".join(map(str, numbers))) == numbers


@given(st.sets(st.integers(1, 64), min_size=1), VLANS, st.integers(1, 4094))
def test_what_is_configured_is_what_the_configuration_says(ports, allowed, native):
    commands = list(iscli.trunk_commands(ports, allowed, native))
    assert all(len(iscli.encode_line(command)) <= 241 for command in commands)
    assert iscli.parse_memberships(commands) == {
        port: Membership(True, native, frozenset(allowed)) for port in ports
    }


def test_commands_as_in_the_manual():
    assert list(iscli.trunk_commands([1, 2, 3, 4, 5, 19], [27, 2000], 27)) == [
        "interface port 1-5,19",
        "switchport trunk allowed vlan 27,2000",
        "switchport trunk native vlan 27",
        "switchport mode trunk",
        "exit",
    ]


@pytest.mark.parametrize("before", [[], ["switchport access vlan 5"]])
def test_no_vlan_is_open_for_a_moment_that_was_not_and_will_not_be(before):
    switch, place = G8264(), Place(configuring=True)
    wanted = {*range(100, 200, 3), 300}
    for command in ("interface port 1", *before):
        switch.configure(place, command)
    first = set(switch.ports[1].carries)
    switch.carried[1].clear()
    for command in iscli.trunk_commands([1], wanted, 300):
        switch.configure(place, command)
    assert switch.ports[1].carries == wanted
    assert switch.carried[1] <= first | wanted


OLD_LINES = ["tagging", "        pvid 10", "        member 1-4,7", "member 3"]


@pytest.mark.parametrize("line", OLD_LINES)
def test_the_older_command_line_is_not_misread(line):
    lines = ["Current configuration:", "interface port 1", line]
    with pytest.raises(IscliError, match=f"'{line.strip()}' is of the older command line"):
        iscli.parse_memberships(lines)
    assert iscli.parse_memberships(["iscli-new", *lines]) == {}


def test_the_configuration_of_an_older_switch_is_not_misread():
    with pytest.raises(IscliError, match="older command line"):
        iscli.parse_memberships(OldG8264().running_config())


def test_lines_around_the_table_of_links_are_no_ports():
    switch = G8264()
    switch.ports[2].up = False
    links = iscli.parse_links([*switch.status(), "Total 65 ports, 64 are up 1 is down"])
    assert links == {**{f"{n}": n != 2 for n in range(1, 65)}, "65": True, "MGT": True}


LOGGED = "Oct 27 11:37:02 RS-G8264 NOTICE link: link up on port 3"


@pytest.mark.parametrize("row", [4, 5, 40, 66])
def test_a_log_line_in_the_table_of_links_hides_no_port(row):
    lines = list(G8264().status())
    whole = iscli.parse_links(lines)
    assert iscli.parse_links([*lines[:row], "", LOGGED, *lines[row:]]) == whole
    assert len(whole) >= 65


def test_other_text_in_the_table_of_links_is_refused():
    """The line may be a part of a row: no port may vanish."""
    lines = list(G8264().status())
    with pytest.raises(IscliError, match="'link up on port 3' stands in the middle of the table"):
        iscli.parse_links([*lines[:20], "link up on port 3", *lines[20:]])


def test_a_log_line_in_a_configuration_is_no_part_of_it():
    lines = ["interface port 1-4,", LOGGED, "9", " switchport access vlan 7", LOGGED, "!"]
    assert set(iscli.parse_memberships(lines)) == {1, 2, 3, 4, 9}


def test_a_configuration_as_a_switch_prints_it():
    lines = """Current configuration:
!
version "7.8.1"
switch-type "IBM Networking Operating System RackSwitch G8264"
iscli-new
!
interface port 29
        no learning
        switchport mode trunk
        switchport trunk allowed vlan 1-3,
                              27,2000
        exit
!
interface port 29
        switchport trunk allowed vlan add 5
        switchport trunk allowed vlan remove 2
        switchport trunk native vlan 27
        exit
!
interface port MGT
        switchport access vlan 4000
        exit
interface port 30-31
        switchport access vlan 12
        exit
!
interface ip 128
        enable
        exit
end
""".splitlines()
    everything = frozenset(range(1, 4095))
    assert iscli.parse_memberships(lines) == {
        29: Membership(True, 27, frozenset({1, 3, 5, 27, 2000})),
        30: Membership(False, 12, everything),
        31: Membership(False, 12, everything),
    }


@pytest.mark.parametrize(
    "line",
    [
        "switchport trunk allowed vlan 0",
        "switchport trunk allowed vlan 5-3",
        "switchport trunk allowed vlan x",
        "switchport trunk allowed vlan",
        "switchport trunk native vlan 4095",
        "switchport access vlan 1-2",
    ],
)
def test_bad_lines_are_refused(line):
    with pytest.raises(IscliError):
        iscli.parse_memberships(["interface port 1", line])


def test_what_is_said_of_other_ports_and_interfaces_is_not_taken_for_a_ports():
    lines = []
    for end in ("interface portchannel 1", "exit", "!", "end"):
        lines += ["interface port 1", "switchport access vlan 7", end, "switchport access vlan 9"]
    lines += ["interface port 2", "switchport trunk allowed vlan x"]
    everything = frozenset(range(1, 4095))
    assert iscli.parse_memberships(lines, {1}) == {1: Membership(False, 7, everything)}
    with pytest.raises(IscliError):
        iscli.parse_memberships(lines)


@pytest.mark.parametrize("heading", ["Alias   Port", "Port    "])
def test_links_with_and_without_an_alias(heading):
    alias = heading.startswith("Alias")
    lines = ["-----", f"{heading}   Speed    Duplex     Flow Ctrl      Link     Description"]
    for port, link in (("1", "down"), ("38", "up"), ("64", "disabled")):
        lines.append(f"{port:8}{port if alias else ''}  1G/10G  full  no  no  {link}  {port}")
    assert iscli.parse_links(lines) == {"1": False, "38": True, "64": False}


@pytest.mark.parametrize("bad", ["a\rb", "a\nb", "é", "x" * 241])
def test_a_command_that_would_break_the_session_is_refused(bad):
    with pytest.raises(IscliError):
        iscli.encode_line(bad)
