"""Entry points of ``hydra`` and ``ryu-manager``: first check that our packages are ours.

PyPI's hydra-core has a package ``hydra``, too. Whichever of two distributions pip installs last
overwrites files of the first distribution: check before any import of HydRA's packages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from typing import Final

_DISTRIBUTION: Final = "hydra-hybrid-network"
_FILES_OF_OURS: Final = re.compile(
    r"^(hydra|topology|drivers|apps|mininet_scenarios)/__init__\.py,", re.MULTILINE
)


def hydra() -> None:
    """The ``hydra`` command."""
    _refuse_if_shared()
    from apps.cli import main  # noqa: PLC0415

    main()


def ryu_manager() -> None:
    """The ``ryu-manager`` command."""
    _refuse_if_shared()
    from apps.launcher import ryu_manager as begin  # noqa: PLC0415

    begin()


def other_owners() -> Iterator[tuple[str, str, str]]:
    """Yield (package of HydRA, foreign distribution with the package, version)."""
    for distribution in distributions():
        packages = _FILES_OF_OURS.findall(distribution.read_text("RECORD") or "")
        # Metadata are slow to read, and almost all distributions have different packages.
        if packages and distribution.metadata["Name"] != _DISTRIBUTION:
            yield packages[0], distribution.metadata["Name"], distribution.version


def _refuse_if_shared() -> None:
    """Exit with status 1 if a foreign distribution in this environment has a package of HydRA."""
    for package, name, version in other_owners():
        sys.exit(
            f"{name} {version} has a package `{package}`, and so has {_DISTRIBUTION}: in one "
            "environment each overwrites files of the other. Install "
            f"{_DISTRIBUTION} in an environment of its own; beside {name}, programs ask a "
            "controller by hydra-hybrid-network-client"
        )
