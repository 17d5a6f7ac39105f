"""Kernel settings of the testbed: any later run restores them from a file."""

import json
import re
from pathlib import Path

import pytest

from mininet_scenarios.testbed import sysctl

BEFORE = 1000
LEFT = "net.core.netdev_max_backlog"


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """Settings by name, in temporary files."""
    folder = tmp_path / "sys"
    folder.mkdir()
    for name in (*sysctl._MINIMUM, *sysctl._EXACT):
        (folder / name).write_text(f"{BEFORE}\n")
    monkeypatch.setattr(sysctl, "_path", folder.joinpath)
    monkeypatch.setattr(sysctl, "STATE_DIR", tmp_path / "state")
    monkeypatch.setattr(sysctl, "_SAVED", tmp_path / "state" / "sysctl.json")
    return folder


def test_what_was_changed_is_restored(kernel):
    sysctl.apply()
    assert (kernel / LEFT).read_text() == "10000\n"
    sysctl.restore()
    assert {one.read_text() for one in kernel.iterdir()} == {f"{BEFORE}\n"}


def test_what_an_earlier_run_changed_is_restored_too(kernel):
    """The earlier run was killed, or leaves its changes to the next run."""
    sysctl.apply()
    (kernel / LEFT).write_text("2000\n")
    sysctl.apply()
    sysctl.restore()
    assert {one.read_text() for one in kernel.iterdir()} == {f"{BEFORE}\n"}


def test_the_file_is_whole_at_any_time(kernel, monkeypatch):
    readers = []

    def refuse(name, _value):
        if not readers:
            readers.append(sysctl._SAVED.open())
        return name == LEFT

    monkeypatch.setattr(sysctl, "_try_write", refuse)
    sysctl.apply()
    with readers[0] as reader:
        assert len(json.load(reader)) == len(sysctl._MINIMUM) + len(sysctl._EXACT)
    assert json.loads(sysctl._SAVED.read_text()) == {LEFT: BEFORE}


def test_settings_that_are_too_small_are_told(kernel):
    least = sysctl._MINIMUM["net.core.rmem_max"]
    assert sysctl.lacking()["net.core.rmem_max"] == (sysctl._read("net.core.rmem_max"), least)
    sysctl.apply()
    assert sysctl.lacking() == {}
    sysctl.restore()


def test_a_network_of_its_own_begins_with_the_same_buffers():
    """The script of `make test` raises the buffers before the network exists."""
    script = (Path(__file__).parents[2] / "own_network.sh").read_text()
    raised = re.findall(r"\b([a-z_]+)=(\d+)", script)
    assert {f"net.core.{name}": int(value) for name, value in raised} == sysctl._MINIMUM
