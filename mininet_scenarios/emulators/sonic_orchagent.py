"""The agent between the databases and the mirrors of an emulated SONiC optical circuit switch.

Any change of the configuration is accepted, and the state database has the result. Peculiarities of
real switches are emulated:

- a single new cross-connect on a busy port is invalid, and stays invalid;
- several cross-connects added together replace others on busy ports, listed as invalid then;
- a key listed already is skipped, in any state;
- a standing cross-connect without configuration can't be deleted;
- Molex: of cross-connects deleted together, none is deleted if any was never made;
- hardware fails after the configuration was accepted.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.ocs import EmulatedOcs, StandingAlarm
from mininet_scenarios.emulators.sonic_databases import Databases, PubSub

CROSS_CONNECTS: Final = "OCS_CROSS_CONNECT"
CROSS_CONNECT_STATES: Final = "OCS_CROSS_CONNECT_TABLE"
PORTS: Final = "OCS_PORT"
PORT_STATES: Final = "OCS_PORT_TABLE"
METADATA: Final = "DEVICE_METADATA"
FACTORY_LOSSES: Final = ("OCS_FACTORY_INSERTION_LOSS", "OCS_FACTORY_INSERTION_LOSS_TABLE")
"""Tables of losses measured in the factory, as named by the working group and Molex; empty unless
filled.
"""
ALARMS: Final = "ALARM"
_KEY: Final = re.compile(r"([1-9][0-9]{0,4})A-([1-9][0-9]{0,4})B")
_SEVERITIES: Final = {"CR": "CRITICAL", "MJ": "MAJOR", "MN": "MINOR"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """Words for the phases of a cross-connect, and of the ports in use."""

    name: str
    moving: str
    made: str
    broken: str
    invalid: str
    pushed_aside: str
    made_at_port: str
    port_field: str
    each_side: bool
    """True if each side of a cross-connect has a status."""
    bulk_update: bool
    """True if RESTCONF has the rpc ``bulk-update``."""
    removes_all_or_none: bool
    """True if cross-connects are deleted together, and only if the state database has all of
    them.
    """

    def row(self, a_side: str, b_side: str, word: str) -> dict[str, str]:
        """A row of the table of cross-connects' states."""
        if self.each_side:
            statuses = {f"{side}_side_status": word for side in "ab"}
            return {"a_side": a_side, "b_side": b_side, **statuses}
        path = f"{a_side},panel IN {a_side[:-1]},panel OUT {b_side[:-1]},{b_side}"
        return {"status": word, "physical_path@": path}


WORKING_GROUP: Final = Dialect(
    "working-group", "tuning", "tuned", "failed", "failed", "blocked", "tuned", "status",
    each_side=True, bulk_update=False, removes_all_or_none=False,
)  # fmt: skip
MOLEX: Final = Dialect(
    "molex", "disabled", "enabled", "disabled", "invalid", "invalid", "connected", "oper_status",
    each_side=False, bulk_update=True, removes_all_or_none=True,
)  # fmt: skip
DIALECTS: Final = {dialect.name: dialect for dialect in (WORKING_GROUP, MOLEX)}

Pair = tuple[int, int]


