"""Every driver is in the suite, and docs/devices.md lists every deviation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drivers.registry import OPTICAL, TOR
from tests.conformance import devices
from tests.conformance.tor import devices as tors

PAGE = (Path(__file__).parents[2] / "docs" / "devices.md").read_text()


@pytest.mark.parametrize(
    ("registered", "candidates"), [(OPTICAL, devices.CANDIDATES), (TOR, tors.CANDIDATES)]
)
def test_every_driver_is_held_against_its_contract(registered, candidates):
    assert {candidate.driver for candidate in candidates} == set(registered)
    assert len({candidate.id for candidate in candidates}) == len(candidates)
    assert len(set(candidates)) == len(candidates), "hashable: its device is started once for all"


def test_the_page_lists_every_candidate_with_its_deviations():
    section = PAGE.split("\n## The conformance suite")[1].split("\n## ")[0]
    listed = dict(re.findall(r"^\| `([\w-]+)` \| \d+ \| (.*) \|$", section, re.MULTILINE))
    candidates = {c.id: c.deviations for c in (*devices.CANDIDATES, *tors.CANDIDATES)}
    assert set(listed) == set(candidates)
    for name, deviations in candidates.items():
        told = ", ".join(f"`{deviation.name}`: {why}" for deviation, why in deviations.items())
        assert listed[name] == (told or "none"), name
