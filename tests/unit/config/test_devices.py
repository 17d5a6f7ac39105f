"""Checks of logins and driver options before any connection."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict

from hydra.config.devices import login_problems, option_problems
from hydra.model import Login


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    baud: int = 38400


@pytest.mark.parametrize(
    ("login", "words"),
    [
        (None, "is missing"),
        (Login("admin"), "exactly one of"),
        (Login("admin", password_env="A", password_file="/b"), "exactly one of"),
        (Login("admin", key_file="/k"), "takes no keys"),
        (Login("admin", password_env="A"), None),
        (Login("admin", password_file="/b"), None),
    ],
)
def test_a_login_has_one_way_to_its_secret(login, words):
    found = list(login_problems(login))
    assert (words is None) == (not found)
    assert words is None or words in found[0].message


def test_a_key_will_do_where_the_protocol_takes_one():
    assert list(login_problems(Login("admin", key_file="/k"), keys=True)) == []


def test_options_are_checked_by_the_drivers_model():
    assert list(option_problems(Options, {"baud": 9600})) == []
    (slip,) = option_problems(Options, {"buad": 9600})
    assert (slip.path, slip.message) == (
        "options.buad",
        "is not an option of this driver; did you mean 'baud'?",
    )
    (wrong,) = option_problems(Options, {"baud": "fast"})
    assert wrong.path == "options.baud"


def test_the_file_says_where(demo, problems_of):
    demo["planes"][0]["options"] = {"colour": "blue"}
    demo["racks"][0]["tor"]["login"] = {"username": "admin", "password_env": "SECRET"}
    problems = problems_of(demo)
    assert [problem.path for problem in problems] == [
        "racks[0].tor.login",
        "planes[0].options.colour",
    ]


def test_a_secret_in_the_file_is_refused(demo, problems_of):
    demo["planes"][0]["login"] = {"username": "admin", "password": "hunter2"}
    problems = problems_of(demo)
    assert "planes[0].login.password" in [problem.path for problem in problems]
    assert "hunter2" not in str(problems)
