"""Users without root rights get an error before anything is made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from apps.process.configuration import load_configuration
from mininet_scenarios.testbed import Testbed, TestbedError, build, open_vswitch, standalone
from mininet_scenarios.testbed import __main__ as command

CONFIG = Path(__file__).parents[3] / "configs" / "demo.yaml"


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user, who must not reach the lock, whose file would belong to that user."""

    def lock() -> NoReturn:
        raise AssertionError("the lock was taken")

    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    for module in (build, standalone, command):
        monkeypatch.setattr(module, "testbed_lock", lock)


@pytest.mark.usefixtures("nobody")
def test_nothing_is_built_by_others() -> None:
    loaded = load_configuration(CONFIG)
    with pytest.raises(TestbedError, match="run this as root"):
        Testbed(loaded.fabric, loaded.controller).__enter__()
    with pytest.raises(TestbedError, match="run this as root"):
        open_vswitch().__enter__()


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("arguments", [["clean"], ["up", str(CONFIG)], ["up"]])
def test_the_command_says_so_in_any_folder(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.main(arguments) == 1
    assert capsys.readouterr().err.endswith("need root: run this as root\n")
