"""docs/configuration.md holds every key of the file, and the policy's true defaults."""

import re
import runpy

import pytest
from pydantic import BaseModel

from hydra.config import schema

from .conftest import CONFIGS

TEXT = (CONFIGS.parent / "docs" / "configuration.md").read_text()


def keys(section: type[BaseModel]) -> set[str]:
    return set(section.model_fields)


@pytest.mark.parametrize(
    "section",
    [
        section
        for section in vars(schema).values()
        if isinstance(section, type) and issubclass(section, BaseModel)
    ],
)
def test_every_key_is_described(section):
    quoted = " ".join(re.findall(r"`[^`\n]+`", TEXT))
    described = set(re.findall(r"[a-z_]+", quoted))
    assert keys(section) - described == set()


def test_the_table_of_the_policy_is_made_of_its_classes():
    script = runpy.run_path(str(CONFIGS.parent / "scripts" / "policy_table.py"))
    assert script["page"](TEXT) == TEXT, "run python scripts/policy_table.py"
