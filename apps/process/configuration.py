"""Reading of the configuration file, with the installed drivers and algorithms."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Final

from drivers.registry import plane_checks, rack_checks
from hydra.config import Loaded, load
from hydra.errors import HydraError
from hydra.model import Fabric, Login
from hydra.plugins import Derived
from topology.algorithms import ENTRIES, objection
from topology.problem import FabricArrays

CONFIG_VARIABLE: Final = "HYDRA_CONFIG"


def configuration_path() -> Path:
    """The file named by the environment; raises HydraError if there is none."""
    value = os.environ.get(CONFIG_VARIABLE)
    if not value:
        raise HydraError(
            f"{CONFIG_VARIABLE} is not set: name the configuration of the fabric, for example "
            f"{CONFIG_VARIABLE}=configs/demo.yaml ryu-manager apps.main"
        )
    return Path(value)


def _objection(name: str, fabric: Fabric) -> str | None:
    return objection(name, FabricArrays.of(fabric), one_way=fabric.one_way)


def load_configuration(path: Path) -> Loaded:
    """Read ``path``. Raises ConfigError with all problems."""
    return load(
        path,
        optical_drivers=plane_checks(),
        tor_drivers=rack_checks(),
        algorithms=Derived(ENTRIES, lambda name: partial(_objection, name)),
        spares=lambda name: ENTRIES[name].spares,
    )


_CHECKED: Final[list[tuple[Path, Loaded]]] = []


def check_configuration(path: Path) -> None:
    """Read ``path`` for the start that follows. Raises ConfigError with all problems."""
    _CHECKED[:] = [(path, load_configuration(path))]


def configuration_at_start(path: Path) -> Loaded:
    """The configuration as just checked, or else as read now. Raises ConfigError.

    A large file takes half a second to read.
    """
    while _CHECKED:
        checked, loaded = _CHECKED.pop()
        if checked == path:
            return loaded
    return load_configuration(path)


def digest_of(loaded: Loaded) -> str:
    """A text shared by configurations with the same fabric and policy.

    The controller's address, the place of its journal, and logins at devices may differ.
    """
    digest = hashlib.sha256()
    for part in (*_parts(loaded.fabric), *_parts(loaded.policy)):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _parts(value: object) -> Iterator[str]:
    """A value as text, in the same order in all processes."""
    if isinstance(value, Login):
        return
    if is_dataclass(value):
        for field in fields(value):
            yield field.name
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, entry in sorted(value.items(), key=lambda item: repr(item[0])):
            yield repr(key)
            yield from _parts(entry)
    elif isinstance(value, Set):
        yield from sorted("\1".join(_parts(item)) for item in value)
    elif isinstance(value, list | tuple):
        yield f"{len(value)}"
        for item in value:
            yield from _parts(item)
    else:
        yield repr(value)
