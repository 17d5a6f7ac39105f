"""Exact exchanges with a G8264: commands, their order, and reactions to answers."""

from __future__ import annotations

import pytest

from drivers.tor.ibm_g8264 import G8264Tor
from drivers.transports.iscli_session import IscliSession
from drivers.transports.stream import ConnectionLostError
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import Login, VlanId
from hydra.roles import PortVlans
from tests.waiting import PATIENCE_S

GREETING = b"\r\nRackSwitch G8264.\r\n\r\nRS G8264>"
CONFIGURATION = b"Current configuration:\r\n!\r\nend\r\n\r\n"


class Transcript:
    """A stream that expects these lines and gives these answers; None: the connection breaks."""

    def __init__(self, *exchanges: tuple[bytes, bytes | None], greeting: bytes = GREETING) -> None:
        self._exchanges = list(exchanges)
        self._greeting = greeting
        self._pending = b""
        self.address = "console"
        self.connected = False

    def connect(self, deadline) -> None:
        self.connected = True
        self._pending = self._greeting

    def close(self) -> None:
        self.connected = False

    def send(self, data, deadline) -> None:
        expected, answer = self._exchanges.pop(0)
        assert data == expected
        if answer is None:
            self.close()
            raise ConnectionLostError("unplugged")
        self._pending += answer

    def receive(self, deadline) -> bytes:
        if not self._pending:
            self.close()
            raise ConnectionLostError("no answer within 5 s")
        data, self._pending = self._pending[:7], self._pending[7:]
        return data

    def waiting(self) -> bytes:
        data, self._pending = self._pending, b""
        return data

    def finish(self) -> None:
        assert self._exchanges == [], "not all was sent"


def says(line: bytes, prompt: bytes, output: bytes = b"") -> tuple[bytes, bytes]:
    """A command, with its echo, output and the following prompt."""
    return line + b"\r", line + b"\r\n" + output + prompt


LOG_IN = (
    says(b"!hydra", b"RS G8264>"),
    says(b"enable", b"RS G8264#", b"\r\nEnable privilege granted.\r\n"),
    says(b"terminal-length 0", b"RS G8264#"),
    says(b"no prompting", b"RS G8264#", b"% Error: unknown command\r\n"),
)
CONFIG, PORT = b"RS G8264(config)#", b"RS G8264(config-if)#"


def tor(stream) -> G8264Tor:
    return G8264Tor("r1", IscliSession("r1", stream, timeout_s=PATIENCE_S))


def test_two_ports_are_retagged_in_one_block():
    after = b"".join(
        f"interface port {port}\r\n        switchport mode trunk\r\n"
        f"        switchport trunk allowed vlan 27,2000\r\n        exit\r\n!\r\n".encode()
        for port in (1, 19)
    )
    stream = Transcript(
        *LOG_IN,
        says(b"show running-config", b"RS G8264#", CONFIGURATION),
        says(b"configure terminal", CONFIG, b"Enter configuration commands\r\n"),
        says(b"interface port 1,19", PORT),
        says(b"switchport trunk allowed vlan 27,2000", PORT),
        says(b"switchport trunk native vlan 1", PORT),
        says(b"switchport mode trunk", PORT),
        says(b"exit", CONFIG),
        says(b"end", b"RS G8264#"),
        says(b"show running-config", b"RS G8264#", after),
    )
    wanted = PortVlans(frozenset({VlanId(27), VlanId(2000)}))
    tor(stream).set_vlans({"1": wanted, "19": wanted})
    stream.finish()


def test_the_pager_is_answered_and_a_message_unasked_is_no_reply():
    stream = Transcript(
        *LOG_IN,
        (
            b"show running-config\r",
            b"\r\nOct 27 11:37 RS G8264 NOTICE link: port 5 up\r\nRS G8264#show running-config\r\n"
            b"interface port 1\r\n        switchport access vlan 7\r\n"
            b"Press q to quit, any other key to continue",
        ),
        (b" ", b"\r" + b" " * 42 + b"\r        exit\r\nend\r\nRS G8264#"),
    )
    assert tor(stream).vlans(["1"]) == {"1": PortVlans(frozenset(), VlanId(7))}
    stream.finish()


LOGGED = b"Oct 27 11:37:02 RS-G8264 ERROR link: link down on port 5\r\n"


