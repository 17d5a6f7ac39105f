"""docs/client.md has each method and error of the client, and a working snippet for a refusal."""

import inspect
import re
from typing import get_args, get_type_hints

import pytest

import hydra_hybrid_network_client as package
from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra_hybrid_network_client import ClientError, HydraClient, Refused, documents
from tests.unit.rest.fake_service import FakeService

from .blocks import ROOT, blocks

PAGE = ROOT / "docs" / "client.md"


def test_each_method_is_there_with_its_parameters():
    (listed,) = (text for language, text in blocks(PAGE) if language == "text")
    described = dict(re.findall(r"^(\w+)\(([^)]*)\)", listed, re.MULTILINE))
    methods = {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(HydraClient, inspect.isfunction)
        if not name.startswith("_") and name != "close"
    }
    assert methods.keys() == described.keys()
    for name, signature in methods.items():
        names = [one for one in signature.parameters if one != "self"]
        assert re.findall(r"\w+", described[name]) == names, name


def test_each_error_is_there():
    errors = [
        name
        for name in package.__all__
        if isinstance(kind := getattr(package, name), type) and issubclass(kind, ClientError)
    ]
    assert len(errors) > 10
    table = PAGE.read_text().partition("| error | meaning |")[2]
    assert [name for name in errors if f"`{name}`" not in table] == []


def classes(hint):
    """The document classes in a type."""
    inner = [found for part in get_args(hint) for found in classes(part)]
    return [*inner, hint] if getattr(hint, "__module__", "") == documents.__name__ else inner


def test_documents_that_a_program_names_are_at_the_top():
    """Documents in arguments of methods, and the gap, which programs distinguish from events."""
    hints = [
        hint
        for method in vars(HydraClient).values()
        if inspect.isfunction(method) and not method.__name__.startswith("_")
        for name, hint in get_type_hints(method).items()
        if name != "return"
    ]
    named = {found.__name__ for hint in hints for found in classes(hint)} | {"Gap"}
    assert len(named) > 3
    assert named - set(package.__all__) == set()


@pytest.fixture
def client():
    service = FakeService(load_configuration(ROOT / "configs" / "demo.yaml").fabric)
    server = RestServer(create_app(service), "127.0.0.1", 0)
    server.start()
    with HydraClient(server.url) as client:
        yield client
    server.stop()


def test_the_snippet_takes_what_fits_instead(client):
    (snippet,) = (text for _, text in blocks(PAGE) if "alternatives):" in text)
    names = {"Refused": Refused}
    exec(snippet, names)  # noqa: S102 - the document's own text
    reserve = names["reserve"]
    assert reserve(client, "r1", "r2", 80, 60).bandwidth_mbps == 80
    assert reserve(client, "r1", "r2", 40, 60).bandwidth_mbps == 20
    later = reserve(client, "r1", "r2", 40, 60)
    assert (later.bandwidth_mbps, later.state) == (40, "scheduled")
    with pytest.raises(Refused, match="'r9'"):
        reserve(client, "r1", "r9", 40, 60)
