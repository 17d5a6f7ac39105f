"""/v1/policy, /v1/reload: the policy in force, and its changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from apps.rest.document import Body, Document
from apps.rest.problems import (
    BODY_PROBLEMS,
    DEVICE_UNAVAILABLE,
    INVALID_CONFIGURATION,
    MALFORMED,
    UNSUPPORTED_MEDIA_TYPE,
)
from apps.rest.routing import Routes
from hydra.config.policy_words import key_words
from hydra.config.reload import BY_REQUEST, in_force, why_not
from hydra.config.schema import policy_model
from hydra.policy import Policy, Taken

if TYPE_CHECKING:
    from apps.rest.dependencies import Service

routes = Routes("/v1", "maintenance")
_MOST_REPORTED: Final = 20
"""Largest number of errors put in words: the search for an intended word takes time."""


@policy_model(only=BY_REQUEST)
class PolicyBody(Body):
    """Values of the policy that affect later decisions only, as in the configuration file."""

    @model_validator(mode="wrap")
    @classmethod
    def _say_why_not(cls, data: object, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Refuse other keys, with words about other ways to change them."""
        try:
            return validate(data)
        except ValidationError as error:
            found = error.errors(include_url=False)
            raise ValidationError.from_exception_data(
                cls.__name__,
                [*map(_in_words, found[:_MOST_REPORTED]), *map(_as_it_is, found[_MOST_REPORTED:])],
            ) from None


def _in_words(item: ErrorDetails) -> InitErrorDetails:
    if item["type"] != "extra_forbidden":
        return _as_it_is(item)
    return _as_it_is({**item, "msg": why_not([str(step) for step in item["loc"]])})


def _as_it_is(item: ErrorDetails) -> InitErrorDetails:
    # The words are no template: there is no context to fill in.
    custom_error = PydanticCustomError(item["type"], item["msg"])
    return InitErrorDetails(type=custom_error, loc=item["loc"], input=item["input"])


class ReloadBody(Body):
    """Whether to apply the changes."""

    dry_run: bool = Field(default=False, description="Show the effect, change nothing.")


class ConfigurationChange(Document):
    key: str = Field(description="Path in the file, such as `policy.epoch_s`.")
    before: str
    after: str


class PolicyValue(Document):
    key: str = Field(description="Path in the file, such as `policy.epoch_s`.")
    value: str
    default: str
    allowed: str = Field(description="Allowed values, in words.")
    choices: list[str] = Field(description="Allowed values of a key that takes words; else empty.")
    meaning: str
    at_once: bool = Field(description="Whether a reload changes the key; else only a start does.")
    by_request: bool = Field(description="Whether `PATCH /v1/policy` changes the key, too.")


class PolicyInForce(Document):
    values: list[PolicyValue]


class Reload(Document):
    applied: list[ConfigurationChange]
    waiting: list[ConfigurationChange] = Field(
        description="Changed in the file; takes effect at the next start."
    )


@routes.on("GET", "/policy")
def get_policy(service: Service) -> PolicyInForce:
    """The policy in force, and the parts that a reload can change."""
    return _in_force(service.policy)


@routes.on("PATCH", "/policy", *BODY_PROBLEMS, DEVICE_UNAVAILABLE)
def amend_policy(body: PolicyBody, service: Service) -> PolicyInForce:
    """Set values until the next start or reload; values left out stay."""
    service.amend(body.model_dump(exclude_unset=True))
    return _in_force(service.policy)


def _in_force(policy: Policy) -> PolicyInForce:
    words = {f"policy.{path}": about for path, about in key_words().items()}
    return PolicyInForce(
        values=[
            PolicyValue(
                key=key,
                value=value,
                default="none" if words[key].default == "None" else words[key].default,
                allowed=words[key].plain_allowed,
                choices=list(words[key].choices),
                meaning=words[key].plain_meaning,
                at_once=taken is not Taken.AT_START,
                by_request=taken is Taken.AT_ONCE,
            )
            for key, value, taken in in_force(policy)
        ]
    )


@routes.on(
    "POST",
    "/reload",
    MALFORMED,
    INVALID_CONFIGURATION,
    UNSUPPORTED_MEDIA_TYPE,
    DEVICE_UNAVAILABLE,
)
def reload(body: ReloadBody, service: Service) -> Reload:
    """Read the configuration file again; apply changes that touch no traffic, or with `dry_run`
    none.
    """
    return Reload.of(None, service.reload(dry_run=body.dry_run))