@pytest.mark.parametrize(
    "unasked",
    [
        b"\r\n" + LOGGED,
        LOGGED,
        b"\r\n" + LOGGED + b"\r\n" + LOGGED,
        b"\r\n" + LOGGED + b"RS G8264#",
        b"\r\n" + LOGGED + b"\r\nRS G8264#\r\n" + LOGGED,
        b"\r\nOct 27 11:37:02 RS-G8264 NOTICE link: link up on port 5 ",
    ],
)
@pytest.mark.parametrize("early", [True, False], ids=["before the command", "with the command"])
def test_a_console_that_logs_after_its_prompt_is_asked_and_answers(unasked, early):
    """No prompt follows the line: the echo of the command marks the start of the reply."""
    answer = b"show interface status\r\n" + STATUS + b"RS G8264#"
    asked = b"show interface status\r"
    stream = Transcript(*LOG_IN, (asked, answer if early else unasked + answer))
    driver = tor(stream)
    driver.open()
    if early:
        stream.waiting()
        stream._pending = unasked
    assert driver.link_up(["1", "64"]) == {"1": True, "64": False}
    stream.finish()


STATUS = (
    b"-" * 60 + b"\r\nAlias   Port   Speed    Duplex     Flow Ctrl      Link     Description\r\n"
    b"------- ----   -----   --------  --TX-----RX--   ------   -------------\r\n"
    b"1       1   1G/10G   full   no   no   up    1\r\n"
    b"64      64  1G/10G   full   no   no   down  64\r\n"
)


def test_a_change_on_a_console_that_logs_all_the_time_is_confirmed():
    def logs(line: bytes, prompt: bytes, output: bytes = b"") -> tuple[bytes, bytes]:
        sent, answer = says(line, prompt, output + LOGGED)
        return sent, b"\r\n" + LOGGED + answer

    block = b"interface port 1\r\n switchport mode trunk\r\n" + LOGGED
    block += b" switchport trunk allowed vlan 1-3,\r\n" + LOGGED + b"   27\r\n exit\r\n"
    stream = Transcript(
        *LOG_IN,
        logs(b"show running-config", b"RS G8264#", CONFIGURATION),
        logs(b"configure terminal", CONFIG),
        logs(b"interface port 1", PORT),
        logs(b"switchport trunk allowed vlan 2-3,27", PORT),
        logs(b"switchport trunk native vlan 1", PORT),
        logs(b"switchport mode trunk", PORT),
        logs(b"exit", CONFIG),
        logs(b"end", b"RS G8264#"),
        logs(b"show running-config", b"RS G8264#", block.replace(b"1-3", b"2-3")),
    )
    tor(stream).set_vlans({"1": PortVlans(frozenset({VlanId(2), VlanId(3), VlanId(27)}))})
    stream.finish()


def test_a_refusal_in_the_middle_leaves_the_outcome_unknown_and_says_what_stands():
    stream = Transcript(
        *LOG_IN,
        says(b"show running-config", b"RS G8264#", CONFIGURATION),
        says(b"configure terminal", CONFIG),
        says(b"interface port 1", PORT),
        says(b"switchport trunk allowed vlan 27", PORT),
        says(b"switchport trunk native vlan 1", PORT, b"Error: VLAN 1 is reserved\r\n"),
        says(b"end", b"RS G8264#"),
    )
    with pytest.raises(OutcomeUnknown, match=r"VLAN 1 is reserved; the 2 commands before"):
        tor(stream).set_vlans({"1": PortVlans(frozenset({VlanId(27)}))})
    stream.finish()


def test_a_refused_first_command_changed_nothing():
    stream = Transcript(
        *LOG_IN,
        says(b"show running-config", b"RS G8264#", CONFIGURATION),
        says(b"configure terminal", CONFIG),
        says(b"interface port 1", CONFIG, b"% Error: port 1 is stacked\r\n"),
        says(b"end", b"RS G8264#"),
    )
    with pytest.raises(DeviceError, match=r"port 1 is stacked; nothing was changed") as caught:
        tor(stream).set_vlans({"1": PortVlans(frozenset({VlanId(27)}))})
    assert not isinstance(caught.value, OutcomeUnknown)
    stream.finish()


