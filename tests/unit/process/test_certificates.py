"""Objects made of PEM files are made again after a change of usable files."""

import logging

import pytest

from apps.process.certificates import Renewable
from hydra.errors import HydraError


@pytest.fixture
def paths(tmp_path):
    for name in ("one.pem", "one.key"):
        (tmp_path / name).write_text("a")
    return [tmp_path / "one.pem", tmp_path / "one.key"]


@pytest.fixture
def renewable(paths):
    """A context is made of the text common to the files; two different texts make no context."""

    def make() -> list[str]:
        try:
            pem, key = (path.read_text() for path in paths)
        except OSError as error:
            raise HydraError("one is missing") from error
        if pem != key:
            raise HydraError("they do not match")
        return [pem]

    return Renewable([str(path) for path in paths], make)


def test_files_that_stay_are_read_once(renewable):
    assert renewable.context() is renewable.context()


def test_renewed_files_are_used(renewable, paths):
    for path in paths:
        path.write_text("b")
    assert renewable.context() == ["b"]
    for path in paths:
        new = path.with_suffix(".new")
        new.write_text("c")
        new.replace(path)
    assert renewable.context() == ["c"]


def test_files_that_can_not_be_used_leave_what_was_there_which_is_told_once(
    renewable, paths, caplog
):
    caplog.set_level(logging.INFO, "hydra.certificates")
    pem, key = paths
    pem.write_text("bb")
    assert [renewable.context() for _ in range(3)] == [["a"]] * 3
    pem.unlink()
    assert renewable.context() == ["a"]
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert "they do not match" in told.message
    assert f"{pem}, {key}" in told.message
    for path in paths:
        path.write_text("bb")
    assert renewable.context() == ["bb"]
    key.write_text("c")
    assert renewable.context() == ["bb"]
    assert [one.levelno for one in caplog.records][1:] == [logging.INFO, logging.WARNING]


def test_the_first_have_to_be_usable(paths):
    def make() -> None:
        raise HydraError("no")

    with pytest.raises(HydraError, match="no"):
        Renewable([str(path) for path in paths], make)
