"""hydra reload, backup, restore and support."""

import errno
import gzip
import io
import json
import os
import secrets
import sqlite3
import tarfile
import zlib
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from apps.etcd import gateway
from apps.journal.opening import check_journal
from apps.journal.sqlite import SCHEMA_VERSION
from apps.process.configuration import load_configuration
from apps.process.files import making
from apps.process.single_instance import journal_held
from apps.tools.archive import restore
from hydra.access import Role, make_token
from hydra.errors import ConfigError, Problem
from hydra.journal import Change, JournalError, Kind, entry
from hydra.webhooks import Webhook, make_secret
from mininet_scenarios import plain_http
from tests.journals import SqliteJournal

from . import DEMO

SECRETS = ("s3cret-of-p1", "hydra_olaf_s3cret-token-text", "PRIVATE-COMMUNITY")


@pytest.fixture
def config(tmp_path):
    """The demo's file, with a used journal."""
    document = yaml.safe_load(DEMO.read_text())
    document["controller"] = {"journal": str(tmp_path / "journal.db")}
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(document))
    journal = SqliteJournal(str(tmp_path / "journal.db"))
    journal.write([saved(7), entry(1000.0, "token", {"said": f"Bearer {SECRETS[1]}"})])
    journal.close()
    return path


def saved(epoch):
    return Change(Kind.STATE, "network", {"fabric": "demo", "state": {"epoch": epoch}})


def fabric_of(config):
    return yaml.safe_load(config.read_text())["fabric"]


def epoch(config):
    with closing(SqliteJournal(config.with_name("journal.db"), read_only=True)) as journal:
        return journal.records(Kind.STATE)[0]["state"]["epoch"]


# --- reload ---------------------------------------------------------------------------------


def test_a_dry_run_of_reload_changes_nothing(call, service):
    result = call("reload", "--dry-run")
    assert result.exit_code == 0
    assert "Would be applied" in result.stdout
    assert service.reloads == 0


def test_reload_shows_what_changed_and_what_waits(call):
    result = call("reload")
    assert result.exit_code == 0
    assert "policy.epoch_s" in result.stdout
    assert "After the next start" in result.stdout
    assert json.loads(call("reload", "--json").stdout)["waiting"] == [
        {"key": "fabric.racks", "before": "4", "after": "5"}
    ]


def test_a_file_that_cannot_be_used_is_told_with_its_lines(call, service):
    service.fails_with = ConfigError("fabric.yaml", [Problem("racks", "must be a list", 7)])
    result = call("reload")
    assert result.exit_code == 1
    assert "must be a list" in result.stderr
    assert "7" in result.stderr


# --- backup and restore ---------------------------------------------------------------------


def test_what_is_backed_up_can_be_restored(run, config, tmp_path):
    target = tmp_path / "backup.tar.gz"
    assert run("backup", "--config", str(config), str(target)).exit_code == 0
    assert target.stat().st_mode & 0o777 == 0o600
    later = SqliteJournal(str(tmp_path / "journal.db"))
    later.write([saved(8)])
    later.close()
    result = run("restore", "--config", str(config), "--yes", "--json", str(target))
    assert result.exit_code == 0, result.output
    assert epoch(config) == 7
    kept = json.loads(result.stdout)["kept"]
    old = SqliteJournal(kept, read_only=True)
    assert old.records(Kind.STATE) == [saved(8).record]
    old.close()


def test_a_backup_is_made_while_the_controller_writes(run, config, tmp_path):
    running = SqliteJournal(str(tmp_path / "journal.db"))
    with journal_held(str(tmp_path / "journal.db")):
        running.write([saved(9)])  # in the write-ahead log only
        target = tmp_path / "backup.tar.gz"
        assert run("backup", "--config", str(config), str(target)).exit_code == 0
        refused = run("restore", "--config", str(config), "--yes", str(target))
    running.close()
    assert refused.exit_code == 1
    assert "stop it first" in refused.stderr
    with tarfile.open(target) as archive:
        copy = tmp_path / "copy.db"
        copy.write_bytes(archive.extractfile("journal.db").read())
    with closing(SqliteJournal(copy, read_only=True)) as copied:
        assert copied.records(Kind.STATE) == [saved(9).record]


def test_a_backup_replaces_no_file(run, config, tmp_path):
    target = tmp_path / "backup.tar.gz"
    target.write_text("mine")
    result = run("backup", "--config", str(config), str(target))
    assert result.exit_code == 1
    assert "exists already" in result.stderr
    assert target.read_text() == "mine"


