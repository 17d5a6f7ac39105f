"""The template driver: problems of options in `hydra check`, and devices of several kinds."""

from __future__ import annotations

import dataclasses
import re
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from drivers.optical import template
from drivers.registry import optical_switch
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import CrossConnect, Login, Plane, PlaneId
from hydra.roles import DeviceIdentity, PortState
from mininet_scenarios.emulators.faults import FaultKind
from tests.conformance.devices import LOGIN_VARIABLE
from tests.conformance.devices import template as craft_terminal
from tests.waiting import HANGS_S, PATIENCE_S, SHORT_S

PAGE = (Path(__file__).parents[3] / "docs" / "template-driver.md").read_text()
EXAMPLES = [
    yaml.safe_load(block.split("```")[0])["planes"][0] for block in PAGE.split("```yaml\n")[1:]
]


def plane(options, address="127.0.0.1:1", login=None, ports=4) -> Plane:
    return Plane(PlaneId(0), "p1", "template", address, ports, 25.0, 100.0, login, options)


def problems(options, **kwargs) -> dict[str, str]:
    return {problem.path: problem.message for problem in template.check(plane(options, **kwargs))}


# --- what `hydra check` says --------------------------------------------------------------------

PLAIN = {
    "line_end": "\n",
    "success": "^OK$",
    "error": "^ERR ?(?P<reason>.*)",
    "connect": "C {ingress:03} {output}",
    "disconnect": "D {ingress:03}",
    "cross_connects": {"command": "L", "row": r"^(?P<ingress>\d+)=(?P<output>\d+)$"},
}


def listing(row: str) -> dict[str, object]:
    return {"cross_connects": {"command": "L", "row": row}}


@pytest.mark.parametrize("example", EXAMPLES, ids=["complete", "LiteSwitch"])
def test_the_examples_of_the_page_are_usable(example):
    login = example.get("login") and Login(**example["login"])
    assert problems(example["options"], address=example["address"], login=login) == {}


def test_the_page_has_every_option():
    described = set(re.findall(r"`([a-z_]+)`", PAGE.split("## Options")[1].split("\n## ")[0]))
    assert set(template.TemplateOptions.model_fields) <= described


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"conect": "x"}, "options.conect", "did you mean 'connect'?"),
        ({"connect": "C {ingress}"}, "options", "connect has to name both ports"),
        ({"connect": "C {ingress} {x}"}, "options.connect", "has no {x} to put in"),
        ({"connect": "C {ingress!r} {output}"}, "options.connect", "is no placeholder"),
        ({"connect": "C {ingress.real} {output}"}, "options.connect", "is no placeholder"),
        ({"connect": "C {ingress:>9999999} {output}"}, "options.connect", "is no placeholder"),
        ({"connect": "C {ingress"}, "options.connect", "expected '}'"),
        ({"connect": "C {ingress} {pairs}"}, "options", "names one port and lists several"),
        ({"connect": "C\n{ingress} {output}"}, "options.connect", "printable ASCII only"),
        ({"disconnect": "D all"}, "options", "disconnect has to name a port"),
        ({"error": "("}, "options.error", "is no regular expression of RE2: missing )"),
        ({"error": r"(a)\1"}, "options.error", "is no regular expression of RE2"),
        ({"success": None}, "options", "success must match the last line of a reply"),
        ({"setup": ["x"]}, "options", "login and setup need a prompt"),
        (listing("^x$"), "options.cross_connects.row", "no group for the ingress port"),
        (listing(r"(?P<ingress>1)(?P<output>2)(?P<x>.)"), "options.cross_connects.row", "'x' with"),
        ({"identity": {"command": "V"}}, "options.identity", "command and row go together"),
        ({"at_most": 0}, "options.at_most", "greater than or equal to 1"),
    ],
)  # fmt: skip
def test_what_can_not_work_is_found_before_anything_connects(change, path, words):
    options = {key: value for key, value in (PLAIN | change).items() if value is not None}
    found = problems(options)
    assert list(found) == [path]
    assert words in found[path]
    with pytest.raises(DeviceError, match="p1: options of the template driver"):
        template.build(plane(options), 1.0)


def test_a_password_is_asked_for_where_one_is_sent():
    asking = {"prompt": "> ", "login": [{"expect": "? ", "send": "{password}"}]}
    assert "login" in problems(PLAIN | asking)
    assert problems(PLAIN | asking, login=Login("me", password_env="SECRET")) == {}
    assert "login" in problems(PLAIN, login=Login("me", password_env="SECRET"))


# --- a device without a prompt, one cross-connect at a time --------------------------------------


@contextmanager
def device(answer, greeting=""):
    """Answers each line with what ``answer`` returns for it; None closes the connection."""

    def serve(connection):
        with connection, connection.makefile("rb") as lines:
            connection.sendall(greeting.encode())
            for line in lines:
                if (reply := answer(line.decode().strip())) is None:
                    return
                connection.sendall(reply.encode())

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


