"""Rows that a reading of a device leaves out: each is named in the log when it turns up.

A row that nobody can use, since it is somebody else's or makes no sense, must not take down the
reading that it stands in.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

_log: Final = logging.getLogger(__name__)
_SHOWN: Final = 8
"""Most rows that one line of the log spells out."""


class LeftOut:
    """What the readings of one device left out."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._told: dict[str, Collection[str]] = {}

    def note(self, reading: str, rows: Mapping[str, str]) -> None:
        """Take what this ``reading`` left out: what is wrong with each row, by the row's name.

        The log names rows that the last reading of this kind did not leave out.
        """
        news = [why for name, why in rows.items() if name not in self._told.get(reading, ())]
        self._told[reading] = frozenset(rows)
        if news:
            more = f"; and {len(news) - _SHOWN} more" if len(news) > _SHOWN else ""
            _log.warning(
                "%s: left out of its %s: %s%s",
                self._device,
                reading,
                "; ".join(news[:_SHOWN]),
                more,
            )
