"""Bands of agreeing values, by the five rules of :mod:`~mininet_scenarios.experiments.claims`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Band:
    """Range of values that agree with a claim; None: no limit on the side."""

    least: float | None
    most: float | None
    figure: float | None = None
    """The paper's own figure; None for a statement without a figure."""

    @property
    def two_sided(self) -> bool:
        return self.least is not None and self.most is not None

    def holds(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )


def measured(figure: float) -> Band:
    return Band(0.9 * figure, 1.1 * figure, figure)


def percent(gain: float) -> Band:
    """Band of a gain or cost, both as fractions."""
    off = max(abs(gain) / 5, 0.02)
    return Band(gain - off, gain + off, gain)


def about(figure: float) -> Band:
    return Band(0.8 * figure, 1.2 * figure, figure)


def computed(figure: float, digit: float) -> Band:
    """Band of a figure whose last printed digit counts ``digit``."""
    return Band(figure - digit / 2, figure + digit / 2, figure)


def stated(least: float | None, most: float | None, figure: float | None = None) -> Band:
    return Band(least, most, figure)


RISES: Final = stated(1.0, None)
"""Ratio of a later value to an earlier value."""
FALLS: Final = stated(None, 1.0)
