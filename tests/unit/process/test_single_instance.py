"""One controller for a journal and for a port."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from apps.process.single_instance import check_port, check_private, journal_held
from hydra.errors import HydraError

HOLD = """
import sys
from apps.process.single_instance import journal_held
with journal_held(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_journal_has_one_controller_and_is_free_once_that_is_killed(tmp_path):
    journal = str(tmp_path / "deep" / "journal.db")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, journal], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(HydraError, match=f"a controller \\(process {holder.pid}\\)"),
            journal_held(journal),
        ):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with journal_held(journal):
        pass
    with journal_held(journal):
        pass


def test_a_directory_that_can_not_be_made(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(HydraError, match="check the directory"),
        journal_held(str(tmp_path / "file" / "journal.db")),
    ):
        pass


def test_a_port_that_is_taken_is_named_with_its_key():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            HydraError, match=f"127.0.0.1:{port}: another program.*change controller.rest"
        ):
            check_port("controller.rest", "127.0.0.1", port)
    check_port("controller.rest", "127.0.0.1", port)


def test_an_address_that_is_not_ours():
    with pytest.raises(HydraError, match=r"can't listen on 192\.0\.2\.1:6653"):
        check_port("controller.openflow", "192.0.2.1", 6653)


@pytest.mark.parametrize("part", ["journal.db", "journal.db-wal"])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_journal_that_others_can_read_is_refused(tmp_path, part, mode):
    file = tmp_path / part
    file.touch()
    file.chmod(mode)
    with pytest.raises(HydraError, match=f"{file} can be read by others .*chmod 600"):
        check_private(str(tmp_path / "journal.db"))
    file.chmod(0o600)
    check_private(str(tmp_path / "journal.db"))


def test_what_the_controller_writes_is_its_own(tmp_path):
    """For any umask, including the copy of an earlier schema and the audit log."""
    program = "import os; os.umask(0); from apps import launcher; launcher._serve([{!r}])"
    app = tmp_path / "app.py"
    app.write_text(
        "from apps.journal.sqlite import SqliteJournal\n"
        f"journal = SqliteJournal({str(tmp_path / 'journal.db')!r})\n"
        "raise KeyboardInterrupt\n"
    )
    subprocess.run([sys.executable, "-c", program.format(str(app))], timeout=60, check=False)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("journal.db*")}
    assert modes["journal.db"] == 0o600
    assert set(modes.values()) == {0o600}
