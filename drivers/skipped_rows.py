"""Rows left out of a device's readings: the log names each row when it turns up.

An unusable row (another client's, or invalid) must not fail the whole reading.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

_log: Final = logging.getLogger(__name__)
_SHOWN: Final = 8
"""Largest number of rows spelt out in a line of the log."""


class SkippedRows:
    """Rows left out of the readings of a device."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._reported: dict[str, Collection[str]] = {}

    def note(self, reading: str, rows: Mapping[str, str]) -> None:
        """Log the rows left out of a ``reading``: ``rows`` gives the fault of each row by the row's
        name.

        Rows that were also left out of the previous reading of the same kind are not logged again.
        """
        news = [why for name, why in rows.items() if name not in self._reported.get(reading, ())]
        self._reported[reading] = frozenset(rows)
        if news:
            more = f"; and {len(news) - _SHOWN} more" if len(news) > _SHOWN else ""
            _log.warning(
                "%s: left out of the device's %s: %s%s",
                self._device,
                reading,
                "; ".join(news[:_SHOWN]),
                more,
            )
