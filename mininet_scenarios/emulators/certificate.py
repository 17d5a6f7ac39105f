"""The certificate of an emulated switch, with an authority of its own."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from apps.tools.authority import Use, create_authority, issue

CA: Final = "ca.pem"
"""File with the authority, for clients."""
_NAME: Final = "switch"
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_DAYS: Final = 7


@contextmanager
def new_directory(parser: argparse.ArgumentParser, named: Path | None) -> Iterator[Path]:
    """A new directory for an emulator's files: ``named``, or a temporary directory for the
    block.
    """
    with ExitStack() as stack:
        directory = named or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if (directory / CA).exists():
            parser.error(
                f"--directory {directory}: another emulator has been there, name a new one"
            )
        directory.mkdir(parents=True, exist_ok=True)
        yield directory


def certify(directory: Path, authority: str) -> tuple[Path, Path]:
    """Make an authority named ``authority``, and a certificate; returns the files of certificate
    and key.
    """
    now = datetime.now(UTC)
    create_authority(directory, authority, _DAYS, now)
    certificate = issue(directory, _NAME, _HOSTS, Use.SERVER, _DAYS - 1, now)
    return certificate, certificate.with_suffix(".key")
