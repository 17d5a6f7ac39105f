"""The reconfigurations that set up the circuits which stand: for people; nothing rests on them.

The journal has a record for each of them, as long as one of its circuits stands.
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
    """The reconfiguration that set a circuit up."""

    reconfiguration: str
    trigger: str
    unix_s: float
    """The moment at which it was asked for."""


class Builders:
    """The builders of circuits, and what of them the journal has yet to get. Not thread-safe."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._unwritten: list[Change] = []
        self._of: dict[Circuit, Builder] = {}
        self._recorded: set[str] = set()

    def load(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take over the records that the journal has, oldest first.

        Raises KeyError, TypeError or ValueError for a record of another release, and takes over
        none then.
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
        """Builders by circuit, as far as they are known."""
        return dict(self._of)

    def add(self, builder: Builder, circuits: Collection[Circuit]) -> None:
        """Note that these circuits were set up by a reconfiguration."""
        if not circuits:
            return
        self._enter(builder, circuits)
        record = {
            "reconfiguration": builder.reconfiguration,
            "trigger": builder.trigger,
            "unix_s": builder.unix_s,
            "circuits": [circuit_record(self._fabric, one) for one in sorted(circuits)],
        }
        self._unwritten.append(Change(Kind.BUILDER, builder.reconfiguration, record))

    def keep(self, standing: Collection[Circuit]) -> None:
        """Forget circuits that do not stand any more."""
        self._of = {circuit: one for circuit, one in self._of.items() if circuit in standing}
        wanted = {one.reconfiguration for one in self._of.values()}
        gone = sorted(self._recorded - wanted)
        self._unwritten += [Change(Kind.BUILDER, identifier, None) for identifier in gone]
        self._recorded = wanted

    @property
    def unwritten(self) -> Sequence[Change]:
        """Changes that bring the journal up to date."""
        return tuple(self._unwritten)

    def written(self, changes: Sequence[Change]) -> None:
        """Note that the journal has these changes, the oldest of :attr:`unwritten`."""
        del self._unwritten[: len(changes)]
