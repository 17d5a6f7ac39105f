"""Passwords come from a variable or a file, and are never shown."""

from __future__ import annotations

import traceback

import pytest

from drivers.credentials import secret
from hydra.errors import DeviceError
from hydra.model import Login

VARIABLE = "HYDRA_TEST_PASSWORD"


def test_from_the_environment_read_anew_each_time(monkeypatch):
    login = Login("admin", password_env=VARIABLE)
    for value in ("root", " spaces kept "):
        monkeypatch.setenv(VARIABLE, value)
        assert secret("p1", login) == value


@pytest.mark.parametrize("content", [b"root", b"root\n", b"root\r\n", b"root\nsecond line\n"])
def test_the_first_line_of_a_file(tmp_path, content):
    (tmp_path / "pw").write_bytes(content)
    assert secret("p1", Login("admin", password_file=str(tmp_path / "pw"))) == "root"


@pytest.mark.parametrize(("value", "state"), [(None, "not set"), ("", "empty")])
def test_a_variable_without_a_password(monkeypatch, value, state):
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(DeviceError, match=f"p1: the environment variable {VARIABLE} is {state}"):
        secret("p1", Login("admin", password_env=VARIABLE))


def test_a_file_that_can_not_be_read(tmp_path):
    path = str(tmp_path / "none")
    with pytest.raises(DeviceError, match=f"p1: can't read the password file {path}: No such"):
        secret("p1", Login("admin", password_file=path))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\nsecond", "is empty"),
        (b"sesame" * 1000, "is no password"),
        ("sesame-öffne-dich".encode(), "is no password"),
    ],
)
def test_a_file_without_a_password_is_named_and_never_quoted(tmp_path, content, reason):
    path = tmp_path / "pw"
    path.write_bytes(content)
    with pytest.raises(DeviceError, match=reason) as caught:
        secret("p1", Login("admin", password_file=str(path)))
    told = "".join(traceback.format_exception(caught.value))
    assert str(path) in told
    assert "sesame" not in told


def test_a_login_without_any_password():
    with pytest.raises(DeviceError, match=r"no password for admin: set login\.password_env or"):
        secret("p1", Login("admin", key_file="/k"))
