"""Enumerations of the client equal the words of the API: a program may compare with either."""

import json
import pkgutil
from enum import Enum, StrEnum
from importlib import import_module

import pytest
from pydantic import BaseModel

from apps.process.configuration import load_configuration
from apps.rest import resources
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra.lifecycle import ReservationState as State
from hydra_hybrid_network_client import HydraClient
from tests.unit.cli import DEMO
from tests.unit.rest.fake_service import FakeService


def enumerations(annotation):
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from enumerations(part)


def descendants(kind):
    for one in kind.__subclasses__():
        yield one
        yield from descendants(one)


def of_the_api():
    for module in pkgutil.iter_modules(resources.__path__, f"{resources.__name__}."):
        import_module(module.name)
    for document in descendants(BaseModel):
        if document.__module__.startswith("apps.rest."):
            for field in document.model_fields.values():
                yield from enumerations(field.annotation)


ENUMERATIONS = sorted(set(of_the_api()), key=lambda one: one.__name__)


def test_there_are_enumerations_to_look_at():
    assert State in ENUMERATIONS
    assert len(ENUMERATIONS) > 15


@pytest.mark.parametrize("enumeration", ENUMERATIONS, ids=lambda one: one.__name__)
def test_each_is_its_word(enumeration):
    assert issubclass(enumeration, StrEnum)
    for member in enumeration:
        assert member == member.value
        assert f"{member}" == member.value
        assert json.loads(json.dumps(member)) == member.value


def test_words_do_for_enumerations_in_calls():
    """As given on a command line or in a file."""
    server = RestServer(create_app(FakeService(load_configuration(DEMO).fabric)), "127.0.0.1", 0)
    server.start()
    try:
        with HydraClient(server.url) as client:
            made = client.reserve("r1", "r2", 1, service="best-effort")
            assert (made.state, made.service) == ("activating", "best-effort")
            assert list(client.reservations("activating")) == [made]
            assert list(client.reservations(State.ACTIVATING)) == [made]
            kinds = ("reservation", "alarm")
            assert next(client.events(*kinds, last_id="other-1"))[1].missed is None
    finally:
        server.stop()
