"""Effects of a new configuration file on a running controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Final

from hydra.config.checks import objection_to
from hydra.config.load import Loaded
from hydra.config.patterns import suggest
from hydra.errors import ConfigError, HydraError, Problem
from hydra.policy import Policy, PolicyKey, Taken, policy_keys

AT_ONCE: Final = frozenset(
    policy_key.name for policy_key in policy_keys() if policy_key.taken is not Taken.AT_START
)
"""Policy keys that a reload applies."""
BY_REQUEST: Final = frozenset(
    policy_key.name for policy_key in policy_keys() if policy_key.taken is Taken.AT_ONCE
)
"""Policy keys that can also be changed without the file."""


@dataclass(frozen=True, slots=True)
class Change:
    key: str
    """Path in the file, such as ``policy.epoch_s``."""
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Reload:
    """Changes applied by a reload, and changes left for the next start."""

    applied: tuple[Change, ...]
    waiting: tuple[Change, ...]
    """Changed in the file; effective at the next start."""


def reload(running: Loaded, policy: Policy, file: Loaded) -> tuple[Policy, Reload]:
    """The new policy, and the changes.

    ``running`` is the configuration at the start, ``policy`` the present policy, ``file`` the new
    configuration. Raises ConfigError if the running fabric does not permit the new policy, even if
    the new fabric does.
    """
    wanted = replace(policy, **{key: getattr(file.policy, key) for key in AT_ONCE})
    if (objection := objection_to(wanted, running.fabric)) is not None:
        problem = (
            f"{objection} (in the running fabric; the fabric of the file waits for the next start)"
        )
        raise ConfigError(file.source, [Problem("", problem)])
    waiting = replace(file.policy, **{key: getattr(policy, key) for key in AT_ONCE})
    applied = _changes("policy", asdict(policy), asdict(wanted))
    later = [
        *_changes("policy", asdict(policy), asdict(waiting)),
        *_changes("controller", asdict(running.controller), asdict(file.controller)),
        *_fabric_changes(running, file),
    ]
    return wanted, Reload(tuple(applied), tuple(later))


def amended(policy: Policy, changes: Mapping[str, object]) -> tuple[Policy, tuple[Change, ...]]:
    """The policy with new values, by key of :data:`BY_REQUEST`, and the changes.

    A section such as ``drain`` is a mapping with some of its keys; other keys keep their values.
    Raises HydraError for any other key.
    """
    if others := sorted(changes.keys() - BY_REQUEST):
        raise HydraError("; ".join(f"policy.{key} {why_not((key,))}" for key in others))
    values: dict[str, Any] = {
        key: replace(getattr(policy, key), **value) if isinstance(value, Mapping) else value
        for key, value in changes.items()
    }
    wanted = replace(policy, **values)
    return wanted, tuple(_changes("policy", asdict(policy), asdict(wanted)))


def why_not(path: Sequence[str]) -> str:
    """Reason why no request can change the policy key at ``path``, in words."""
    *sections, key = path
    settings: type[Any] = Policy
    for section in sections:
        settings = type(_keys(settings)[section].default)
    known = _keys(settings)
    if key not in known:
        return f"is an unknown key; {suggest(key, list(known))}"
    after = "reload" if known[key].taken is Taken.BY_FILE else "start again"
    return f"can't be changed without the configuration file: change the key there, then {after}"


def _keys(settings: type[Any]) -> dict[str, PolicyKey]:
    return {policy_key.name: policy_key for policy_key in policy_keys(settings)}


def in_force(policy: Policy) -> Iterator[tuple[str, str, Taken]]:
    """Each policy value as (path in the file, value in words, time of adoption)."""
    for key in policy_keys():
        value = getattr(policy, key.name)
        if is_dataclass(value):
            yield from (
                (f"policy.{key.name}.{field.name}", _word(getattr(value, field.name)), key.taken)
                for field in fields(value)
            )
        else:
            yield f"policy.{key.name}", _word(value), key.taken


def _changes(where: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    for key, old in before.items():
        new = after[key]
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(f"{where}.{key}", old, new)
        elif old != new:
            yield Change(f"{where}.{key}", _word(old), _word(new))


def _word(value: object) -> str:
    if value is None:
        return "none"
    return str(value.value) if isinstance(value, Enum) else str(value)


def _fabric_changes(running: Loaded, file: Loaded) -> Iterator[Change]:
    """Changes by part: a whole list of racks would be unreadable."""
    for field in fields(running.fabric):
        if not field.init:
            continue
        old, new = getattr(running.fabric, field.name), getattr(file.fabric, field.name)
        if old == new:
            continue
        if isinstance(old, tuple):
            same = len(old) == len(new)
            yield Change(
                f"fabric.{field.name}", f"{len(old)}", "changed" if same else f"{len(new)}"
            )
        else:
            yield Change(f"fabric.{field.name}", str(old), str(new))