def test_a_backup_that_the_disk_has_no_room_for_leaves_nothing(run, config, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = tmp_path / "backup.tar.gz"
    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "addfile", full)
        result = run("backup", "--config", str(config), str(target))
    assert result.exit_code == 1
    assert f"{target} can't be written: No space left on device" in result.stderr
    assert not target.exists()
    assert run("backup", "--config", str(config), str(target)).exit_code == 0


def test_what_is_left_of_a_restoration_that_was_killed_is_no_part_of_the_next(
    run, config, tmp_path
):
    """SQLite would apply a write-ahead log next to a file to that file."""
    target = tmp_path / "backup.tar.gz"
    run("backup", "--config", str(config), str(target))
    killed = tmp_path / "journal.db.restoring"
    killed.write_bytes((tmp_path / "journal.db").read_bytes())
    journal = SqliteJournal(str(killed))
    journal.write([saved(99)])
    log = Path(f"{killed}-wal").read_bytes()
    journal.close()
    killed.write_bytes(b"")
    Path(f"{killed}-wal").write_bytes(log)
    result = run("restore", "--config", str(config), "--yes", str(target))
    assert result.exit_code == 0, result.output
    assert epoch(config) == 7
    assert not list(tmp_path.glob("journal.db.restor*"))


class PowerLoss(BaseException):
    pass


@pytest.mark.parametrize("ended", ["in order", "killed"])
def test_no_moment_of_a_restoration_has_the_next_start_begin_empty(
    run, config, tmp_path, monkeypatch, ended
):
    target, journal = tmp_path / "backup.tar.gz", tmp_path / "journal.db"
    run("backup", "--config", str(config), str(target))
    with closing(SqliteJournal(str(journal))) as later:
        later.write([saved(8)])
        parts = {"": journal.read_bytes(), "-wal": Path(f"{journal}-wal").read_bytes()}
    if ended == "in order":
        parts = {"": journal.read_bytes()}
    moves = 0
    seen = set()
    while "completed" not in seen:
        folder = tmp_path / str(moves)
        folder.mkdir()
        for end, content in parts.items():
            with making(folder / f"journal.db{end}") as file:
                file.write(content)
        loaded = configured(config, folder)
        with monkeypatch.context() as patch:
            lose_power(patch, after=moves)
            try:
                restore(loaded, target)
            except PowerLoss:
                pass
            else:
                seen.add("completed")
        seen.add(started(folder))
        restore(loaded, target)
        assert started(folder) == 7
        assert not list(folder.glob("journal.db.restor*"))
        moves += 1
    assert seen == {"completed", 7, 8, "refused"}


def configured(config, folder):
    document = yaml.safe_load(config.read_text())
    document["controller"]["journal"] = str(folder / "journal.db")
    (folder / "fabric.yaml").write_text(yaml.safe_dump(document))
    return load_configuration(folder / "fabric.yaml")


def started(folder):
    path = folder / "journal.db"
    try:
        check_journal(str(path))
        with closing(SqliteJournal(str(path))) as journal:
            return journal.records(Kind.STATE)[0]["state"]["epoch"]
    except JournalError as error:
        assert "hydra restore" in str(error)
        with pytest.raises(JournalError):
            SqliteJournal(str(path))
        return "refused"


def lose_power(patch, after):
    """Fail after ``count`` moves of files, before the next move."""
    left = [after]

    def losing(name):
        call = getattr(Path, name)

        def lose(path, *arguments, **options):
            if name == "replace":
                left[0] -= 1
            if left[0] < 0:
                raise PowerLoss
            return call(path, *arguments, **options)

        return lose

    for name in ("replace", "unlink"):
        patch.setattr(Path, name, losing(name))


def test_a_write_ahead_log_of_its_own_alone_is_not_left_beside_what_is_restored(
    run, config, tmp_path
):
    target, journal = tmp_path / "backup.tar.gz", tmp_path / "journal.db"
    run("backup", "--config", str(config), str(target))
    with closing(SqliteJournal(str(journal))) as later:
        later.write([saved(8)])
        log = Path(f"{journal}-wal").read_bytes()
    journal.unlink()
    Path(f"{journal}-wal").write_bytes(log)
    result = run("restore", "--config", str(config), "--yes", "--json", str(target))
    assert result.exit_code == 0, result.output
    kept = json.loads(result.stdout)["kept"]
    assert Path(f"{kept}-wal").read_bytes() == log
    assert not Path(f"{journal}-wal").exists()
    assert epoch(config) == 7


