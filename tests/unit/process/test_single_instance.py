"""One controller to a journal and to a port."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from apps.process.single_instance import check_port, journal_held
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
            pytest.raises(HydraError, match=f"another controller \\(process {holder.pid}\\)"),
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
