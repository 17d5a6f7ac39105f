"""Attenuators and alarm thresholds of a switch, checked against the power that its owner expects.

For incoming power see :mod:`drivers.optical.input_power`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Self

from pydantic import Field, model_validator

from drivers.optical.input_power import InputPowerOptions
from hydra.errors import DeviceError
from hydra.model import CrossConnect, Plane

_log: Final = logging.getLogger(__name__)

NO_SIGNAL_DBM: Final = -30.0
"""At this power and below, a receiver has to report no signal (IEEE 802.3, 52.4.4 and 88.5.4)."""
_SHOWN: Final = 3
"""Largest number of ports in a warning."""


class LightOptions(InputPowerOptions):
    """``options`` of a plane with a switch that reports its attenuators and alarm thresholds."""

    min_input_dbm: float | None = Field(None, ge=-60, le=40)
    """Least power at an ingress port from a working transmitter; None: no threshold is read."""
    loss_budget_db: float | None = Field(None, ge=0, le=60)
    """Most loss from an ingress port to an egress port; None: no attenuator is read."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        least, most = self.min_input_dbm, self.max_input_dbm
        if least is not None and most is not None and least > most:
            raise ValueError(f"min_input_dbm ({least:g}) is more than max_input_dbm ({most:g})")
        return self


@dataclass(frozen=True, slots=True)
class LightLimits:
    """Values of :class:`LightOptions`."""

    max_input_dbm: float | None = None
    min_input_dbm: float | None = None
    loss_budget_db: float | None = None


def limits_of(options: LightOptions) -> LightLimits:
    return LightLimits(
        max_input_dbm=options.max_input_dbm,
        min_input_dbm=options.min_input_dbm,
        loss_budget_db=options.loss_budget_db,
    )


def limits(plane: Plane) -> LightLimits:
    """Limits of a plane with checked options; all other options are ignored."""
    given = {name: plane.options.get(name) for name in LightOptions.model_fields}
    return limits_of(LightOptions.model_validate(given))


class AttenuatorMode(Enum):
    """How an attenuator at an egress port treats the light."""

    NONE = auto()
    RELATIVE = auto()
    """Takes its level off, in dB."""
    POWER = auto()
    """Holds the light at its level, in dBm by most sources."""
    MAXIMUM = auto()
    """Takes off as much light as possible."""
    FIXED = auto()
    """Keeps an attenuation that was fixed earlier and is not reported; also any unknown mode."""


@dataclass(frozen=True, slots=True)
class Attenuator:
    mode: AttenuatorMode
    level: float | None
    """None in modes without one."""
    words: str
    """The mode in the switch's words."""


@dataclass(frozen=True, slots=True)
class AlarmThresholds:
    """When a port's monitor raises an alarm."""

    on: bool
    low_dbm: float | None
    """None: no alarm for too little light."""
    high_dbm: float | None


def check_attenuators(
    device: str,
    limits: LightLimits,
    added: Collection[CrossConnect],
    attenuators: Callable[[Collection[int]], Mapping[int, Attenuator]],
    power: Callable[[Collection[int]], Mapping[int, float | None]],
) -> None:
    """Raises DeviceError, before anything moves, for an egress port that takes too much light off.

    ``attenuators`` gives the attenuators of ports, as far as present; ``power`` reads dBm. A port
    with unknown attenuation passes.
    """
    if limits.loss_budget_db is None or not added:
        return
    found = attenuators({new.egress for new in added})
    holding = {n.ingress for n in added if _mode(found, n.egress) is AttenuatorMode.POWER}
    readings = power(holding) if holding and limits.min_input_dbm is None else {}
    for new in sorted(added, key=lambda new: new.egress):
        expected_dbm = readings.get(new.ingress, limits.min_input_dbm)
        trouble = _too_much(found.get(new.egress), limits.loss_budget_db, expected_dbm)
        if trouble:
            raise DeviceError(
                device,
                f"port {new.egress} {trouble}: nothing was moved; clear the port's attenuator, or "
                "raise the budget",
            )