def test_a_journal_that_is_a_link_is_restored_where_that_leads(run, config, tmp_path):
    target, disk = tmp_path / "backup.tar.gz", tmp_path / "disk"
    run("backup", "--config", str(config), str(target))
    disk.mkdir()
    (tmp_path / "journal.db").rename(disk / "real.db")
    (tmp_path / "journal.db").symlink_to(disk / "real.db")
    result = run("restore", "--config", str(config), "--yes", "--json", str(target))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "journal.db").readlink() == disk / "real.db"
    assert Path(json.loads(result.stdout)["kept"]).parent == disk
    assert epoch(config) == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
@pytest.mark.parametrize("before", [True, False], ids=["in its place", "on a new machine"])
def test_what_root_restores_is_the_controller_s(run, config, tmp_path, before):
    target, journal = tmp_path / "backup.tar.gz", tmp_path / "journal.db"
    run("backup", "--config", str(config), str(target))
    os.chown(journal if before else tmp_path, 1234, 1235)
    if not before:
        journal.unlink()
    result = run("restore", "--config", str(config), "--yes", str(target))
    assert result.exit_code == 0, result.output
    for one in (journal, tmp_path / "journal.db.lock"):
        assert (one.stat().st_uid, one.stat().st_gid) == (1234, 1235)
    assert journal.stat().st_mode & 0o777 == 0o600


def test_another_fabric_s_backup_is_refused(run, config, tmp_path):
    target = tmp_path / "backup.tar.gz"
    run("backup", "--config", str(config), str(target))
    other = yaml.safe_load(config.read_text()) | {"fabric": "campus"}
    config.write_text(yaml.safe_dump(other))
    result = run("restore", "--config", str(config), "--yes", str(target))
    assert result.exit_code == 1
    assert "not of 'campus'" in result.stderr
    assert epoch(config) == 7


@pytest.mark.parametrize("kind", ["text", "no journal", "a later release's"])
def test_what_is_no_backup_changes_nothing(run, config, tmp_path, kind):
    target = tmp_path / "backup.tar.gz"
    if kind == "text":
        target.write_text("no archive")
    else:
        later = tmp_path / "later.db"
        SqliteJournal(str(later)).close()
        db = sqlite3.connect(later)
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
        db.close()
        manifest = tmp_path / "manifest.json"
        manifest.write_text(
            json.dumps({"fabric": fabric_of(config), "release": "9", "created_unix_s": 0.0})
        )
        with tarfile.open(target, "w:gz") as archive:
            archive.add(manifest, "manifest.json")
            if kind != "no journal":
                archive.add(later, "journal.db")
    result = run("restore", "--config", str(config), "--yes", str(target))
    assert result.exit_code == 1
    assert str(target) in result.stderr or "has schema" in result.stderr
    assert epoch(config) == 7
    assert list(tmp_path.glob("journal.db.*")) in ([], [tmp_path / "journal.db.lock"])


def unpacked(packed):
    """None: the file can't be damaged so. Zeros may be copied from any place."""
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        return None


