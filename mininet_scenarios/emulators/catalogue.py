"""Emulators of optical switches, by the drivers that speak to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Emulator:
    """A module that can be run, and whom its devices let in."""

    module: str
    user: str | None = None
    password: str = ""
    has_directory: bool = False
    """True if it takes ``--directory``, where its clients find whom to trust."""

    @property
    def path(self) -> str:
        """The module as ``python -m`` takes it."""
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
