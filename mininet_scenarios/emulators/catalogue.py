"""Emulators of optical switches, by driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Emulator:
    """A runnable module, and the login of the emulated devices."""

    module: str
    user: str | None = None
    password: str = ""
    has_directory: bool = False
    """True if the module takes ``--directory``, for the certificate authority that clients
    trust.
    """

    @property
    def path(self) -> str:
        """Module name for ``python -m``."""
        return f"mininet_scenarios.emulators.{self.module}"


EMULATORS: Final[Mapping[str, Emulator]] = {
    "calient-tl1": Emulator("calient", "admin", "root"),
    "glimmerglass-tl1": Emulator("glimmerglass"),
    "polatis-restconf": Emulator("polatis_restconf", "admin", "root"),
    "polatis-scpi": Emulator("polatis"),
    "polatis-tl1": Emulator("polatis_tl1", "admin", "root"),
    "sonic-ocs": Emulator("sonic", "admin", "YourPaSsWoRd", has_directory=True),
    "template": Emulator("craft_terminal", "craft", "lambda"),
}
