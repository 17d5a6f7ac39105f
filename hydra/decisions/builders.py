"""Origins of the present circuits, for people; no decision depends on the origins.

The journal keeps a record of each reconfiguration while a circuit of the reconfiguration stands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.journal import Change, Kind
from hydra.journal_format import circuit_record, read_circuits
from hydra.model import Circuit, Fabric


@dataclass(frozen=True, slots=True)
class Builder:
    """The reconfiguration that made a circuit."""

    reconfiguration: str
    trigger: str
    unix_s: float
    """Time of the request."""


class Builders:
    """The builders of circuits, and records not in the journal yet. Not thread-safe."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._unwritten: list[Change] = []
        self._of: dict[Circuit, Builder] = {}
        self._recorded: set[str] = set()

    def load(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Load the records of the journal, oldest first.

        Raises KeyError, TypeError or ValueError for a record of another release, and loads none
        then.
        """
        read = [
            (
                Builder(
                    str(record["reconfiguration"]), str(record["trigger"]), float(record["unix_s"])
                ),
                read_circuits(self._fabric, record["circuits"]),
            )
            for record in records
        ]
        for builder, circuits in read:
            self._enter(builder, circuits)

    def _enter(self, builder: Builder, circuits: Iterable[Circuit]) -> None:
        self._of |= dict.fromkeys(circuits, builder)
        self._recorded.add(builder.reconfiguration)

    @property
    def of(self) -> Mapping[Circuit, Builder]:
        """Known builders by circuit."""
        return dict(self._of)

    def add(self, builder: Builder, circuits: Collection[Circuit]) -> None:
        """Note a reconfiguration and its new circuits."""
        if not circuits:
            return
        self._enter(builder, circuits)
        record = {
            "reconfiguration": builder.reconfiguration,
            "trigger": builder.trigger,
            "unix_s": builder.unix_s,
            "circuits": [circuit_record(self._fabric, circuit) for circuit in sorted(circuits)],
        }
        self._unwritten.append(Change(Kind.BUILDER, builder.reconfiguration, record))

    def keep(self, standing: Collection[Circuit]) -> None:
        """Forget circuits outside ``standing``."""
        self._of = {
            circuit: builder for circuit, builder in self._of.items() if circuit in standing
        }
        wanted = {builder.reconfiguration for builder in self._of.values()}
        gone = sorted(self._recorded - wanted)
        self._unwritten += [Change(Kind.BUILDER, identifier, None) for identifier in gone]
        self._recorded = wanted

    @property
    def unwritten(self) -> Sequence[Change]:
        """Changes that bring the journal up to date."""
        return tuple(self._unwritten)

    def written(self, changes: Sequence[Change]) -> None:
        """Note changes as written; ``changes`` are the oldest of :attr:`unwritten`."""
        del self._unwritten[: len(changes)]
