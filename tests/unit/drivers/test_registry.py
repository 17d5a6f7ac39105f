"""Drivers loaded on demand."""

import sys
from importlib.metadata import EntryPoint

import pytest

from drivers import registry
from drivers.registry import OPTICAL, TOR, optical_switch, plane_checks
from hydra import plugins
from hydra.errors import DeviceError, Problem
from hydra.model import Plane, PlaneId
from hydra.plugins import Places
from tests.waiting import PATIENCE_S


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    (tmp_path / "driver_of_a_missing_package.py").write_text("import a_missing_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_missing_package"):
        Places({"new": "driver_of_a_missing_package"})["new"]


def test_names_are_known_without_loading_anything():
    entries = Places({"new": "a_driver_that_is_not_there"})
    assert "new" in entries
    assert "other" not in entries
    assert "a_driver_that_is_not_there" not in sys.modules


def test_drivers_are_what_their_names_say():
    for name in OPTICAL:
        assert OPTICAL[name].__name__ == f"drivers.optical.{name.replace('-', '_')}"


@pytest.fixture
def contributing(monkeypatch):
    """Contributes a driver, with freshly made tables that include HydRA's drivers."""

    def contribute(value):
        point = EntryPoint("new", value, registry.CONTRIBUTED)
        monkeypatch.setattr(plugins, "points_of", lambda group: [point] if group else [])
        for table in (OPTICAL, TOR):
            monkeypatch.delitem(vars(table), "_points", raising=False)
            monkeypatch.setattr(table, "_made", {})

    yield contribute
    for table in (OPTICAL, TOR):
        vars(table).pop("_points", None)


def test_a_contributed_driver_stands_beside_ours(contributing):
    contributing("drivers.optical.polatis_scpi")
    assert OPTICAL["new"].CAPABILITIES.bulk
    assert plane_checks().keys() == {*OPTICAL}
    assert "new" in plane_checks()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("a_missing_module:Driver", "ModuleNotFoundError: No module named 'a_missing_module'"),
        ("json", "the driver has no CAPABILITIES and no build and no check"),
        (
            "drivers.tor.ibm_g8264",
            "the driver's CAPABILITIES are TorCapabilities, not OpticalCapabilities",
        ),
    ],
)
def test_a_bad_contribution_is_a_problem_of_the_planes_that_name_it(contributing, value, problem):
    contributing(value)
    plane = Plane(PlaneId(0), "p1", "new", "10.0.0.7:5025", 16, 25, 100)
    why = (
        f"optical driver new can't be loaded from {value} ({problem}): mend or uninstall that "
        "package, or choose another optical driver"
    )
    assert [*plane_checks()["new"](plane)] == [Problem("driver", why)]
    with pytest.raises(DeviceError, match="p1: optical driver new can't be loaded"):
        optical_switch(plane, PATIENCE_S)
    assert OPTICAL["polatis-scpi"].CAPABILITIES.bulk