def test_a_cable_pulled_in_the_middle():
    stream = Transcript(
        *LOG_IN,
        says(b"show running-config", b"RS G8264#", CONFIGURATION),
        says(b"configure terminal", CONFIG),
        says(b"interface port 1", PORT),
        (b"switchport trunk allowed vlan 27\r", None),
    )
    with pytest.raises(OutcomeUnknown, match=r"not confirmed: unplugged \(console\)"):
        tor(stream).set_vlans({"1": PortVlans(frozenset({VlanId(27)}))})
    stream.finish()


def test_a_console_left_in_the_configuration_mode():
    stream = Transcript(
        says(b"!hydra", PORT),
        says(b"end", b"RS G8264#"),
        *LOG_IN[2:],
        greeting=PORT,
    )
    tor(stream).open()
    stream.finish()


CONSOLE = Login("admin", password_env="HYDRA_TEST_CONSOLE")


def console(stream) -> IscliSession:
    return IscliSession("r1", stream, timeout_s=PATIENCE_S, console=CONSOLE)


def test_a_console_is_woken_and_logged_in_at(monkeypatch):
    monkeypatch.setenv("HYDRA_TEST_CONSOLE", "open sesame")
    stream = Transcript(
        (b"\r", b"\r\nEnter login username: "),
        (b"admin\r", b"admin\r\nEnter login password: "),
        (b"open sesame\r", b"\r\n" + GREETING),
        *LOG_IN,
        greeting=b"",
    )
    console(stream).open()
    stream.finish()


FRAME = b"#" * 38 + b"\r\n# Authorised users only" + b" " * 14 + b"#\r\n" + b"#" * 38 + b"\r\n"


@pytest.mark.parametrize("notice", [FRAME, b"Rack <12>\r\n", b"Row 3, rack #12\r\n", b">\r\n"])
def test_a_notice_with_the_marks_of_a_prompt_is_none(notice, monkeypatch):
    monkeypatch.setenv("HYDRA_TEST_CONSOLE", "open sesame")
    stream = Transcript(
        (b"\r", b"\r\n" + notice + b"\r\nEnter login username: "),
        (b"admin\r", b"admin\r\nEnter login password: "),
        (b"open sesame\r", b"\r\n" + notice + GREETING),
        *LOG_IN,
        greeting=b"",
    )
    console(stream).open()
    stream.finish()


@pytest.mark.parametrize(
    "logged",
    [b"\r\n" + LOGGED, LOGGED, b"\r\n" + LOGGED + b"\r\n" + LOGGED, b"\r\n" + LOGGED.rstrip()],
)
@pytest.mark.parametrize("again", [True, False], ids=["each prompt", "the first prompt"])
def test_a_console_that_logs_after_the_prompt_of_the_log_in_is_named(logged, again, monkeypatch):
    """No second prompt follows the line, and the mark's echo stands alone."""
    monkeypatch.setenv("HYDRA_TEST_CONSOLE", "open sesame")
    more = logged if again else b""
    stream = Transcript(
        (b"\r", b"\r\nEnter login username: "),
        (b"admin\r", b"admin\r\nEnter login password: "),
        (b"open sesame\r", b"\r\n" + GREETING + logged),
        *((line, answer + more) for line, answer in LOG_IN),
        says(b"show clock", b"RS G8264#", b"12:00\r\n"),
        greeting=b"",
    )
    assert console(stream).show("show clock") == ("12:00",)
    stream.finish()


def test_a_log_in_that_is_asked_for_after_a_pause_is_gone_on_with(monkeypatch):
    monkeypatch.setenv("HYDRA_TEST_CONSOLE", "open sesame")
    stream = Transcript(
        (b"\r", b"\r\nRow 3, rack #"),
        (b"!hydra\r", b"12\r\nEnter login username: !hydra\r\nEnter login password: "),
        (b"\r", b"\r\nLogin incorrect\r\n\r\nEnter login username: "),
        (b"admin\r", b"admin\r\nEnter login password: "),
        (b"open sesame\r", b"\r\n" + GREETING),
        *LOG_IN,
        greeting=b"",
    )
    console(stream).open()
    stream.finish()


