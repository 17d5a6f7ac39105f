"""Attenuators and alarm thresholds, set by a person in the switch's own protocol."""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Callable
from contextlib import closing

import pytest

from hydra.errors import DeviceError
from hydra.model import CrossConnect
from mininet_scenarios import plain_http
from mininet_scenarios.emulators.catalogue import EMULATORS
from tests.conformance.devices import emulated
from tests.conformance.local_devices import PORTS
from tests.waiting import PATIENCE_S

EGRESS = PORTS + 2
"""The port set by the person."""
EXPECTED = {"min_input_dbm": -4.0, "max_input_dbm": 2.0, "loss_budget_db": 3.0}
VOA = "optical-switch:voa"
ALARMS = "optical-switch:opm-alarm-config"
OFF = ("MODE=NONE", {"atten-mode": "VOA_MODE_NONE"})
WEAK = ("MODE=ABS,LEVEL=(-12.5)", {"atten-mode": "VOA_MODE_ABSOLUTE", "atten-level": -12.5})
WEAKER = ("MODE=REL,LEVEL=5", {"atten-mode": "VOA_MODE_RELATIVE", "atten-level": 5.0})
SHUT = ("MODE=MAX", {"atten-mode": "VOA_MODE_MAXIMUM"})


def by_tl1(address: str, command: str) -> None:
    host, _, port = address.rpartition(":")
    login = EMULATORS["polatis-tl1"]
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        for text in (f"ACT-USER::{login.user}:1::{login.password};", command):
            connection.sendall(text.encode())
            told = b""
            while not told.rstrip().endswith(b";"):
                told += connection.recv(1000)
            assert b"COMPLD" in told, told


def by_restconf(address: str, path: str, entry: dict[str, object]) -> None:
    login = EMULATORS["polatis-restconf"]
    answer = plain_http.request(
        "PATCH", f"http://{address}/api/data/{path}",
        json={path: {"port": [{"port-id": EGRESS, **entry}]}}, auth=(login.user, login.password),
    )  # fmt: skip
    answer.raise_for_status()


@pytest.fixture(scope="module", params=["polatis-tl1", "polatis-restconf"])
def bench(request):
    with emulated(request.param, options=EXPECTED)() as bench:
        assert list(bench.module.check(bench.plane)) == []
        yield bench


@pytest.fixture
def attenuate(bench) -> Callable[[tuple[str, dict[str, object]]], None]:
    address = bench.plane.address
    if bench.plane.driver == "polatis-tl1":
        return lambda wanted: by_tl1(address, f"SET-PORT-ATTEN::{EGRESS}:2:::{wanted[0]};")
    return lambda wanted: by_restconf(address, VOA, wanted[1])


@pytest.mark.parametrize(
    ("setting", "told"),
    [(WEAK, "8.50 dB below"), (WEAKER, "takes off 5 dB"), (SHUT, "the highest attenuation (")],
)
def test_an_attenuator_beyond_the_budget_is_named_before_light_moves(
    bench, attenuate, caplog, setting, told
):
    wanted = [CrossConnect(1, EGRESS), CrossConnect(3, PORTS + 1)]
    with closing(bench.driver()) as driver:
        moves = bench.moves()
        attenuate(setting)
        with pytest.raises(
            DeviceError, match="nothing was moved; clear the port's attenuator"
        ) as caught:
            driver.change([], wanted)
        assert f"port {EGRESS} " in str(caught.value)
        assert told in str(caught.value)
        assert (driver.cross_connects(), bench.moves()) == (frozenset(), moves)
        driver.close()
        with caplog.at_level(logging.WARNING, "drivers"):
            driver.open()
        assert told in caplog.text
        attenuate(OFF)
        driver.change([], wanted)
        attenuate(setting)
        dark = driver.power_dbm([EGRESS])[EGRESS]
        assert (
            dark < EXPECTED["min_input_dbm"] - EXPECTED["loss_budget_db"]
        )  # the attenuator takes effect
        attenuate(OFF)
        driver.change(wanted, [])


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (-6.0, 5.0, "an alarm below -6.00 dBm, where -7.00 dBm are to be expected"),
        (-60.0, 25.0, "an alarm below -60.00 dBm, though receivers lose the signal at -30 dBm"),
        (-20.0, 5.0, None),
    ],
)
def test_thresholds_that_mislead_are_named_at_attach(bench, caplog, low, high, told):
    address = bench.plane.address
    if bench.plane.driver == "polatis-tl1":
        by_tl1(address, f"SET-TH-PMON::{EGRESS}:2:::MODE=CONT,LOW=({low}),HIGH={high};")
    else:
        entry = {"signal-low-threshold": low, "signal-high-threshold": high}
        by_restconf(address, ALARMS, {"mode": "POWER_ALARM_ENABLED", **entry})
    with closing(bench.driver()) as driver, caplog.at_level(logging.WARNING, "drivers"):
        driver.open()
        driver.open()
    about = [record.message for record in caplog.records if f"port {EGRESS} " in record.message]
    assert len(about) == (told is not None)
    assert all(told in line for line in about)
    assert "has the alarm switched off" in caplog.text  # other ports keep the factory settings


@pytest.mark.parametrize(
    ("driver", "firmware"), [("polatis-tl1", "any"), ("polatis-restconf", "old")]
)
def test_a_switch_without_attenuators_takes_the_same_options(caplog, driver, firmware):
    options = {**EXPECTED, "min_input_dbm": -5.0}
    with (
        emulated(driver, "--firmware", firmware, options=options)() as bench,
        closing(dataclasses.replace(bench, timeout_s=PATIENCE_S).driver()) as switch,
    ):
        switch.change([], [CrossConnect(1, EGRESS)])
        assert switch.cross_connects() == {CrossConnect(1, EGRESS)}