class Patches:
    """The answers of a device of four by four ports, and its received commands."""

    def __init__(self) -> None:
        self.present: dict[int, int] = {}
        self.heard: list[str] = []
        self.override: dict[str, str | None] = {}

    def __call__(self, line: str) -> str | None:
        self.heard.append(line)
        verb, *numbers = line.split()
        if verb in self.override:
            return self.override[verb]
        if verb == "C":
            self.present[int(numbers[0])] = int(numbers[1])
        elif verb == "D":
            self.present.pop(int(numbers[0]), None)
        elif verb == "L":
            return "".join(f"{a}={b}\n" for a, b in self.present.items()) + "OK\n"
        return "OK\n"


@pytest.fixture
def patches():
    return Patches()


@pytest.fixture
def switch(patches):
    with device(patches) as address:
        driver = optical_switch(plane(PLAIN, address), SHORT_S)
        yield driver
        driver.close()


def test_the_exact_exchange(switch, patches):
    switch.change([], [CrossConnect(1, 6), CrossConnect(2, 5)])
    switch.change([CrossConnect(1, 6)], [CrossConnect(3, 8)])
    assert patches.heard == ["L", "C 001 2", "C 002 1", "L", "L", "D 001", "C 003 4", "L"]
    assert switch.cross_connects() == {CrossConnect(2, 5), CrossConnect(3, 8)}
    assert not switch.capabilities.bulk


def test_what_the_language_has_no_words_for(switch):
    assert switch.identity() == DeviceIdentity("unknown", "unknown", "", "")
    assert switch.size() == (4, 4)
    assert switch.port_states([1, 8]) == {1: PortState.UNKNOWN, 8: PortState.UNKNOWN}
    assert not hasattr(switch, "power_dbm")


def test_a_refusal_in_the_middle_tells_what_is_missing(switch, patches):
    patches.override["D"] = "ERR port 1 is locked\n"
    patches.present[1] = 2
    with pytest.raises(
        DeviceError, match=r"refuses 'D 001': port 1 is locked; not connected: 3 to 7; still"
    ):
        switch.change([CrossConnect(1, 6)], [CrossConnect(3, 7)])


@pytest.mark.parametrize("verb", ["C", "L"])
def test_a_connection_that_breaks(switch, patches, verb):
    patches.override[verb] = None
    kind = OutcomeUnknown if verb == "C" else DeviceUnavailable
    with pytest.raises(kind):
        switch.change([], [CrossConnect(1, 6)])
    patches.override.clear()
    switch.change([], [CrossConnect(1, 6)])
    assert switch.cross_connects() == {CrossConnect(1, 6)}


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("1:2\nOK\n", "'1:2' is neither a row nor among the lines to ignore"),
        ("1=1234567\nOK\n", "'1234567' is no port number"),
        ("ERR busy\n", "refuses 'L': busy"),
        ("\x1b[1m\nOK\n", "byte 0x1b"),
    ],
)
def test_answers_that_make_no_sense(switch, patches, reply, words):
    patches.override["L"] = reply
    with pytest.raises(DeviceError, match=re.escape(words)) as caught:
        switch.cross_connects()
    assert isinstance(caught.value, ProtocolError) == (not reply.startswith("ERR"))


def test_rows_with_nothing_in_the_place_of_a_port_or_of_a_value():
    row = r"^(?P<ingress>\d*)=(?P<output>\d*)$"
    power = {"command": "P", "row": r"^(?P<port>\d*):(?P<dbm>\S*)$"}
    states = {"command": "S", "row": r"^(?P<port>\d*):(?P<state>\S*)$", "enabled": ["on"]}
    size = {"command": "N", "row": r"^(?P<inputs>\d+)?x(?P<outputs>\d+)$"}
    answers = {"L": "=2\nOK\n", "P": "1:\n2:-3.5\nOK\n", "S": "1:\nOK\n", "N": "4x4\nOK\n"}
    options = PLAIN | {"power": power, "port_states": states, "size": size}
    options["cross_connects"] = {"command": "L", "row": row}
    with device(answers.get) as address:
        driver = optical_switch(plane(options, address), SHORT_S)
        assert driver.power_dbm([1, 2]) == {1: None, 2: -3.5}
        assert driver.port_states([1]) == {1: PortState.UNKNOWN}
        for answer in ("=2\nOK\n", "2=\nOK\n"):
            answers["L"] = answer
            with pytest.raises(ProtocolError, match="'' is no port number"):
                driver.cross_connects()
        answers["N"] = "x4\nOK\n"
        driver.close()
        with pytest.raises(ProtocolError, match="'' is no port number"):
            driver.size()
        driver.close()


def test_a_silent_device_costs_one_time_out(switch, patches):
    patches.override["L"] = ""
    started = time.monotonic()
    with pytest.raises(DeviceUnavailable, match=r"no answer within 2 s"):
        switch.cross_connects()
    assert time.monotonic() - started < HANGS_S


