"""The policy in force, and its changes."""

from __future__ import annotations

from pydantic import Field

from apps.rest.models.base import Body, Document
from hydra.config.reload import BY_REQUEST
from hydra.config.schema import policy_model


@policy_model(only=BY_REQUEST)
class PolicyBody(Body):
    """Values of the policy that only later decisions rest on, as in the configuration file."""


class ReloadBody(Body):
    """Whether to do it."""

    dry_run: bool = Field(default=False, description="Only say what it would change.")


class ConfigurationChange(Document):
    key: str = Field(description="Path in the file, such as `policy.epoch_s`.")
    before: str
    after: str


class PolicyValue(Document):
    key: str = Field(description="Path in the file, such as `policy.epoch_s`.")
    value: str
    at_once: bool = Field(description="A reload changes it; else the next start does.")


class PolicyInForce(Document):
    values: list[PolicyValue]


class Reload(Document):
    applied: list[ConfigurationChange]
    waiting: list[ConfigurationChange] = Field(
        description="Changed in the file; takes effect at the next start."
    )
