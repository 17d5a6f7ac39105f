"""Controllers with a lease in etcd, by their keys: the leader, and controllers on standby."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Final

from apps.etcd.gateway import Entry, Etcd, EtcdRefused, EtcdUnanswered, get
from apps.process.term import Replica, Replicas, StoreMember
from hydra.errors import HydraError, LifecycleError
from hydra.settings import EtcdSettings

_LOOK_S: Final = 2.0
_UNREPORTED: Final = {"id": "", "name": "unnamed", "url": "", "release": "", "since_unix_s": 0.0}


class NoReplica(HydraError):
    """A controller's key in etcd does not name a controller."""


class Roster:
    """Reads the keys of all controllers; each controller writes its own, on its lease."""

    def __init__(self, prefix: str, observer: Etcd) -> None:
        self._observer = observer
        self.leader_key = f"{prefix}leader"
        self.floor_key = f"{prefix}floor"
        self.ending_key = f"{prefix}ending"
        """Key of a leader about to end; removed with the leader's lease."""
        self._first = f"{prefix}replicas/"
        self.range = self._first, f"{self._first[:-1]}0"
        """Range of the keys of all controllers."""

    def key_of(self, replica: Replica) -> str:
        return f"{self._first}{replica.id}"

    def read(self) -> Replicas:
        """The leader and the controllers on standby, longest first."""
        store = self._members()
        try:
            answer = self._observer.transaction(
                [], [get(self.leader_key), get(*self.range)], patience_s=_LOOK_S
            )
            leader = replica_of(answer.found[0][0]) if answer.found[0] else None
            registered = [replica_of(entry) for entry in answer.found[1]]
        except (EtcdRefused, EtcdUnanswered, NoReplica) as error:
            return Replicas(None, (), store, str(error))
        standing_by = []
        for replica in registered:
            if leader is not None and replica.id == leader.id:
                leader = replace(leader, switches=replica.switches)  # as of now
            else:
                standing_by.append(replica)
        return Replicas(
            leader, tuple(sorted(standing_by, key=lambda replica: replica.since_unix_s)), store
        )

    def heirs(self, switches: int) -> tuple[Replica, ...]:
        """Controllers that may lead instead of a leader with so many connected ``switches``.

        Raises LifecycleError if there are none, or one has fewer switches.
        """
        found = self.read()
        if not found.standing_by:
            raise LifecycleError(
                f"no controller stands by to lead{f' ({found.problem})' if found.problem else ''}: "
                "start another controller with the same store first"
            )
        for replica in found.standing_by:
            if replica.switches is not None and replica.switches < switches:
                raise LifecycleError(
                    f"{replica.name} has {replica.switches} of the {switches} switches connected "
                    f"here: hand over once the switches have found {replica.name}, "
                    "within seconds if the switches name the controller"
                )
        return found.standing_by

    def _members(self) -> tuple[StoreMember, ...]:
        members = dict(self._observer.members())
        newest = max(
            (int(status["raftIndex"]) for status in members.values() if status is not None),
            default=0,
        )
        return tuple(
            StoreMember(endpoint, False)
            if status is None
            else StoreMember(
                endpoint,
                True,
                status.get("leader") == status["header"]["member_id"],
                status["version"],
                int(status.get("dbSize", 0)) / 1e6,
                newest - int(status["raftAppliedIndex"]),
                tuple(status.get("errors", ())),
            )
            for endpoint, status in members.items()
        )


def text_of(replica: Replica) -> str:
    return json.dumps(asdict(replica))


def replica_of(entry: Entry) -> Replica:
    """The replica in ``entry``; another release may have written more fields, or fewer.

    Raises NoReplica.
    """
    try:
        document = dict(json.loads(entry.value))
    except (ValueError, TypeError) as error:
        raise NoReplica(
            f"the key {entry.key} of etcd has content that no controller writes: delete the key"
        ) from error
    known = {
        field.name: document[field.name] for field in fields(Replica) if field.name in document
    }
    return Replica(**{**_UNREPORTED, **known})


def leader_name(settings: EtcdSettings) -> str | None:
    """Name of the present leader; None without a leader. Raises EtcdRefused, EtcdUnanswered."""
    etcd = Etcd(settings)
    try:
        found: Sequence[Entry] = etcd.transaction([], [get(f"{settings.prefix}leader")]).found[0]
    finally:
        etcd.close()
    return replica_of(found[0]).name if found else None
