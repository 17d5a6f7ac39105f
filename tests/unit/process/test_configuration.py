"""The configuration that a start has checked is the one that it uses, and is read once."""

from pathlib import Path

import pytest

from apps.process import configuration
from apps.process.configuration import check_configuration, configuration_at_start
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