class Orchagent:
    """Carries configuration to mirrors, and the mirrors' state back."""

    def __init__(
        self, ocs: EmulatedOcs, databases: Databases, dialect: Dialect, serial: str
    ) -> None:
        self._ocs = ocs
        self._databases = databases
        self._dialect = dialect
        self.operations = frozenset({"sonic-ocs:bulk-update"} if dialect.bulk_update else ())
        self._serial = serial
        self._known: set[str] = set()
        """Keys of the configuration processed so far."""
        self._words: dict[Pair, str] = {}
        """State words of the configured pairs."""
        self._carried: set[Pair] = set()
        """Pairs sent to the mirrors."""
        self._published: object = None
        """Basis of the last written rows of all ports."""
        self._ports: dict[str, dict[str, str]] = {}
        self._overrides: dict[str, dict[str, str]] = {}
        self._alarms: dict[tuple[int, str], str] = {}
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Fill the tables, and carry out configuration from now on."""
        metadata = {
            "type": "SonicOCS",
            "switch_type": "ocs",
            "hwsku": f"OCS-{self._ocs.size}",
            "platform": "x86_64-ocs-emulated",
            "chassis_serial_number": self._serial,
        }
        self._databases.write("CONFIG_DB", METADATA, [], {"localhost": metadata})
        self.refresh()
        self._ocs.on_alarm(self._alarm)
        notices = await self._databases.changes("CONFIG_DB", CROSS_CONNECTS)
        self._keep(self._listen(notices))

    def refresh(self) -> None:
        """Write changes made outside the configuration into the tables: foreign cross-connects,
        shutters, power.
        """
        present = {*self._ocs.cross_connects.items()}
        foreign, gone = present - self._carried, self._carried - present
        if gone:
            keys = [self._key(pair) for pair in gone]
            self._known.difference_update(keys)
            self._databases.write("CONFIG_DB", CROSS_CONNECTS, keys, {})
            self._forget(gone)
        if foreign:
            sides = {self._key(pair): self._sides(pair) for pair in foreign}
            rows = {key: {"a_side": a, "b_side": b} for key, (a, b) in sides.items()}
            self._known |= rows.keys()
            self._carried |= foreign
            self._databases.write("CONFIG_DB", CROSS_CONNECTS, [], rows)
            self._say(foreign, self._dialect.made)
        self._publish_ports()

    async def _listen(self, notices: PubSub) -> None:
        while True:
            message = await notices.get_message(timeout=None)
            while message is not None:  # one comparison for all changes of a transaction
                message = await notices.get_message(timeout=0)
            self._carry_out()

    def _carry_out(self) -> None:
        """Compare the configuration with the previous configuration, and move mirrors."""
        configured = self._databases.keys("CONFIG_DB", CROSS_CONNECTS)
        removed, added = self._known - configured, configured - self._known
        self._known = configured
        if removed:
            self._remove(removed)
        if added:
            self._add(sorted(added))

    def _remove(self, keys: Collection[str]) -> None:
        standing = self._databases.keys("STATE_DB", CROSS_CONNECT_STATES)
        if self._dialect.removes_all_or_none and not standing.issuperset(keys):
            return
        pairs = [pair for key in keys if (pair := self._pair(key)) is not None]
        self._ocs.disconnect(self._carried.intersection(pairs))
        self._forget(pairs, keys)
        self._publish_ports()

    def _add(self, keys: list[str]) -> None:
        standing = self._databases.keys("STATE_DB", CROSS_CONNECT_STATES)
        wanted = [p for key in keys if key not in standing and (p := self._pair(key)) is not None]
        present = self._ocs.cross_connects
        force = len(wanted) > 1 or self._ocs.faults.strikes(FaultKind.STEAL)
        made: list[Pair] = []
        for ingress, egress in wanted:
            twice = any(ingress == a or egress == b for a, b in made)
            busy = ingress in present or egress in present.values()
            if twice or not self._exists((ingress, egress)) or (busy and not force):
                self._say([(ingress, egress)], self._dialect.invalid)
            else:
                made.append((ingress, egress))
        aside = [
            pair for pair in present.items() if any(pair[0] == a or pair[1] == b for a, b in made)
        ]
        self._ocs.disconnect(aside)
        self._carried.difference_update(aside)
        self._say(aside, self._dialect.pushed_aside)
        self._ocs.connect(made)
        self._carried.update(made)
        self._say(made, self._dialect.moving)
        self._publish_ports()
        if made and not self._ocs.faults.strikes(FaultKind.RESERVED):
            self._keep(self._settle(made))

    async def _settle(self, pairs: list[Pair]) -> None:
        await self._ocs.settled()
        for pair in pairs:
            if pair in self._carried and self._words[pair] == self._dialect.moving:
                fault = self._ocs.in_fault(pair[0])
                self._say([pair], self._dialect.broken if fault else self._dialect.made)
        self._publish_ports()

    def _say(self, pairs: Iterable[Pair], word: str) -> None:
        """Write a state word for the cross-connects into the state database."""
        pairs = list(pairs)
        self._words.update(dict.fromkeys(pairs, word))
        rows = {self._key(pair): self._dialect.row(*self._sides(pair), word) for pair in pairs}
        if rows:
            self._databases.write("STATE_DB", CROSS_CONNECT_STATES, [], rows)

    def _forget(self, pairs: Collection[Pair], keys: Collection[str] = ()) -> None:
        """Delete the state rows of pairs, and of ``keys`` (possibly without a valid pair), at
        once.
        """
        for pair in pairs:
            self._words.pop(pair, None)
            self._carried.discard(pair)
        rows = {*keys, *map(self._key, pairs)}
        if rows:
            self._databases.write("STATE_DB", CROSS_CONNECT_STATES, [*rows], {})

    def _publish_ports(self) -> None:
        present, closed = {**self._ocs.cross_connects}, self._ocs.closed
        broken = {ingress for ingress in present if self._ocs.in_fault(ingress)}
        ports = present, closed, broken, {**self._words}
        if ports == self._published:
            return
        self._published = ports
        states: dict[str, dict[str, str]] = {}
        overrides: dict[str, dict[str, str]] = {}
        targets = {b: a for a, b in present.items()}
        for port in range(1, 2 * self._ocs.size + 1):
            peer = present.get(port) if port <= self._ocs.size else targets.get(port)
            row = {"connector_type": "Duplex LC", "connector_pin": "0"}
            word = "blocked"
            if peer is not None:
                pair = (min(port, peer), max(port, peer))
                said = self._words.get(pair, self._dialect.made)
                word = "tuning"
                if said == self._dialect.made:
                    word = self._dialect.made_at_port
                elif pair[0] in broken:
                    word = "failed"
                row["target_simplex_port_id"] = self._name(peer)
            states[self._name(port)] = {**row, self._dialect.port_field: word}
            status = "force_blocked" if port in closed else "normal"
            overrides[self._name(port)] = {"config_status": status}
        for database, table, new, old in (
            ("STATE_DB", PORT_STATES, states, self._ports),
            ("CONFIG_DB", PORTS, overrides, self._overrides),
        ):
            changed = {name: row for name, row in new.items() if old.get(name) != row}
            if changed:
                self._databases.write(database, table, [], changed)
        self._ports, self._overrides = states, overrides

    def _alarm(self, alarm: StandingAlarm) -> None:
        which = alarm.port, alarm.code
        if alarm.severity == "CL":
            number = self._alarms.pop(which, None)
            self._databases.write("EVENT_DB", ALARMS, [] if number is None else [number], {})
            return
        self._number += 1
        self._alarms[which] = str(self._number)
        row = {
            "id": str(self._number),
            "type-id": alarm.code,
            "severity": _SEVERITIES[alarm.severity],
            "resource": self._name(alarm.port),
            "text": alarm.text,
            "time-created": str(time.time_ns()),
            "acknowledged": "false",
        }
        self._databases.write("EVENT_DB", ALARMS, [], {str(self._number): row})

    # --- names ----------------------------------------------------------------------------------

    def _name(self, port: int) -> str:
        size = self._ocs.size
        return f"{port}A" if port <= size else f"{port - size}B"

    def _sides(self, pair: Pair) -> tuple[str, str]:
        return self._name(pair[0]), f"{pair[1] - self._ocs.size}B"

    def _key(self, pair: Pair) -> str:
        return "-".join(self._sides(pair))

    def _pair(self, key: str) -> Pair | None:
        match = _KEY.fullmatch(key)
        return None if match is None else (int(match[1]), self._ocs.size + int(match[2]))

    def _exists(self, pair: Pair) -> bool:
        size = self._ocs.size
        return pair[0] <= size < pair[1] <= 2 * size

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def shown_fields(row: Mapping[str, str]) -> dict[str, object]:
    """A row in JSON form: fields with names ending in ``@`` are lists."""
    return {
        name.removesuffix("@"): value.split(",") if name.endswith("@") else value
        for name, value in row.items()
    }
