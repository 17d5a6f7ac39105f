"""Owners of racks, on a real etcd: the next leader continues with the same owners."""

from __future__ import annotations

import json
import uuid
from contextlib import closing

import pytest

from apps.etcd.gateway import Etcd, delete, get, put, was_created
from apps.process.worker_list import WorkerSeen
from apps.workers.leases import WorkerLeases
from tests.waiting import remains, wait_until


class Exchange:
    """The exchange's interface for the leases."""

    def __init__(self, *names):
        self.names, self.roster = names, self
        self.owners = None

    def post(self, function):
        function()

    def remember_owners(self, owners, tell):
        self.owners, self.tell = owners, tell

    def seen(self):
        return tuple(WorkerSeen(name, "1", 0.0, 1, 1, (), 0.0) for name in self.names)


@pytest.fixture
def settings(etcd):
    return etcd.settings(f"/test/{uuid.uuid4().hex}/")


@pytest.fixture
def store(settings):
    with closing(Etcd(settings)) as client:
        yield client


def written(store, settings):
    prefix = f"{settings.prefix}workers/"
    found = store.transaction([], [get(prefix, f"{prefix[:-1]}0")]).found[0]
    assert all(entry.lease for entry in found)
    return {entry.key.removeprefix(prefix): json.loads(entry.value)["shards"] for entry in found}


def test_the_next_leader_goes_on_with_the_owners(settings, store):
    first = Exchange("w1", "w2")
    with closing(WorkerLeases(settings, first, lambda: ())) as leases:
        leases.start()
        assert first.owners == {}
        first.tell({"w1": (0, 2), "w2": (1,)})
        wait_until(lambda: written(store, settings) == {"w1": [0, 2], "w2": [1]})
    second = Exchange("w1")
    with closing(WorkerLeases(settings, second, lambda: ())) as leases:
        leases.start()
        assert second.owners == {0: "w1", 2: "w1", 1: "w2"}
        second.tell({"w1": (0, 1, 2)})
        wait_until(lambda: written(store, settings).get("w1") == [0, 1, 2])
        second.names = ()
        wait_until(lambda: "w1" not in written(store, settings))


def test_who_does_not_lead_writes_nothing(settings, store):
    key = f"{settings.prefix}leader"
    made = store.transaction([], [put(key, "a")]).revision
    exchange = Exchange("w1")
    with closing(WorkerLeases(settings, exchange, lambda: (was_created(key, made),))) as leases:
        leases.start()
        exchange.tell({"w1": (0,)})
        wait_until(lambda: written(store, settings) == {"w1": [0]})
        store.transaction([], [delete(key)])
        exchange.tell({"w1": (0, 1)})
        wait_until(lambda: not leases._changed.is_set())
        assert remains(lambda: written(store, settings) == {"w1": [0]}, 0.5)
