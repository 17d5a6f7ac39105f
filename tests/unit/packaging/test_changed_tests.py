"""The tests that ``make check`` runs for a changed file."""

import importlib.util
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[3]
SPEC = importlib.util.spec_from_file_location("changed_tests", ROOT / "scripts/changed_tests.py")
changed_tests = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(changed_tests)


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(*changed_tests.PACKAGES, "tests", cache_dir=None)


@pytest.mark.parametrize(
    ("changed", "run"),
    [
        ("hydra/journal.py", {"tests/unit/core"}),
        ("hydra/reservations/quotas.py", {"tests/unit/reservations"}),
        ("hydra/events.py", {"tests/unit/core", "tests/unit/rest/test_events.py"}),
        ("topology/vlan.py", {"tests/unit/topology"}),
        ("apps/rest/guard.py", {"tests/unit/rest"}),
        ("tests/unit/core/test_rings.py", {"tests/unit/core/test_rings.py"}),
        ("tests/unit/rest/fake_service.py", {"tests/unit/rest/test_problems.py"}),
        ("CONTRIBUTING.md", {"tests/unit/docs"}),
        ("hydra/model.py", {"tests/unit/core"}),
    ],
)
def test_tests_of(graph, monkeypatch, changed, run):
    monkeypatch.chdir(ROOT)
    found = set(changed_tests.tests_of(changed, graph))
    assert run <= found
    assert all((ROOT / path).exists() for path in found)


def test_what_everybody_imports_is_said_and_left_to_make_test(graph, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert set(changed_tests.tests_of("hydra/model.py", graph)) == {"tests/unit/core"}
    assert "tests import it; make test runs all" in capsys.readouterr().err
