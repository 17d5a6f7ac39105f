"""Attenuators and alarm thresholds compared with the expectations of a switch's owner."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from drivers.optical.input_power import max_input_dbm
from drivers.optical.light import (
    AlarmThresholds,
    Attenuator,
    AttenuatorMode,
    LightLimits,
    LightOptions,
    check_attenuators,
    warn_at_attach,
)
from drivers.registry import OPTICAL
from hydra.errors import DeviceError
from hydra.model import CrossConnect, Plane, PlaneId

POWER, RELATIVE = AttenuatorMode.POWER, AttenuatorMode.RELATIVE
EXPECTED = LightLimits(max_input_dbm=3.0, min_input_dbm=-5.0, loss_budget_db=4.0)


def checked(limits, attenuator, reading=None):
    check_attenuators(
        "p1", limits, [CrossConnect(1, 17)], lambda ports: dict.fromkeys(ports, attenuator),
        lambda ports: dict.fromkeys(ports, reading),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("attenuator", "told"),
    [
        (Attenuator(AttenuatorMode.NONE, None, "NONE"), None),
        (Attenuator(AttenuatorMode.FIXED, None, "FIX"), None),
        (Attenuator(RELATIVE, 4.0, "REL"), None),
        (Attenuator(RELATIVE, 4.1, "REL"), r"takes off 4\.1 dB \(REL\)"),
        (Attenuator(POWER, -9.0, "ABS"), None),
        (Attenuator(POWER, -9.5, "ABS"), r"to -9\.50 dBm \(ABS\), 4\.50 dB below the input"),
        (Attenuator(POWER, 4.0, "ABS"), None),
        (Attenuator(POWER, 4.1, "ABS"), r"is set to 4\.1 \(ABS\), an attenuation of 4\.1 dB if"),
        (Attenuator(AttenuatorMode.MAXIMUM, None, "MAX"), r"the highest attenuation \(MAX\)"),
    ],
)
def test_an_attenuator_beyond_the_budget_is_named_before_light_moves(attenuator, told):
    checked(LightLimits(), attenuator)  # no upper threshold is set
    if told is None:
        checked(EXPECTED, attenuator)
        return
    with pytest.raises(DeviceError, match=rf"port 17 .*{told}.*nothing was moved"):
        checked(EXPECTED, attenuator)


def test_the_power_that_comes_in_is_read_where_nobody_has_said_what_to_expect():
    limits, holding = LightLimits(loss_budget_db=4.0), Attenuator(POWER, -9.0, "ABS")
    checked(limits, holding, reading=None)
    checked(limits, holding, reading=-5.0)
    with pytest.raises(DeviceError, match=r"8\.00 dB below"):
        checked(limits, holding, reading=-1.0)


@pytest.mark.parametrize(
    ("port", "thresholds", "told"),
    [
        (1, AlarmThresholds(True, -10.0, 5.0), None),
        (1, AlarmThresholds(True, -4.0, 5.0), "below -4.00 dBm, where -5.00 dBm are"),
        (17, AlarmThresholds(True, -8.0, 5.0), "below -8.00 dBm, where -9.00 dBm are"),
        (17, AlarmThresholds(True, -9.0, None), None),
        (17, AlarmThresholds(True, -20.0, 2.0), "above +2.00 dBm, where +3.00 dBm are"),
        (17, AlarmThresholds(False, -9.0, None), "has the alarm switched off"),
        (17, AlarmThresholds(True, None, 5.0), "no alarm for too little light"),
        (17, AlarmThresholds(True, -60.0, 25.0), "receivers lose the signal at -30 dBm"),
    ],
)
def test_alarms_that_would_come_for_nothing_or_not_at_all(caplog, port, thresholds, told):
    warn_at_attach("p1", EXPECTED, lambda: (16, 16), lambda _: {}, lambda: {port: thresholds})
    if told is None:
        assert caplog.text == ""
    else:
        assert f"p1: port {port} " in caplog.text
        assert told in caplog.text


def test_many_ports_alike_are_one_line(caplog):
    fixed = Attenuator(AttenuatorMode.FIXED, None, "FIX")
    off = AlarmThresholds(False, None, None)
    warn_at_attach(
        "p1", EXPECTED, lambda: (16, 16), lambda ports: dict.fromkeys(ports, fixed),
        lambda: dict.fromkeys(range(17, 33), off),
    )  # fmt: skip
    lines = [record.message for record in caplog.records]
    assert len(lines) == 2
    assert all(line.endswith("; and 13 more ports with such problems") for line in lines)
    assert "by an unreported amount" in lines[0]


def test_a_switch_that_can_not_tell_is_attached_all_the_same(caplog):
    def refused(*_asked):
        raise DeviceError("p1", "unknown command")

    with caplog.at_level("INFO", "drivers.optical.light"):
        warn_at_attach("p1", EXPECTED, lambda: (16, 16), refused, refused)
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]


def test_limits_that_contradict_each_other():
    with pytest.raises(ValidationError, match=r"min_input_dbm \(2\) is more than max_input_dbm"):
        LightOptions(min_input_dbm=2.0, max_input_dbm=1.0)


@pytest.mark.parametrize("driver", ["polatis-scpi", "glimmerglass-tl1"])
@pytest.mark.parametrize("limit", [2, 2.0, "2", "2.0"])
def test_a_limit_of_input_power_that_the_check_takes_is_kept(driver, limit):
    options = {"max_input_dbm": limit}
    plane = Plane(PlaneId(0), "p1", driver, "10.0.0.7:5025", 16, 5.0, 1.0, None, options)
    assert list(OPTICAL[driver].check(plane)) == []
    assert max_input_dbm(plane) == 2.0
