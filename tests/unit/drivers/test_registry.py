"""Drivers that are loaded when they are asked for."""

import sys

import pytest

from drivers import registry


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "drivers.optical.polatis_netconf", raising=False)
    monkeypatch.setitem(sys.modules, "ncclient", None)
    for name in [one for one in sys.modules if one.startswith(("ncclient.", "drivers.transports"))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match="ncclient"):
        registry.OPTICAL["polatis-netconf"]


def test_names_are_known_without_loading_anything(monkeypatch):
    monkeypatch.delitem(sys.modules, "drivers.optical.glimmerglass_tl1", raising=False)
    assert "glimmerglass-tl1" in registry.OPTICAL
    assert "glimmerglas" not in registry.OPTICAL
    assert "drivers.optical.glimmerglass_tl1" not in sys.modules
