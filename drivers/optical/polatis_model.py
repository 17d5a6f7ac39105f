"""Polatis' YANG modules, independent of the protocol: sizes, words for states and start-up."""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Final

from drivers.optical import light
from drivers.optical.base import BaseSwitch
from drivers.optical.input_power import check_input_power
from drivers.optical.light import AlarmThresholds, Attenuator, AttenuatorMode, LightOptions
from hydra.errors import DeviceError
from hydra.model import CrossConnect
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
"""End of the mode of an alarm that is off."""


class PolatisYangSwitch(BaseSwitch):
    """A :class:`BaseSwitch` with a size that follows from the model name, and checks of light
    before a change.
    """

    def __init__(self, name: str, options: LightOptions) -> None:
        super().__init__(name)
        self._limits = light.limits_of(options)

    @abstractmethod
    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]:
        """Power at the given ports in dBm; None where the switch has no meter."""

    @abstractmethod
    def _attenuators(self, ports: Collection[int]) -> Mapping[int, Attenuator]:
        """Attenuators at the given egress ports, as far as present."""

    @abstractmethod
    def _thresholds(self) -> Mapping[int, AlarmThresholds]:
        """Alarm thresholds of all ports with thresholds."""

    def _read_size(self) -> tuple[int, int]:
        return size_of(self._name, self.identity().model)

    def _check_light(self, added: Collection[CrossConnect]) -> None:
        check_input_power(self._name, self._limits.max_input_dbm, added, self.power_dbm)
        light.check_attenuators(self._name, self._limits, added, self._attenuators, self.power_dbm)

    def _warn_at_attach(self, start_mode: str | None) -> None:
        """Warn if the switch loses its cross-connects with its power, and warn about its light.

        Warnings about light: attenuators and alarm thresholds that contradict the owner's
        expectations. ``start_mode``: None if the switch does not report its start-up mode.
        """
        warn_of_start(self._name, start_mode)
        light.warn_at_attach(
            self._name, self._limits, self.size, self._attenuators, self._thresholds
        )


def size_of(device: str, model: str) -> tuple[int, int]:
    """Numbers of (ingress, egress) ports, which are part of the model's name."""
    match = _SIZE.search(model)
    if match is None:
        raise DeviceError(
            device,
            f"model {model!r} has no size such as 16x16; this driver takes switches "
            "with separate ingress and egress ports: use polatis-tl1 for others",
        )
    return int(match[1]), int(match[2])


def port_state(word: str | None) -> PortState:
    """A port's state; unknown words read as UNKNOWN."""
    return _STATES.get((word or "").removeprefix(_OLD_STATE), PortState.UNKNOWN)


def attenuator(mode: str, level: float | None) -> Attenuator:
    """An attenuator; an unknown mode reads as FIXED."""
    known = _ATTENUATORS.get(mode.removeprefix(_ATTENUATOR), AttenuatorMode.FIXED)
    return Attenuator(known, level, mode)


def thresholds(mode: str, low_dbm: float | None, high_dbm: float | None) -> AlarmThresholds:
    """Alarm thresholds; an alarm is on unless its mode ends with DISABLED."""
    return AlarmThresholds(not mode.endswith(_OFF), low_dbm=low_dbm, high_dbm=high_dbm)


def warn_of_start(device: str, mode: str | None) -> None:
    """Warn of a switch that loses its cross-connects with its power; ``mode`` None: unknown."""
    if mode is not None and _VOLATILE in mode.lower():
        _log.warning(
            "%s starts without cross-connects (%s): a power cycle cuts every circuit; set its "
            "start-up mode to preserve them",
            device,
            mode,
        )