def test_a_damaged_backup_is_refused_wherever_the_wrong_byte_is(run, config, tmp_path):
    target = tmp_path / "backup.tar.gz"
    run("backup", "--config", str(config), str(target))
    good = target.read_bytes()
    flipped = [good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :] for at in range(12, 800, 40)]
    damaged = [one for one in flipped if unpacked(one) != unpacked(good)]
    assert damaged
    for one in (*damaged, good[:-1], good[: len(good) // 2], good[:-8] + bytes(8)):
        target.write_bytes(one)
        result = run("restore", "--config", str(config), "--yes", str(target))
        assert result.exit_code == 1
        assert f"{target} can't be read as a backup" in result.stderr
        assert epoch(config) == 7
    assert not list(tmp_path.glob("journal.db.*restored*"))


@pytest.mark.parametrize("manifest", [b"{", b"[]", b"{}", b'{"later": 1}', b"\xff"])
def test_a_manifest_that_says_something_else_is_refused_in_words(run, config, tmp_path, manifest):
    target = tmp_path / "backup.tar.gz"
    with tarfile.open(target, "w:gz") as archive:
        for name, content in (("manifest.json", manifest), ("journal.db", b"")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    result = run("restore", "--config", str(config), "--yes", str(target))
    assert result.exit_code == 1
    assert f"{target} is no backup of this release" in result.stderr
    assert epoch(config) == 7


def test_restore_asks(run, config, tmp_path):
    target = tmp_path / "backup.tar.gz"
    run("backup", "--config", str(config), str(target))
    result = run("restore", "--config", str(config), str(target))
    assert result.exit_code == 1
    assert "no answer on standard input: add --yes" in result.stderr
    assert "Replace the journal" in result.stderr
    assert "fabric demo as of " in result.stderr


def test_restore_looks_before_it_asks(run, config, tmp_path):
    target = tmp_path / "backup.tar.gz"
    for content in (None, b"no archive"):
        if content is not None:
            target.write_bytes(content)
        result = run("restore", "--config", str(config), str(target))
        assert result.exit_code == 1
        assert "Replace the journal" not in result.stderr


# --- support --------------------------------------------------------------------------------


def contents(target):
    with tarfile.open(target) as archive:
        return {member.name: archive.extractfile(member).read().decode() for member in archive}


def test_a_bundle_has_what_a_report_needs_and_no_secrets(call, config, tmp_path, service, rest):
    document = yaml.safe_load(config.read_text())
    log = tmp_path / "hydra.log"
    log.write_text(
        f"INFO begins\nDEBUG Authorization: Bearer {SECRETS[1]}\npassword={SECRETS[0]}\n"
    )
    target = tmp_path / "bundle.tar.gz"
    metrics = plain_http.get(f"{rest.url}/metrics").text
    result = call("support", "--config", str(config), "--log", str(log), str(target))
    assert result.exit_code == 0, result.output
    files = contents(target)
    assert {"system.json", "configuration.yaml", "journal.json", "log.txt"} <= files.keys()
    assert {"v1-topology.txt", "v1-reconfigurations.txt", "metrics.txt"} <= files.keys()
    assert yaml.safe_load(files["configuration.yaml"])["fabric"] == document["fabric"]
    assert "INFO begins" in files["log.txt"]
    names = [line.split()[2] for line in metrics.splitlines() if line.startswith("# TYPE")]
    assert len(names) > 20
    lines = len(files["metrics.txt"].splitlines())
    assert lines == len(metrics.splitlines()) and "left out" not in files["metrics.txt"]
    assert all(name in files["metrics.txt"] for name in names)
    assert "prometheus" in files["system.json"]
    for name, text in files.items():
        for secret in SECRETS:
            assert secret not in text, name


def test_secrets_of_a_configuration_are_left_out():
    from apps.tools.archive import redacted_configuration

    text = yaml.safe_dump(
        {
            "fabric": "demo",
            "planes": [
                {
                    "name": "p1",
                    "login": {"username": "admin", "password_env": SECRETS[0]},
                    "options": {"snmp_community": SECRETS[2], "note": f"password: {SECRETS[0]}"},
                }
            ],
        }
    )
    shown = redacted_configuration(text)
    assert not any(secret in shown for secret in SECRETS)
    assert yaml.safe_load(shown)["planes"][0]["name"] == "p1"


def test_secrets_that_are_known_are_left_out_whatever_they_look_like(
    call, config, tmp_path, monkeypatch
):
    document = yaml.safe_load(config.read_text())
    login = {"username": "admin", "password_env": "OCS_PASSWORD"}
    document["planes"][0] |= {"driver": "polatis-netconf", "login": login}
    config.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("OCS_PASSWORD", "tulip")
    token, _ = make_token("olaf", Role.VIEWER, secrets.token_urlsafe(32), 1.0)
    hook = Webhook("w1", "https://x.example/key", make_secret(b"7" * 24), frozenset(), None, 1.0)
    journal = SqliteJournal(config.with_name("journal.db"))
    journal.write([Change(Kind.WEBHOOK, "w1", hook.to_record())])
    journal.close()
    log = tmp_path / "hydra.log"
    log.write_text(
        f"p1 said tulip\n{hook.url} {hook.secret}\nsent {token}\nhydra_lost_paths_total\n"
    )
    target = tmp_path / "bundle.tar.gz"
    result = call("support", "--config", str(config), "--log", str(log), str(target))
    assert result.exit_code == 0, result.output
    for text in contents(target).values():
        assert not any(one in text for one in ("tulip", hook.secret, hook.url, token))
    assert contents(target)["log.txt"].splitlines() == [
        "p1 said (left out)",
        "(left out) (left out)",
        "sent (left out)",
        "hydra_lost_paths_total",
    ]


def test_a_log_that_is_no_file_is_refused(call, config, tmp_path):
    """A pipe might never end."""
    log = tmp_path / "pipe"
    os.mkfifo(log)
    target = tmp_path / "bundle.tar.gz"
    result = call("support", "--config", str(config), "--log", str(log), str(target))
    assert result.exit_code == 1
    assert f"the log {log} can't be read: not a regular file" in result.output
    assert not target.exists()


def test_without_a_controller_there_is_a_bundle_too(run, config, tmp_path):
    target = tmp_path / "bundle.tar.gz"
    result = run(
        *("support", "--config", str(config), "--url", "http://127.0.0.1:1", str(target), "--json")
    )
    assert result.exit_code == 0
    assert result.stderr.count("the bundle has no answers") == 1
    assert result.stderr.startswith("Warning: the bundle has no answers of the controller: ")
    assert json.loads(result.stdout)["names"] == [
        "configuration.yaml",
        "journal.json",
        "system.json",
    ]


@pytest.mark.parametrize("store", ["damaged", "silent"])
def test_without_a_journal_that_can_be_read_there_is_a_bundle_too(
    run, config, tmp_path, store, monkeypatch
):
    monkeypatch.setattr(gateway, "PATIENCE_S", 0.1)  # timed: no answer comes
    if store == "damaged":
        (tmp_path / "journal.db").write_bytes(b"no journal " * 1000)
        words = "is damaged"
    else:
        document = yaml.safe_load(config.read_text())
        document["controller"]["store"] = {"etcd": {"endpoints": ["http://127.0.0.1:1"]}}
        config.write_text(yaml.safe_dump(document))
        words = "did not answer within"
    target = tmp_path / "bundle.tar.gz"
    url = "http://127.0.0.1:1"
    result = run("support", "--config", str(config), "--url", url, str(target))
    assert result.exit_code == 0, result.output
    assert "the journal is not in the bundle" in result.stderr
    assert words in contents(target)["journal.txt"]
    assert "configuration.yaml" in contents(target)


@pytest.mark.parametrize("wrong", ["no YAML", "unknown key", "not there"])
def test_without_a_configuration_that_can_be_used_there_is_a_bundle_too(
    call, config, tmp_path, wrong
):
    if wrong == "no YAML":
        config.write_text("fabric: [demo\ncontroller: {tokens: tulip}\n")
    elif wrong == "unknown key":
        document = yaml.safe_load(config.read_text())
        config.write_text(yaml.safe_dump(document | {"fabrik": "demo", "password": "tulip"}))
    else:
        config.unlink()
    log, target = tmp_path / "hydra.log", tmp_path / "bundle.tar.gz"
    log.write_text("ERROR it does not start\n")
    result = call("support", "--config", str(config), "--log", str(log), str(target))
    assert result.exit_code == 0, result.output
    assert "the configuration can't be used" in result.stderr
    files = contents(target)
    assert {"system.json", "configuration.txt", "v1-topology.txt", "log.txt"} <= files.keys()
    assert ("configuration.yaml" in files) == (wrong == "unknown key")
    assert str(config) in files["configuration.txt"]
    assert not any("tulip" in text for text in files.values())


def test_a_bundle_has_the_configuration_as_a_controller_reads_it(run, config, tmp_path):
    """YAML 1.1 would read a name as a truth value, and an invalid date not at all."""
    document = yaml.safe_load(config.read_text())
    text = yaml.safe_dump(document | {"fabric": "FABRIC"})
    config.write_text(text.replace("FABRIC", "2026-13-45"), "utf-8")
    target = tmp_path / "bundle.tar.gz"
    url = "http://127.0.0.1:1"
    result = run("support", "--config", str(config), "--url", url, str(target))
    assert result.exit_code == 0, result.output
    assert "fabric: '2026-13-45'" in contents(target)["configuration.yaml"]
    from apps.tools.archive import redacted_configuration

    assert redacted_configuration("name: no\nmac: 10:20:30:40:50:59\n").splitlines() == [
        "name: 'no'",
        "mac: '10:20:30:40:50:59'",
    ]


def test_the_password_of_etcd_s_user_is_left_out(run, config, tmp_path, monkeypatch):
    document = yaml.safe_load(config.read_text())
    user = {"username": "hydra", "password_env": "ETCD_PASSWORD"}
    document["controller"]["store"] = {"etcd": {"endpoints": ["http://127.0.0.1:1"], "user": user}}
    config.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("ETCD_PASSWORD", "tulip")
    monkeypatch.setattr(gateway, "PATIENCE_S", 0.1)  # timed: no answer comes
    (tmp_path / "hydra.log").write_text("etcd was told tulip\n")
    target = tmp_path / "bundle.tar.gz"
    result = run(
        *("support", "--config", str(config), "--url", "http://127.0.0.1:1"),
        *("--log", str(tmp_path / "hydra.log"), str(target)),
    )
    assert result.exit_code == 0, result.output
    assert contents(target)["log.txt"] == "etcd was told (left out)\n"
