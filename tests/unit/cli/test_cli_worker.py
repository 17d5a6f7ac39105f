"""hydra worker, hydra workers and hydra worker-keys."""

from __future__ import annotations

import json
import stat

import pytest
import yaml

from apps.cli import worker as command
from apps.process.worker_list import WorkerSeen
from apps.workers.exchange import certificate
from tests.integration.live import DEMO_CONFIG

W1 = WorkerSeen("w1", "1.2", 1001.0, 12, 6, (0, 2), 3.25)


@pytest.fixture
def held(app):
    class Held:
        def seen(self):
            return (W1,)

    app.state.workers = Held()
    yield
    app.state.workers = None


def test_it_lists_workers_and_what_they_own(call, held):
    result = call("workers")
    assert result.exit_code == 0
    for words in ("w1", "1.2", "12", "3.2"):
        assert words in result.stdout
    (one,) = json.loads(call("workers", "--json").stdout)["workers"]
    assert (one["shards"], one["serves"], one["cpu_s"]) == ([0, 2], 6, 3.25)


def test_without_workers_it_says_so(call):
    assert "switches connect to the controller itself" in call("workers").stdout


def test_keys_are_made_once_and_are_secret(run, tmp_path):
    folder = tmp_path / "keys"
    result = run("worker-keys", str(folder), "controller", "w1")
    assert result.exit_code == 0
    secret = folder / "w1.key_secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "w1.key").stat().st_mode) == 0o644
    public, key = certificate(str(secret))
    assert (certificate(str(folder / "w1.key"), secret=False)[0], bool(key)) == (public, True)
    again = run("worker-keys", str(folder), "w1")
    assert (again.exit_code, "exists" in again.stderr) == (1, True)
    assert certificate(str(secret))[1] == key
    told = json.loads(run("worker-keys", str(folder), "w2", "--json").stdout)
    (keys,) = told["keys"]
    assert keys["name"] == "w2"
    assert keys["secret_file"] == str(folder / "w2.key_secret")


@pytest.mark.parametrize("name", ["a/b", "../evil", "/evil", "", ".", "..", ".hidden", "a/"])
def test_keys_are_files_of_their_folder(run, tmp_path, name):
    folder = tmp_path / "keys"
    refused = run("worker-keys", str(folder), "w1", name)
    assert (refused.exit_code, f"{name!r} can't name key files" in refused.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_where_keys_can_not_be_written(run, tmp_path):
    (tmp_path / "file").write_text("")
    refused = run("worker-keys", str(tmp_path / "file" / "keys"), "w1")
    assert (refused.exit_code, "can't write keys to" in refused.stderr) == (1, True)


@pytest.fixture
def config(tmp_path):
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    document["controller"]["workers"] = {"listen": "127.0.0.1:6654"}
    file = tmp_path / "fabric.yaml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def test_a_worker_is_not_started_where_it_can_not_be_trusted(run, config):
    refused = run("worker", "--config", config, "--controller", "192.0.2.1:6654")
    assert (refused.exit_code, "192.0.2.1 is another machine" in refused.stderr) == (1, True)
    refused = run("worker", "--config", config, "--key", config)
    assert "--key and --controller-key go together" in refused.stderr
    refused = run("worker", "--config", config, "--controller", "here")
    assert (refused.exit_code, "is not host:port" in refused.stderr) == (2, True)


def test_a_worker_of_a_file_without_workers_is_refused(run):
    refused = run("worker", "--config", str(DEMO_CONFIG))
    assert (refused.exit_code, "has no section controller.workers" in refused.stderr) == (1, True)


def test_the_file_says_where_switches_and_the_controller_are(run, config, monkeypatch):
    started = []
    monkeypatch.setattr("apps.launcher.worker", lambda *given: started.append(given) or 0)
    assert run("worker", "--config", config, "--name", "w9").exit_code == 0
    ((_, options),) = started
    assert (options.name, options.listen) == ("w9", ("127.0.0.1", 6653))
    assert options.controllers == (("127.0.0.1", 6654),)
    assert command.WorkerOptions is type(options)
