"""Conditions: faults of the network in words, and summaries of several faults."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hydra.model import Pair

MOST_NAMED: Final = 5
"""Largest number of subjects that a sentence names; further subjects are counted."""


MOST_ALONE: Final = 20
"""Largest number of separate conditions of a kind; further conditions are summarized as a single
one.
"""


class ConditionKind(StrEnum):
    """Kinds of conditions, the most urgent first."""

    STORE_UNAVAILABLE = "store-unavailable"
    """The store shared by the controllers does not answer, so no controller leads."""
    JOURNAL_FAILED = "journal-failed"
    RESERVATION_FAILED = "reservation-failed"
    TRANSFER_AT_RISK = "transfer-at-risk"
    """Bytes that will not arrive by their deadline."""
    PROTECTION_LOST = "protection-lost"
    """Protected reservations without a path on standby; their working path stands."""
    OPTICAL_SWITCH_DOWN = "optical-switch-down"
    TOR_DOWN = "tor-down"
    SWITCH_NOT_CONNECTED = "switch-not-connected"
    SWITCH_REFUSED = "switch-refused"
    """Switches that try to connect and fail by a setting: OpenFlow version, or TLS."""
    SWITCH_NOT_ANSWERING = "switch-not-answering"
    """Switches with a standing connection and an overdue answer."""
    RULES_REFUSED = "rules-refused"
    """A switch has no room for the rules of its circuits, or does not support some rules."""
    UNCONFIRMED = "unconfirmed"
    """Devices and switches that answer, and have not confirmed the present state."""
    PORT_RENUMBERED = "port-renumbered"
    """Ports whose OpenFlow number differs from the number in the rules."""
    WORKER_REFUSED = "worker-refused"
    """Workers with a different protocol version than the controller."""
    TAKEOVER_AT_RISK = "takeover-at-risk"
    """Members of a store, clocks or files of controllers that would impair a takeover."""
    PORT_QUARANTINED = "port-quarantined"
    PORT_ON_TRIAL = "port-on-trial"
    UPLINK_DEAD = "uplink-dead"
    ALARM = "alarm"
    FOREIGN_FRAMES = "foreign-frames"
    """Servers with frames dropped by the source check."""
    DRIFT = "drift"
    STALE_COUNTERS = "stale-counters"


@dataclass(frozen=True, slots=True)
class Condition:
    """A fault."""

    kind: ConditionKind
    subjects: tuple[str, ...]
    """Names of the faulty elements."""
    what: str
    since_unix_s: float
    done: str
    """The controller's action, in words."""
    to_do: str
    """The next step for people, in words."""
    command: str
    """Command for the next step, or for more information."""
    pairs: tuple[Pair, ...] = ()
    """Affected rack pairs."""
    reservations: tuple[str, ...] = ()
    """Ids of the affected reservations."""


def bounded(same: Sequence[Condition]) -> Iterator[Condition]:
    """The oldest conditions of a kind, and a summary of the rest."""
    yield from same[:MOST_ALONE]
    if others := same[MOST_ALONE:]:
        first = others[0]
        subjects = tuple(name for condition in others for name in condition.subjects)
        yield Condition(
            first.kind,
            subjects,
            f"{len(others):,} more of the same kind: {names_of(subjects)}",
            first.since_unix_s,
            first.done,
            first.to_do,
            first.command,
            tuple(sorted({pair for condition in others for pair in condition.pairs})),
            tuple(dict.fromkeys(each for condition in others for each in condition.reservations)),
        )


_OVER: Final[Mapping[ConditionKind, tuple[str, str]]] = {
    ConditionKind.OPTICAL_SWITCH_DOWN: (
        "optical switch {} can be commanded again",
        "{} optical switches can be commanded again",
    ),
    ConditionKind.TOR_DOWN: ("ToR {} can be commanded again", "{} ToRs can be commanded again"),
    ConditionKind.SWITCH_NOT_CONNECTED: (
        "switch {} is connected now",
        "{} switches are connected now",
    ),
    ConditionKind.SWITCH_REFUSED: ("{} is accepted again", "{} switches are accepted again"),
    ConditionKind.SWITCH_NOT_ANSWERING: ("switch {} answers again", "{} switches answer again"),
    ConditionKind.RULES_REFUSED: (
        "switch {} accepts rules again",
        "{} switches accept rules again",
    ),
    ConditionKind.PORT_RENUMBERED: (
        "rules follow the new number of port {}",
        "rules follow the new numbers of {} ports",
    ),
    ConditionKind.WORKER_REFUSED: (
        "worker {} is accepted again",
        "{} workers are accepted again",
    ),
    ConditionKind.TAKEOVER_AT_RISK: (
        "{} no longer puts a takeover at risk",
        "{} replicas or members of the store no longer put a takeover at risk",
    ),
    ConditionKind.PROTECTION_LOST: (
        "reservation {} is protected again, or over",
        "{} reservations are protected again, or over",
    ),
    ConditionKind.UPLINK_DEAD: (
        "server {} has an uplink for circuits again",
        "{} servers have an uplink for circuits again",
    ),
    ConditionKind.ALARM: (
        "optical switch {} has no alarm any more",
        "{} optical switches have no alarm any more",
    ),
    ConditionKind.DRIFT: ("{} is as intended again", "{} devices are as intended again"),
}
"""Texts for the end of a condition, with a single subject and with several subjects."""


def over(kind: ConditionKind, names: Sequence[str]) -> str:
    """A sentence for the end of a condition with at least one subject."""
    singular, many = _OVER[kind]
    if len(names) == 1:
        return singular.format(names[0])
    return f"{many.format(f'{len(names):,}')}: {names_of(names)}"


def many_are(singular: str, many: str, names: Collection[str], state: str) -> str:
    if len(names) == 1:
        return f"{singular} {next(iter(names))} is {state}"
    return f"{len(names):,} {many} are {state}: {names_of(tuple(names))}"


def names_of(names: Sequence[str], between: str = ", ") -> str:
    more = len(names) - MOST_NAMED
    return between.join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
