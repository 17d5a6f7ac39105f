"""A controller's hold on a bridge of Open vSwitch: a lock of the database, and the bridge's holder.

The database's lock (RFC 7047, section 4.1.8) keeps two controllers without a store apart. A leader
steals the lock (4.1.9) only to show the theft to controllers without a store: when a thief's
session ends, ovsdb-server gives the lock back to the robbed session.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

from drivers.tor.ovsdb_rows import members_of
from drivers.transports.ovsdb_session import Call, OutdatedError, OvsdbSession, RefusedError, Row
from hydra.errors import DeviceError, DeviceUnavailable, HeldElsewhere

LOG = logging.getLogger("hydra.devices")
HOLDER: Final = "hydra-controller"
"""Key in a bridge's ``external_ids``: the controller that may write, as ``GENERATION-TOKEN``."""


def lock_name(bridge: str) -> str:
    """Name of the lock on a bridge: an identifier, which a bridge's name need not be."""
    return f"hydra_{bridge.encode().hex()}"


class Hold:
    """A claimed bridge, which each write requires.

    ``generation`` is a leader's; 0: a controller without a store. ``name`` and ``address`` are the
    ToR's.
    """

    def __init__(self, name: str, address: str, bridge: str, generation: int) -> None:
        self._name, self._address, self._bridge = name, address, bridge
        self._generation = generation
        self._lock = lock_name(bridge)
        self._token = f"{generation}-{uuid.uuid4().hex}"
        """Value of :data:`HOLDER` while this controller may write."""
        self._held = False
        """True once the bridge has named this controller."""

    def connect(self, session: OvsdbSession, call: Call) -> None:
        """Connect ``session``, and ask for the lock. Raises SessionLostError."""
        session.connect(call, self._lock, steal=self._generation > 0)

    def is_robbed(self, session: OvsdbSession) -> bool:
        """True if the database names another controller. A missing bridge has no holder."""
        row = bridge_row(session, self._bridge)
        if row is None:
            return False
        lacks_lock = not self._generation and not session.has_lock
        return lacks_lock or _holder(row) != self._token

    def fence(self) -> Iterator[bytes]:
        """Operations that make a transaction fail unless this controller holds the bridge."""
        if not self._generation:
            yield json.dumps({"op": "assert", "lock": self._lock}).encode()
        where = [["name", "==", self._bridge], ["external_ids", "includes", self._ids]]
        yield _wait(where, {"name": self._bridge})

    def take(self, session: OvsdbSession, call: Call) -> None:
        """Write this controller's name into the bridge, unless the holder of the bridge keeps its
        claim.

        Raises HeldElsewhere, DeviceError, SessionLostError. The transaction fails, and is repeated,
        if another client changes the bridge's ``external_ids`` after the read.
        """
        while (row := bridge_row(session, self._bridge)) is not None:
            call.remaining_ms()
            if not self._generation and not session.has_lock:
                raise self.lost(session)
            holder = _holder(row)
            if holder == self._token:
                break
            if holder is not None and self._is_barred_by(_generation(holder)):
                raise self.lost(session)
            where = [["name", "==", self._bridge]]
            mutations = [
                ["external_ids", "delete", ["set", [HOLDER]]],
                ["external_ids", "insert", self._ids],
            ]
            mutate = {"op": "mutate", "table": "Bridge", "where": where, "mutations": mutations}
            try:
                session.transact(
                    [
                        _wait(where, {"external_ids": row.get("external_ids")}),
                        json.dumps(mutate).encode(),
                    ],
                    call,
                )
                break
            except OutdatedError as error:
                LOG.debug("%s: %s", self._name, error)
            except RefusedError as error:
                raise DeviceError(
                    self._name,
                    f"the database does not let bridge {self._bridge} be claimed: {error}",
                ) from error
        else:
            return
        self._held = True

    def lost(self, session: OvsdbSession) -> DeviceError:
        """The error for a bridge that belongs to another controller, with the holder."""
        row = bridge_row(session, self._bridge)
        holder = None if row is None else _holder(row)
        if holder is None and (self._generation or session.has_lock):
            return DeviceUnavailable(
                self._name, f"bridge {self._bridge} was replaced, and is claimed again first"
            )
        generation = 0 if holder is None else _generation(holder)
        if self._generation or self._is_barred_by(generation):
            shown = f"generation {generation} in external_ids:{HOLDER}"
        else:
            shown = f"lock {self._lock}"
        return HeldElsewhere(
            self._name,
            f"another controller holds bridge {self._bridge} ({shown} at {self._address}): "
            "stop one of the two",
            generation or None,
        )

    def _is_barred_by(self, generation: int) -> bool:
        """True if this controller must not take a bridge held by another, of ``generation``.

        A controller without a store goes by the lock. If a leader has robbed such a controller of a
        bridge, the lock comes back when the leader's session ends, and no longer counts.
        """
        if self._generation:
            return generation >= self._generation
        return self._held and generation > 0

    @property
    def _ids(self) -> list[object]:
        return ["map", [[HOLDER, self._token]]]


def bridge_row(session: OvsdbSession, bridge: str) -> Row | None:
    rows = session.rows["Bridge"].values()
    return next((row for row in rows if row["name"] == bridge), None)


def _wait(where: object, row: Mapping[str, object]) -> bytes:
    """Operation that makes a transaction fail unless a bridge matches ``row`` (RFC 7047, 5.2.6)."""
    operation = {
        "op": "wait",
        "timeout": 0,
        "table": "Bridge",
        "where": where,
        "columns": list(row),
        "until": "==",
        "rows": [row],
    }
    return json.dumps(operation).encode()


def _holder(bridge: Row) -> str | None:
    """The controller that a bridge names as its holder; None if there is none."""
    try:
        return dict(members_of(bridge["external_ids"])).get(HOLDER)
    except (AttributeError, LookupError, TypeError, ValueError):  # an invalid answer
        return None


def _generation(holder: str) -> int:
    """Generation of the controller that a bridge names; 0 for a controller without a store."""
    number = holder.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else 0
