"""The certificate of an emulated switch, with an authority of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from apps.tools.authority import Use, create_authority, issue

CA: Final = "ca.pem"
"""File with the authority, for clients."""
_NAME: Final = "switch"
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_DAYS: Final = 7


def certify(directory: Path, authority: str) -> tuple[Path, Path]:
    """Make an authority of that name, and a certificate; returns its file and that of its key."""
    now = datetime.now(UTC)
    create_authority(directory, authority, _DAYS, now)
    certificate = issue(directory, _NAME, _HOSTS, Use.SERVER, _DAYS - 1, now)
    return certificate, certificate.with_suffix(".key")
