"""Serial lines, on real pseudo-terminals: exclusive, unplugged, late bytes, line settings."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from itertools import islice
from types import SimpleNamespace

import pytest

from drivers.optical import polatis_scpi, polatis_tl1
from drivers.transports import serial_line
from drivers.transports.serial_line import SerialOptions, SerialStream
from drivers.transports.stream import ConnectionLostError, Deadline
from hydra.errors import DeviceUnavailable
from hydra.model import Login, Plane, PlaneId
from tests.waiting import HANGS_S, PATIENCE_S


class Line:
    """Both ends of a serial line."""

    def __init__(self) -> None:
        self.device, self._end = os.openpty()
        tty.setraw(self._end)
        self.path = os.ttyname(self._end)

    def say(self, data: bytes) -> None:
        """Return once the data can be read: the kernel hands data over in another thread."""
        os.write(self.device, data)
        assert select.select([self._end], [], [], PATIENCE_S)[0]

    def unplug(self) -> None:
        for end in (self.device, self._end):
            os.close(end)


@pytest.fixture
def line():
    line = Line()
    yield line
    try:
        line.unplug()
    except OSError:
        return  # the test opened the line


def stream(line: Line, **options: object) -> SerialStream:
    return SerialStream("p1", line.path, SerialOptions.model_validate(options))


def test_bytes_go_both_ways(line):
    ours = stream(line)
    ours.connect(Deadline(PATIENCE_S))
    ours.send(b"*idn?\r\n", Deadline(PATIENCE_S))
    assert os.read(line.device, 100) == b"*idn?\r\n"
    os.write(line.device, b"Polatis\r")
    assert ours.receive(Deadline(PATIENCE_S)) == b"Polatis\r"
    assert ours.waiting() == b""
    ours.close()
    ours.close()


def test_a_line_belongs_to_one_program(line):
    ours, other = stream(line), stream(line)
    ours.connect(Deadline(PATIENCE_S))
    with pytest.raises(DeviceUnavailable, match="another program has the serial port open"):
        other.connect(Deadline(PATIENCE_S))
    assert not other.connected
    ours.close()
    other.connect(Deadline(PATIENCE_S))
    other.close()


def test_an_unplugged_adapter(line):
    ours = stream(line)
    ours.connect(Deadline(PATIENCE_S))
    line.unplug()
    with pytest.raises(ConnectionLostError, match="unplugged"):
        ours.send(b"x", Deadline(PATIENCE_S))
        ours.receive(Deadline(PATIENCE_S))
    assert not ours.connected
    with pytest.raises(DeviceUnavailable, match=r"can't open /dev/pts/.*plugged in"):
        ours.connect(Deadline(PATIENCE_S))


def test_silence_costs_one_time_out(line):
    ours = stream(line)
    ours.connect(Deadline(PATIENCE_S))
    started = time.monotonic()
    with pytest.raises(ConnectionLostError, match=r"no answer within 0\.2 s"):
        ours.receive(Deadline(0.2))  # timed: no answer comes
    assert time.monotonic() - started < HANGS_S
    assert not ours.connected


def test_what_was_said_before_is_not_heard(line):
    line.say(b"a late reply\r")
    ours = stream(line)
    ours.connect(Deadline(PATIENCE_S))
    os.write(line.device, b"1\r")
    assert ours.receive(Deadline(PATIENCE_S)) == b"1\r"
    ours.close()


def test_an_output_that_the_device_is_in_the_middle_of_is_not_heard(line, monkeypatch):
    said = iter([b"x", b"x", b"x"])

    def nap(_seconds: float) -> None:
        for data in islice(said, 1):
            line.say(data)

    clock = SimpleNamespace(sleep=nap, monotonic=lambda: 0.0)
    monkeypatch.setattr(serial_line, "time", clock)
    ours = stream(line)
    ours.connect(Deadline(PATIENCE_S))
    assert next(said, None) is None
    os.write(line.device, b"1\r")
    assert ours.receive(Deadline(PATIENCE_S)) == b"1\r"
    ours.close()


def test_a_device_that_never_stops_talking_is_listened_to_for_a_while(line):
    ours = stream(line)
    os.write(line.device, b"noise" * 100)
    started = time.monotonic()
    ours.connect(Deadline(0.5))  # timed: under test, the device never falls silent
    assert time.monotonic() - started < HANGS_S
    ours.close()


@pytest.mark.parametrize(
    ("options", "speed", "two_stop_bits"),
    [
        ({}, termios.B38400, False),
        ({"baud": 9600, "stop_bits": 2}, termios.B9600, True),
        ({"baud": 115200}, termios.B115200, False),
    ],
)
def test_line_settings(line, options, speed, two_stop_bits):
    ours = stream(line, **options)
    ours.connect(Deadline(PATIENCE_S))
    control, output_speed = (termios.tcgetattr(line.device)[index] for index in (2, 5))
    ours.close()
    assert output_speed == speed
    assert control & termios.CSIZE == termios.CS8
    assert bool(control & termios.CSTOPB) == two_stop_bits


def test_settings_that_a_pseudo_terminal_ignores(line):
    ours = stream(line, data_bits=7, parity="odd", stop_bits=2)
    ours.connect(Deadline(PATIENCE_S))
    settings = ours._line.get_settings()
    ours.close()
    assert (settings["bytesize"], settings["parity"], settings["stopbits"]) == (7, "O", 2)


def plane(driver: str, address: str, options: dict[str, object]) -> Plane:
    login = Login("admin", password_env="SECRET") if driver == "polatis-tl1" else None
    return Plane(PlaneId(0), "p1", driver, address, 16, 5.0, 100.0, login, options)


@pytest.mark.parametrize("module", [polatis_scpi, polatis_tl1])
@pytest.mark.parametrize(
    ("address", "options", "problems"),
    [
        ("serial:/dev/ttyUSB0", {}, []),
        ("serial:/dev/ttyUSB0", {"baud": 9600, "stop_bits": 2}, []),
        ("serial:ttyUSB0", {}, ["address"]),
        ("serial:", {}, ["address"]),
        ("serial:/dev/ttyUSB0", {"baud": "fast"}, ["options.baud"]),
        ("serial:/dev/ttyUSB0", {"parity": "mark"}, ["options.parity"]),
        ("10.0.0.1:5025", {"baud": 9600}, ["options.baud"]),
    ],
)
def test_what_is_wrong_with_an_address_is_found_before_anything_opens(
    module, address, options, problems
):
    driver = module.__name__.rpartition(".")[2].replace("_", "-")
    found = module.check(plane(driver, address, options))
    assert [problem.path for problem in found] == problems
