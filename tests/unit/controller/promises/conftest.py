"""A stage for reservations, on which the check of paths can be held up."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from .stage import STANDING, Disk, Door, Stage, shut_vlans


@pytest.fixture
def journal(tmp_path):
    journal = Disk(str(tmp_path / "journal.db"))
    yield journal
    journal.close()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def door(pool):
    """Opens at the end, so that the pool can close."""
    door = Door()
    yield door
    door.open()


@pytest.fixture
def stage(journal):
    stage = Stage(journal)
    stage.ledger.network.settle(STANDING)
    return stage


@pytest.fixture
def shut(monkeypatch, journal, door):
    """A stage on which the check of paths waits at the door."""
    shut_vlans(monkeypatch, door)
    stage = Stage(journal)
    stage.ledger.network.settle(STANDING)
    return stage
