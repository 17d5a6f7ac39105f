"""Drivers that are loaded when they are asked for."""

import sys

import pytest

from drivers.registry import OPTICAL, _Entries


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    (tmp_path / "driver_of_a_missing_package.py").write_text("import a_missing_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_missing_package"):
        _Entries({"new": "driver_of_a_missing_package"})["new"]


def test_names_are_known_without_loading_anything():
    entries = _Entries({"new": "a_driver_that_is_not_there"})
    assert "new" in entries
    assert "other" not in entries
    assert "a_driver_that_is_not_there" not in sys.modules


def test_drivers_are_what_their_names_say():
    for name in OPTICAL:
        assert OPTICAL[name].__name__ == f"drivers.optical.{name.replace('-', '_')}"