@pytest.mark.parametrize(
    "unasked",
    [
        b"\r\nEnter login username: ",
        b"login: ",
        b"\r\nIdle timeout\r\n\r\nlogin: \r\nOct 27 11:37 NOTICE link: port 5 up\r\n",
        b"\r\nPassword: ",
    ],
)
def test_a_console_that_has_logged_out_meanwhile_is_logged_in_at_again(unasked, monkeypatch):
    """A command is not sent as a user's name."""
    monkeypatch.setenv("HYDRA_TEST_CONSOLE", "open sesame")
    log_in = (
        (b"\r", b"\r\nEnter login username: "),
        (b"admin\r", b"admin\r\nEnter login password: "),
        (b"open sesame\r", b"\r\n" + GREETING),
        *LOG_IN,
    )
    stream = Transcript(*log_in, *log_in, says(b"show clock", b"RS G8264#"), greeting=b"")
    session = console(stream)
    session.open()
    stream.waiting()
    stream._pending = unasked
    assert session.show("show clock") == ()
    stream.finish()


def test_a_console_left_in_the_middle_of_an_output_is_paged_through():
    page = b"\r\ninterface port 7\r\nPress q to quit, any other key to continue"
    stream = Transcript(
        (b"\r", b"\r" + b" " * 42 + b"\r" + page),
        (b" ", b"\r" + b" " * 42 + b"\r" + page),
        (b" ", b"\r" + b" " * 42 + b"\rend\r\nRS G8264#"),
        says(b"!hydra", b"RS G8264#"),
        *LOG_IN[2:],
        greeting=b"",
    )
    console(stream).open()
    stream.finish()


def test_a_console_that_asks_again_has_refused_and_no_password_is_told(monkeypatch):
    monkeypatch.setenv("HYDRA_TEST_CONSOLE", "open sesame")
    stream = Transcript(
        (b"\r", b"\r\nlogin: "),
        (b"admin\r", b"admin\r\nPassword: "),
        (b"open sesame\r", b"\r\nlogin: "),
        greeting=b"",
    )
    with pytest.raises(DeviceError, match="the switch refuses the login") as caught:
        console(stream).open()
    assert "sesame" not in str(caught.value)
    assert not stream.connected


def test_a_password_that_no_console_takes_is_named_and_not_sent(monkeypatch):
    monkeypatch.setenv("HYDRA_TEST_CONSOLE", "sésame")
    stream = Transcript((b"\r", b"\r\nlogin: "), (b"admin\r", b"admin\r\nPassword: "), greeting=b"")
    with pytest.raises(DeviceError, match="the password can't be typed at a console") as caught:
        console(stream).open()
    assert "sésame" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert not stream.connected
    stream.finish()


def test_a_shell_that_asks_for_a_login_is_no_console():
    with pytest.raises(DeviceError, match="the switch refuses the login"):
        tor(Transcript(greeting=b"\r\nEnter login username: ")).open()


def test_a_user_without_privileges_is_told_what_to_do():
    stream = Transcript(LOG_IN[0], (b"enable\r", b"enable\r\nEnable password: "))
    with pytest.raises(DeviceError, match="log in as an administrator"):
        tor(stream).open()
    assert not stream.connected


def test_a_user_who_may_not_configure_is_told_what_to_do():
    stream = Transcript(
        *LOG_IN,
        says(b"show running-config", b"RS G8264#", CONFIGURATION),
        says(b"configure terminal", b"RS G8264#", b"% Error: not permitted\r\n"),
    )
    with pytest.raises(DeviceError, match=r"not permitted; log in as a user who may configure"):
        tor(stream).set_vlans({"1": PortVlans(frozenset({VlanId(27)}))})


def test_a_device_that_shows_no_prompt_is_unavailable():
    with pytest.raises(DeviceUnavailable, match=r"no answer within 5 s \(console\)"):
        tor(Transcript(greeting=b"login as: ")).open()


def test_colours_are_a_protocol_error():
    stream = Transcript(*LOG_IN, (b"show running-config\r", b"\x1b[1mshow"))
    with pytest.raises(ProtocolError, match="byte 0x1b"):
        tor(stream).vlans(["1"])


@pytest.mark.parametrize("port", ["0", "65", "MGT", "1-2", "²", ""])
def test_ports_that_do_not_exist(port):
    with pytest.raises(DeviceError, match=r"this switch has 1\.\.64"):
        tor(Transcript()).set_vlans({port: PortVlans(frozenset({VlanId(27)}))})


def test_vlan_1_can_not_be_tagged_without_another_untagged_vlan():
    with pytest.raises(DeviceError, match="can't tag VLAN 1 on a trunk without an untagged VLAN"):
        tor(Transcript()).set_vlans({"1": PortVlans(frozenset({VlanId(1)}))})
