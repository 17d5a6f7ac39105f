"""The configuration checked at a start is the one in use, and is read once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from apps.process import configuration
from apps.process.configuration import (
    check_configuration,
    configuration_at_start,
    digest_of,
    load_configuration,
)
from hydra.config.load import ConfigError

DEMO = Path(__file__).parents[3] / "configs" / "demo.yaml"


@pytest.fixture
def read(monkeypatch):
    """Paths that are read."""
    paths, load = [], configuration.load_configuration
    monkeypatch.setattr(
        configuration, "load_configuration", lambda path: (paths.append(path), load(path))[1]
    )
    return paths


def test_what_was_checked_is_not_read_again(read):
    check_configuration(DEMO)
    assert configuration_at_start(DEMO).source == str(DEMO)
    assert read == [DEMO]
    configuration_at_start(DEMO)  # a later start in this process
    assert read == [DEMO, DEMO]


def test_another_file_is_read(read, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(DEMO.read_text())
    check_configuration(DEMO)
    assert configuration_at_start(other).source == str(other)
    assert read == [DEMO, other]


def test_a_file_with_problems_is_refused_when_it_is_checked(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("racks: 7")
    with pytest.raises(ConfigError):
        check_configuration(bad)


def digest(text, folder):
    file = folder / "fabric.yaml"
    file.write_text(text)
    return digest_of(load_configuration(file))


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("", "", True),
        ("rest: 127.0.0.1:8080", "rest: 127.0.0.1:8081", True),
        ("journal: /var/tmp/hydra-demo/journal.db", "journal: /var/tmp/other.db", True),
        ("switching_ms: 25", "switching_ms: 26", False),
        ("mode: on-request", "mode: periodic", False),
    ],
)
def test_controllers_agree_on_the_fabric_and_the_policy(tmp_path, before, after, same):
    text = DEMO.read_text()
    assert before in text
    other = text.replace(before, after, 1) if before else text
    assert (digest(text, tmp_path) == digest(other, tmp_path)) == same


def test_processes_that_order_sets_otherwise_agree():
    code = (
        "import sys; from pathlib import Path; from apps.process.configuration import *; "
        f"print(digest_of(load_configuration(Path({str(DEMO)!r}))))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
