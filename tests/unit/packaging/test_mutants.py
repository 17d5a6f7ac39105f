"""``scripts/mutants.py``: the drawn mutants, the tests for each, and the results."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SPEC = importlib.util.spec_from_file_location("mutants", ROOT / "scripts/mutants.py")
mutants = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)

FILES = {
    # The part of mutmut's interface in a mutant's process that the script uses.
    "mutmut/mutation/trampoline.py": """
_mutant_under_test = ""

def set_mutant_under_test(name):
    global _mutant_under_test
    _mutant_under_test = name
""",
    "mutmut/state.py": """
class State:
    _stats = set()

def state():
    return State
""",
    "room.py": """
import os
from mutmut.mutation import trampoline
from mutmut.state import state

def half(number):
    state()._stats.add("room.x_half")
    match trampoline._mutant_under_test:
        case "room.x_half__mutmut_1":
            return number
        case "room.x_half__mutmut_2":
            return number / 2
        case "room.x_half__mutmut_3":
            while True:
                pass
        case "room.x_half__mutmut_4":
            os._exit(3)
    return number // 2
""",
    "test_room.py": """
import room

def test_nothing_of_the_room():
    pass

def test_zero():
    assert room.half(0) == 0

def test_four():
    assert room.half(4) == 2

def test_that_fails_anyway():
    assert room.half(4) == 3
""",
    "run.py": """
import importlib.util, json, os, sys, warnings
from pathlib import Path
import pytest

def warn():  # as eventlet does
    warnings.warn("a process with a hub forks", DeprecationWarning)

os.register_at_fork(before=warn)

spec = importlib.util.spec_from_file_location("mutants", sys.argv[1])
mutants = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mutants)
mutants.LIMIT_S = 1
file = Path("results.json").absolute()
plugin = mutants.Mutants(sys.argv[2:], file)
if file.exists():
    plugin.take_over(json.loads(file.read_text()))
options = ["-q", "-s", "-W", "error", "-p", "no:cacheprovider", "-p", "no:randomly", "."]
pytest.main(options, plugins=[plugin])
""",
}


def test_what_becomes_of_mutants(tmp_path):
    for name, text in FILES.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text(text)
    names = [f"room.x_half__mutmut_{number}" for number in range(1, 5)]
    command = [sys.executable, "run.py", ROOT / "scripts/mutants.py", *names, "room.x_un__mutmut_1"]
    subprocess.run(command, cwd=tmp_path / "tests", check=True)
    found = json.loads((tmp_path / "tests/results.json").read_text())
    zero, four = "test_room.py::test_zero", "test_room.py::test_four"
    assert found["results"] == {
        "room.x_half__mutmut_1": ["killed", four],
        "room.x_half__mutmut_2": ["survived", None],
        "room.x_half__mutmut_3": ["does not end", zero],
        "room.x_half__mutmut_4": ["crashes", zero],
        "room.x_un__mutmut_1": ["called by no test", None],
    }
    assert found["calls"][four] == ["room.x_half"]
    assert not [test for test in found["calls"] if "fails_anyway" in test]
    assert list((tmp_path).glob("notes-*")) == []
    kept = {names[0]: ["kept", None], names[3]: ["of a larger sample", None]}
    (tmp_path / "tests/results.json").write_text(json.dumps(found | {"results": kept}))
    subprocess.run([*command[:3], *names[:2]], cwd=tmp_path / "tests", check=True)
    again = json.loads((tmp_path / "tests/results.json").read_text())
    assert again["results"] == {names[0]: ["kept", None], names[1]: ["survived", None]}
    assert again["calls"] == found["calls"]


def test_a_seed_draws_the_same_mutants_again():
    names = [f"room.x_f__mutmut_{number}" for number in range(1000)]
    drawn = mutants.draw(names, 200, 49)
    assert len(set(drawn)) == 200
    assert drawn == mutants.draw(names, 200, 49) != mutants.draw(names, 200, 50)
    assert sorted(mutants.draw(names[:3], 200, 49)) == names[:3]


def test_quick_tests_come_first_and_slow_ones_file_by_file():
    plugin = mutants.Mutants([], Path())
    plugin.cpu_s = {"b::quick": 0.1, "a::slow": 2.0, "b::slow": 1.0, "a::quick": 0.1}
    plugin.calls = {test: ["m.x_f"] for test in plugin.cpu_s} | {"b::quick": ["m.x_f", "m.x_g"]}
    plugin.results = {"m": ("killed", "a::slow"), "n": ("survived", None)}
    items = [type("Item", (), {"nodeid": test}) for test in plugin.cpu_s]
    seconds = {"a": 2.1, "b": 1.1}
    assert plugin.by_file() == {"a": (pytest.approx(2.1), 1), "b": (pytest.approx(1.1), 0)}
    chosen = plugin.tests_of("m.x_f__mutmut_7", items, seconds)
    assert [item.nodeid for item in chosen] == ["b::quick", "a::quick", "b::slow", "a::slow"]
    assert [one.nodeid for one in plugin.tests_of("m.x_g__mutmut_1", items, seconds)] == [
        "b::quick"
    ]
    assert plugin.living() == ["n"]


def test_every_room_has_its_tests():
    for room, folders in mutants.TESTS.items():
        assert list((ROOT / room).glob("*.py"))
        for tests in folders:
            assert list((ROOT / tests).glob("test_*.py"))


def test_the_working_folder_has_the_clone_and_mutmuts_settings(tmp_path):
    mutants.lay_out(tmp_path, "hydra/reservations")
    mutants.lay_out(tmp_path, "hydra/reservations")
    assert (tmp_path / "tests/conftest.py").samefile(ROOT / "tests/conftest.py")
    settings = (tmp_path / "setup.cfg").read_text()
    assert "only_mutate =\n    hydra/reservations/*\n" in settings
    assert "also_copy =\n    .ci\n" in settings