def warn_at_attach(
    device: str,
    limits: LightLimits,
    size: Callable[[], tuple[int, int]],
    attenuators: Callable[[Collection[int]], Mapping[int, Attenuator]],
    thresholds: Callable[[], Mapping[int, AlarmThresholds]],
) -> None:
    """Read attenuators and thresholds, as far as limited, of a newly attached switch, and warn.

    A switch that can't report limits is used, with a line in the log.
    """
    try:
        if limits.loss_budget_db is not None:
            ingress, egress = size()
            ports = range(ingress + 1, ingress + egress + 1)
            _warn(
                device,
                {p: _setting_trouble(a, limits) for p, a in attenuators(ports).items()},
            )
    except DeviceError as error:
        _log.info("%s does not report attenuators: %s", device, error)
    try:
        if limits.min_input_dbm is not None:
            ingress, _ = size()
            found = thresholds()
            _warn(device, {p: _false_alarm(p <= ingress, t, limits) for p, t in found.items()})
            _warn(device, {p: _hidden_loss(t) for p, t in found.items()})
    except DeviceError as error:
        _log.info("%s does not report alarm thresholds: %s", device, error)


def _warn(device: str, troubles: Mapping[int, str]) -> None:
    named = [f"port {port} {text}" for port, text in sorted(troubles.items()) if text]
    if named:
        more = (
            f"; and {len(named) - _SHOWN} more ports with such problems" if named[_SHOWN:] else ""
        )
        _log.warning("%s: %s%s", device, "; ".join(named[:_SHOWN]), more)


def _mode(found: Mapping[int, Attenuator], port: int) -> AttenuatorMode:
    attenuator = found.get(port)
    return AttenuatorMode.NONE if attenuator is None else attenuator.mode


def _too_much(attenuator: Attenuator | None, budget_db: float, expected_dbm: float | None) -> str:
    """The trouble with an attenuator; empty if there is none, or if the switch reports none."""
    if attenuator is None:
        return ""
    beyond = f"more than options.loss_budget_db ({budget_db:g}) allows"
    words, level = attenuator.words, attenuator.level
    if attenuator.mode is AttenuatorMode.MAXIMUM:
        return f"has the highest attenuation ({words}), {beyond}"
    if level is None:
        return ""
    if attenuator.mode is AttenuatorMode.RELATIVE and level > budget_db:
        return f"takes off {level:g} dB ({words}), {beyond}"
    if attenuator.mode is AttenuatorMode.POWER:
        trouble = _held_too_low(words, level, budget_db, expected_dbm)
        return trouble and f"{trouble}, {beyond}"
    return ""


def _held_too_low(words: str, level: float, budget_db: float, expected_dbm: float | None) -> str:
    """The trouble with the level of an attenuator that holds the light; empty if there is none.

    Sources disagree whether the level is the power behind the attenuator or the attenuation: both
    readings have to be harmless.
    """
    if level > budget_db:
        return f"is set to {level:g} ({words}), an attenuation of {level:g} dB if the unit is dB"
    taken_db = 0.0 if expected_dbm is None else expected_dbm - level
    if taken_db > budget_db:
        return f"limits the light to {level:+.2f} dBm ({words}), {taken_db:.2f} dB below the input"
    return ""


def _setting_trouble(attenuator: Attenuator, limits: LightLimits) -> str:
    if attenuator.mode is AttenuatorMode.FIXED:
        return f"attenuates light ({attenuator.words}), by an unreported amount"
    return _too_much(attenuator, limits.loss_budget_db or 0.0, limits.min_input_dbm)


def _false_alarm(is_ingress: bool, thresholds: AlarmThresholds, limits: LightLimits) -> str:
    if not thresholds.on:
        return ""
    least, most = limits.min_input_dbm, limits.max_input_dbm
    if least is not None and not is_ingress:
        least = None if limits.loss_budget_db is None else least - limits.loss_budget_db
    low, high = thresholds.low_dbm, thresholds.high_dbm
    if low is not None and least is not None and low > least:
        return (
            f"has an alarm below {low:+.2f} dBm, where {least:+.2f} dBm are to be expected: the "
            "alarm would be false"
        )
    if high is not None and most is not None and high < most:
        return (
            f"has an alarm above {high:+.2f} dBm, where {most:+.2f} dBm are to be expected: the "
            "alarm would be false"
        )
    return ""


def _hidden_loss(thresholds: AlarmThresholds) -> str:
    if not thresholds.on:
        return "has the alarm switched off: a loss of light would not be reported"
    if thresholds.low_dbm is None:
        return "has no alarm for too little light: a loss of light would not be reported"
    if thresholds.low_dbm < NO_SIGNAL_DBM:
        return (
            f"has an alarm below {thresholds.low_dbm:+.2f} dBm, though receivers lose the signal "
            f"at {NO_SIGNAL_DBM:g} dBm: a loss of light may not be told"
        )
    return ""
