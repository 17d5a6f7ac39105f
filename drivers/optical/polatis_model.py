"""Polatis' YANG modules, whichever protocol carries them: sizes, words for states and start-up."""

from __future__ import annotations

import logging
import re
from typing import Final

from drivers.optical.light import AlarmThresholds, Attenuator, AttenuatorMode
from hydra.errors import DeviceError
from hydra.roles import PortState

_log: Final = logging.getLogger(__name__)

_OLD_STATE: Final = "PC_"
"""Beginning of a port's states in older models."""
_SIZE: Final = re.compile(r"-([1-9][0-9]{0,4})x([1-9][0-9]{0,4})(?:-|$)")
_STATES: Final = {
    "ENABLED": PortState.ENABLED,
    "DISABLED": PortState.DISABLED,
    "FAILED": PortState.FAILED,
}
_VOLATILE: Final = "volatile"
_ATTENUATOR: Final = "VOA_MODE_"
_ATTENUATORS: Final = {
    "": AttenuatorMode.NONE,
    "NONE": AttenuatorMode.NONE,
    "ABSOLUTE": AttenuatorMode.POWER,
    "CONVERGED": AttenuatorMode.POWER,
    "RELATIVE": AttenuatorMode.RELATIVE,
    "MAXIMUM": AttenuatorMode.MAXIMUM,
}
_OFF: Final = "DISABLED"
"""End of the modes of an alarm that is off."""


def size_of(device: str, model: str) -> tuple[int, int]:
    """Numbers of (ingress, egress) ports, which are part of the model's name."""
    match = _SIZE.search(model)
    if match is None:
        raise DeviceError(
            device,
            f"model {model!r} tells no size such as 16x16; this driver takes switches "
            "with separate ingress and egress ports: use polatis-tl1 for others",
        )
    return int(match[1]), int(match[2])


def port_state(word: str | None) -> PortState:
    """A port's state; words that are not known read as UNKNOWN."""
    return _STATES.get((word or "").removeprefix(_OLD_STATE), PortState.UNKNOWN)


def attenuator(mode: str, level: float | None) -> Attenuator:
    """An attenuator; a mode that is not known reads as FIXED."""
    known = _ATTENUATORS.get(mode.removeprefix(_ATTENUATOR), AttenuatorMode.FIXED)
    return Attenuator(known, level, mode)


def thresholds(mode: str, low_dbm: float | None, high_dbm: float | None) -> AlarmThresholds:
    """Alarm thresholds; an alarm is on unless its mode says that it is disabled."""
    return AlarmThresholds(not mode.endswith(_OFF), low_dbm, high_dbm)


def warn_of_start(device: str, mode: str | None) -> None:
    """Warn of a switch that loses its cross-connects with its power; None: it does not say."""
    if mode is not None and _VOLATILE in mode.lower():
        _log.warning(
            "%s starts without cross-connects (%s): a power cycle cuts every circuit; set its "
            "start-up mode to preserve them",
            device,
            mode,
        )
