"""docs/configuration.md holds every key of the file, and the policy's true defaults."""

import re

import pytest
from pydantic import BaseModel

from hydra.config import schema
from hydra.config.schema import PolicySection

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


def test_the_defaults_are_the_true_ones():
    stated = dict(re.findall(r"^\| `([a-z_.]+)` \| (\S+) \|", TEXT, re.MULTILINE))
    flat = {}
    for name, value in PolicySection().model_dump().items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    actual = {
        name: f"{value:g}" if isinstance(value, float | int) else value
        for name, value in flat.items()
    }
    assert stated == actual
