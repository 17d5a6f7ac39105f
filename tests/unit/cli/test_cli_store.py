"""hydra store, backup, restore and check with the journal in a real etcd."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from apps.etcd.gateway import Etcd, put
from apps.journal.etcd import EtcdJournal
from hydra.journal import Change, Kind, entry
from tests.journals import SqliteJournal

from . import DEMO


@pytest.fixture
def store(etcd):
    return etcd.settings(f"/test/{uuid.uuid4().hex}/")


@pytest.fixture
def config(tmp_path, store):
    document = yaml.safe_load(DEMO.read_text())
    where = {"endpoints": list(store.endpoints), "prefix": store.prefix}
    document["controller"] = {"journal": str(tmp_path / "journal.db"), "store": {"etcd": where}}
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def filled(config):
    """A file with records of every kind; its content."""
    with closing(SqliteJournal(config.with_name("journal.db"))) as journal:
        for number in range(3):
            changes = [Change(kind, f"k{2 - number}", {"n": number}) for kind in KEYED]
            journal.write([*changes, entry(float(number), "said", {"n": number})])
            journal.write([Change(Kind.DECISION, None, {"n": number})])
        return contents(journal)


KEYED = (Kind.STATE, Kind.RESERVATION, Kind.QUARANTINE, Kind.WEBHOOK)


def contents(journal):
    return {kind: journal.changes(kind) for kind in Kind}


def in_etcd(store):
    with closing(EtcdJournal(store, read_only=True)) as journal:
        return contents(journal)


def test_a_journal_goes_to_etcd_and_back_and_loses_nothing(run, config, store, filled):
    result = run("store", "migrate", "--config", str(config), "--to", "etcd", "--json")
    assert json.loads(result.stdout) == {"to": "etcd", "records": 18}
    assert in_etcd(store) == filled
    path = config.with_name("journal.db")
    assert "holds a journal already" in run(*TO_ETCD, str(config)).stderr
    assert f"{path} is there already" in run(*TO_FILE, str(config)).stderr
    for end in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{end}").rename(path.with_name(f"before.db{end}"))
    assert run(*TO_FILE, str(config)).exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(SqliteJournal(path, read_only=True)) as journal:
        assert contents(journal) == filled
    assert in_etcd(store) == filled


TO_ETCD = ("store", "migrate", "--to", "etcd", "--config")
TO_FILE = ("store", "migrate", "--to", "file", "--config")


def test_nothing_is_moved_while_a_controller_leads(run, config, store, filled):
    leader = {"id": "x", "name": "one", "url": "", "release": "", "since_unix_s": 0.0}
    etcd = Etcd(store)
    with closing(etcd):
        etcd.transaction([], [put(f"{store.prefix}leader", json.dumps(leader))])
    result = run(*TO_ETCD, str(config))
    assert result.exit_code == 1
    assert "one leads on http://127.0.0.1" in result.stderr
    assert "stop all controllers first" in result.stderr
    assert all(not changes for changes in in_etcd(store).values())


def test_a_file_without_a_store_is_refused(run, config, filled):
    document = yaml.safe_load(config.read_text())
    del document["controller"]["store"]
    config.write_text(yaml.safe_dump(document))
    assert "the configuration names no etcd" in run(*TO_ETCD, str(config)).stderr


def test_a_backup_of_etcd_is_one_of_a_file_and_restored_to_either(
    run, config, store, filled, tmp_path
):
    run(*TO_ETCD, str(config))
    target = str(tmp_path / "backup.tar.gz")
    assert run("backup", "--config", str(config), target).exit_code == 0
    refused = run("restore", "--yes", "--config", str(config), target)
    assert "holds a journal already" in refused.stderr
    document = yaml.safe_load(config.read_text())
    document["controller"]["store"]["etcd"]["prefix"] = other = f"{store.prefix}other/"
    config.write_text(yaml.safe_dump(document))
    assert run("restore", "--yes", "--config", str(config), target).exit_code == 0
    with closing(EtcdJournal(replace(store, prefix=other), read_only=True)) as journal:
        assert contents(journal) == filled


def test_check_wants_the_files_of_etcds_certificates(run, config):
    assert run("check", str(config)).exit_code == 0
    document = yaml.safe_load(config.read_text())
    where = document["controller"]["store"]["etcd"]
    where |= {"endpoints": ["https://e:2379"], "tls": {"authority": "/nowhere/ca.pem"}}
    config.write_text(yaml.safe_dump(document))
    result = run("check", str(config))
    assert result.exit_code == 1
    assert "controller.store" in result.stderr
    assert "etcd.tls.authority /nowhere/ca.pem can't be used (No such file" in result.stderr


def test_the_example_of_three_machines_is_sound(run, config, tmp_path):
    """The controllers' section, except files, which belong to the machines."""
    root = Path(__file__).parents[3] / "deploy" / "three-machines"
    section = yaml.safe_load((root / "controller.yaml").read_text())["controller"]
    document = yaml.safe_load(config.read_text()) | {"controller": section}
    config.write_text(yaml.safe_dump(document))
    stderr = run("check", str(config)).stderr
    assert [line for line in stderr.splitlines() if "/etc/hydra/" not in line] == ["3 problems"]
