"""How long to wait for another program, thread or device before giving up."""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 120.0
"""Seconds after which something has failed, however busy the machine is. Who waits goes on as soon
as what is awaited is there, so a long time costs nothing."""
