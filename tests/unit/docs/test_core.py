"""CONTRIBUTING.md's list of the core agrees with the tests' markers."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
SECTION = re.search(
    r"## The core\n(.*?)\n(?:## |Rules of the house)", (ROOT / "CONTRIBUTING.md").read_text(), re.S
)[1]
IN_CORE, LEFT_OUT = (table.split("\n\n")[0] for table in SECTION.split("|---|---|\n")[1:])


def rows(table):
    for row in table.splitlines():
        words, places = row.strip("|").split("|")
        yield words.strip(), re.findall(r"`([^`]+)`", places)


def sources():
    for path in (ROOT / "tests").rglob("*.py"):
        if path != Path(__file__):
            yield str(path.relative_to(ROOT)), path.read_text()


def test_each_reason_is_in_the_table_with_its_file():
    marked = {
        (reason, name)
        for name, text in sources()
        for reason in re.findall(r"mark\.core\(\s*\"(.+?)\"\s*\)", text)
        if name.startswith(("tests/integration", "tests/conformance"))
    }
    assert marked == {(reason, place) for reason, places in rows(IN_CORE) for place in places}


def test_each_file_that_takes_long_is_said_to_be_left_out():
    named = [place for _, places in rows(LEFT_OUT) for place in places]
    long = [name for name, text in sources() if re.search(r"mark\.(takes|ovs)\b", text)]
    for name in long:
        if name != "tests/conformance/devices.py" and "/test_run_tests" not in name:
            assert any(name.startswith(place) for place in named), name
    for place in named:
        assert any(name.startswith(place) for name in long), place
