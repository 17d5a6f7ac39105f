"""docs/devices.md and docs/adding-a-driver.md agree with the code."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from drivers.registry import OPTICAL, TOR

ROOT = Path(__file__).parents[3]
DEVICES = (ROOT / "docs" / "devices.md").read_text()
ADDING = (ROOT / "docs" / "adding-a-driver.md").read_text()
WORDS = {"power": "power_readings", "one-way": "unidirectional"}


def rows(heading: str) -> dict[str, list[str]]:
    section = DEVICES.split(f"\n## {heading}")[1].split("\n## ")[0].split("\n### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first.strip("`"): rest for first, *rest in cells}


@pytest.mark.parametrize(
    ("heading", "table"), [("Optical switches", OPTICAL), ("ToR switches", TOR)]
)
def test_every_driver_has_a_row_that_says_what_it_can(heading, table):
    described = rows(heading)
    assert set(described) == set(table)
    for name, (_, _, can, _) in described.items():
        always = re.split(r"[;]", can)[0]  # what follows depends on options
        told = {WORDS.get(word, word) for word in re.findall(r"[\w-]+", always)}
        capabilities = asdict(table[name].CAPABILITIES)
        assert told == {ability for ability, has in capabilities.items() if has is True}, name


def test_what_the_guide_quotes_is_in_the_tree():
    sources = [
        (ROOT / name).read_text()
        for name in (
            "drivers/codecs/scpi.py",
            "drivers/optical/polatis_scpi.py",
            "drivers/registry.py",
            "tests/conformance/devices.py",
        )
    ]
    quoted = re.findall(r"```(?:python|text)\n(.*?)```", ADDING, re.DOTALL)
    assert len(quoted) == 6
    for block in quoted:
        assert any(block in source for source in sources), block


def test_what_the_guide_names_exists():
    for path in re.findall(r"`((?:drivers|mininet_scenarios|tests|hydra)/[\w./]*)`", ADDING):
        assert (ROOT / path).exists(), path
