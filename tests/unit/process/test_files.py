import errno
import os
import stat
import threading

import pytest

from apps.process.files import give_to, making, replacing
from tests.waiting import PATIENCE_S


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_mode_that_was_asked_for(tmp_path):
    path = tmp_path / "new"
    with replacing(path, 0o600) as file:
        assert not path.exists()
        file.write("ä")
    assert path.read_text(encoding="utf-8") == "ä"
    assert mode_of(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_exists_keeps_its_mode(tmp_path):
    path = tmp_path / "old"
    path.write_text("old")
    path.chmod(0o640)
    with replacing(path, 0o600) as file:
        file.write("new")
    assert (path.read_text(), mode_of(path)) == ("new", 0o640)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_one(tmp_path, there):
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    if there:
        target.write_text("old")
    link.symlink_to(target)
    with replacing(link) as file:
        file.write("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_a_pipe_is_written_to_itself_through_a_link(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with replacing(link) as file:
        file.write("all")
    reader.join(timeout=PATIENCE_S)
    assert read == ["all"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert {*tmp_path.iterdir()} == {pipe, link}


def test_what_fails_half_way_leaves_all_as_it_was(tmp_path):
    path = tmp_path / "old"
    path.write_text("old")

    def half():
        with replacing(path) as file:
            file.write("half")
            raise ValueError

    with pytest.raises(ValueError):
        half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "none" / "new"
    with pytest.raises(FileNotFoundError) as refused, replacing(path):
        pass
    assert refused.value.filename == str(path)


@pytest.fixture
def synced(monkeypatch):
    """For each fsync: True for a folder."""
    told = []
    real = os.fsync

    def fsync(handle):
        told.append(stat.S_ISDIR(os.fstat(handle).st_mode))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return told


@pytest.mark.parametrize("make", [replacing, making])
def test_a_file_and_then_its_name_outlive_a_loss_of_power(tmp_path, synced, make):
    with make(tmp_path / "new"):
        assert synced == []
    assert synced == [False, True]


def test_nothing_is_left_of_a_new_file_that_the_disk_has_no_room_for(tmp_path, monkeypatch):
    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"), making(tmp_path / "new") as file:
        file.write(b"half")
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_is_its_owner_s_and_takes_nobody_s_place(tmp_path):
    with making(tmp_path / "new") as file:
        assert mode_of(tmp_path / "new") == 0o600
        file.write(b"mine")
    with pytest.raises(FileExistsError), making(tmp_path / "new"):
        pass
    assert (tmp_path / "new").read_bytes() == b"mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_gives_away_no_file_that_a_link_leads_to(tmp_path):
    target, link = tmp_path / "roots", tmp_path / "journal.db.restored"
    target.touch()
    link.symlink_to(target)
    os.chown(tmp_path, 65534, 65534)
    give_to(tmp_path.stat(), link)
    assert target.stat().st_uid == 0
    assert link.lstat().st_uid == 65534