def test_a_pattern_that_would_take_for_ever_does_not(patches):
    options = PLAIN | {"error": r"^(a+)+$"}
    patches.override["L"] = "a" * 10_000 + "b\nOK\n"
    with device(patches) as address:
        driver = optical_switch(plane(options, address), PATIENCE_S)
        started = time.monotonic()
        with pytest.raises(ProtocolError, match="neither a row"):
            driver.cross_connects()
        assert time.monotonic() - started < HANGS_S
        driver.close()


# --- devices that log to their terminal ----------------------------------------------------------

LOGGED = "Oct 27 11:37:02 oxc ERR port 3: light lost\n"


def test_log_lines_end_no_reply_and_are_no_refusal(patches):
    def logging(line):
        head, *rest = patches(line).splitlines(keepends=True)
        return LOGGED + head + LOGGED + "".join(rest) if rest else LOGGED + head

    options = PLAIN | {"error": "ERR ?(?P<reason>.*)", "success": "OK$"}
    with device(logging) as address:
        driver = optical_switch(plane(options, address), PATIENCE_S)
        driver.change([], [CrossConnect(1, 6), CrossConnect(2, 5)])
        assert driver.cross_connects() == {CrossConnect(1, 6), CrossConnect(2, 5)}
        driver.close()


@pytest.mark.parametrize(
    "unasked",
    [f"\n{LOGGED}", f"\n{LOGGED}oxc> ", f"\n{LOGGED}\noxc> \n{LOGGED}oxc> "],
    ids=["no prompt", "a prompt", "two prompts"],
)
def test_a_reply_begins_with_the_echo_whatever_stands_before_it(patches, unasked):
    def answer(line):
        return f"{unasked}{line}\n{patches(line).removesuffix('OK' + chr(10))}oxc> "

    options = {name: value for name, value in PLAIN.items() if name != "success"}
    options |= {"prompt": "oxc>", "echo": True, "error": "ERR ?(?P<reason>.*)"}
    with device(answer, greeting="oxc> ") as address:
        driver = optical_switch(plane(options, address), PATIENCE_S)
        driver.change([], [CrossConnect(1, 6), CrossConnect(2, 5)])
        assert driver.cross_connects() == {CrossConnect(1, 6), CrossConnect(2, 5)}
        driver.close()


# --- a device with a log-in, a prompt and bulk commands ------------------------------------------


@pytest.fixture(scope="module")
def terminal():
    with craft_terminal()() as bench:
        yield bench


def test_bulk_power_and_states(terminal):
    driver = terminal.driver()
    assert driver.capabilities.bulk
    assert driver.capabilities.power_readings
    moves = terminal.moves()
    driver.change([], [CrossConnect(n, 16 + n) for n in range(1, 9)])
    assert terminal.moves() == moves + 1
    assert driver.power_dbm([1, 17, 32]) == {1: -3.0, 17: -4.5, 32: None}
    assert driver.port_states([1, 32]) == {1: PortState.ENABLED, 32: PortState.ENABLED}
    assert driver.identity() == DeviceIdentity("Example", "OXC-16x16", "000042", "1.0")
    driver.change(driver.cross_connects(), [])
    driver.close()


def test_lists_longer_than_the_device_takes_are_cut(terminal):
    options = {**terminal.plane.options, "at_most": 3}
    driver = optical_switch(dataclasses.replace(terminal.plane, options=options), PATIENCE_S)
    moves = terminal.moves()
    driver.change([], [CrossConnect(n, 16 + n) for n in range(1, 9)])
    assert terminal.moves() == moves + 3
    driver.change(driver.cross_connects(), [])
    driver.close()


@pytest.mark.parametrize(
    ("password", "kind", "words"),
    [
        ("wrong", DeviceUnavailable, "the device refuses the log-in: 'login incorrect'"),
        (None, DeviceError, f"the environment variable {LOGIN_VARIABLE} is not set"),
        ("naïve", DeviceError, "characters that can't be sent"),
    ],
)
def test_logins_that_fail_at_once(terminal, monkeypatch, password, kind, words):
    monkeypatch.delenv(LOGIN_VARIABLE)
    if password is not None:
        monkeypatch.setenv(LOGIN_VARIABLE, password)
    driver = terminal.driver(timeout_s=PATIENCE_S)
    for action in (driver.open, lambda: driver.change([], [CrossConnect(1, 17)])):
        started = time.monotonic()
        with pytest.raises(kind, match=words) as caught:
            action()
        assert time.monotonic() - started < HANGS_S
        assert not isinstance(caught.value, OutcomeUnknown)
        assert password is None or password not in str(caught.value)
    driver.close()


def test_a_session_that_the_device_ended_is_opened_anew(terminal):
    driver = terminal.driver()
    driver.open()
    terminal.admin.fault(FaultKind.DEAD)
    terminal.admin.clear()
    assert driver.size() == (16, 16)
    driver.close()
