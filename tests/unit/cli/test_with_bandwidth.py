"""``hydra with-bandwidth`` as a separate process, with a controller's REST API."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from hydra.lifecycle import ReservationState as State
from tests.waiting import PATIENCE_S, wait_until

from .jobs import all_over, finish, states

pytestmark = pytest.mark.takes(20)


def test_the_command_runs_with_it_and_it_is_given_back(start, service, network):
    code, out, err = finish(
        start("with-bandwidth", "r1:r2=40", "--pair", "h31:h41=5", "--", "echo", "-n", "moved")
    )
    assert (code, out) == (0, "moved"), err
    assert all_over(service)
    assert len(service.reservations()) == 2
    assert set(states(service)) == {State.RELEASED}


def test_the_command_runs_with_a_ring_and_it_is_given_back(start, service, network):
    job = (sys.executable, "-m", "apps.cli", "shape", "list", "--json")
    ring = ("--shape", "ring", "r1,r2,r3,r4", "--mbps", "most", "--duration", "2h")
    code, out, err = finish(start("with-bandwidth", *ring, "--", *job))
    assert code == 0, err
    (shape,) = json.loads(out)["shapes"]
    assert (shape["pattern"], shape["state"], shape["bandwidth_mbps"]) == ("ring", "ready", 100)
    assert {one.duration_s for one in service.reservations()} == {7200}
    assert all_over(service)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("--shape", "ring", "r1,r2,r3", "--", "true"), "--shape and --mbps go together"),
        (("r1:r2=5", "--mbps", "5", "--", "true"), "--shape and --mbps go together"),
        (("r1:r2=5",), "no command: give one after --, as in r1:r2=5 -- COMMAND"),
        (("true",), "'true' is not SRC:DST=MBPS"),
    ],
)
def test_what_is_missing_is_told(start, service, wrong, words):
    code, _, err = finish(start("with-bandwidth", *wrong))
    assert code == 2
    assert words in err
    assert service.reservations() == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("no-such-command-at-all",), 127),
        (("/etc/passwd",), 126),
    ],
)
def test_it_exits_as_the_command_does(start, service, network, command, expected):
    code, _, err = finish(start("with-bandwidth", "r1:r2=40", "--", *command))
    assert code == expected, err
    assert (f"Error: {command[0]}: " in err) == (expected in {126, 127})
    assert all_over(service)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGXCPU,
    ],
)
def test_signals_reach_the_command_and_release(start, service, network, number, tmp_path):
    ready = tmp_path / "ready"
    process = start(
        "with-bandwidth", "r1:r2=40", "--", "sh", "-c", f"touch {ready}; exec sleep 600"
    )
    wait_until(ready.exists)
    process.send_signal(number)
    code, _, err = finish(process)
    assert code == 128 + number, err
    assert all_over(service)


def test_a_signal_that_is_ignored_stays_ignored(rest, service, network, tmp_path):
    job = "touch $0; until test -e $0.end; do sleep 0.05; done"
    hydra = [sys.executable, "-m", "apps.cli", "with-bandwidth", "r1:r2=40", "--url", rest.url]
    process = subprocess.Popen(
        ["nohup", *hydra, "--", "sh", "-c", job, tmp_path / "ready"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until((tmp_path / "ready").exists)
    os.killpg(process.pid, signal.SIGHUP)
    (tmp_path / "ready.end").touch()
    assert process.wait(PATIENCE_S) == 0
    assert all_over(service)


COUNT = """
import signal, sys
awaited = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
count = 0
while True:
    with open(sys.argv[1], "a") as file:
        file.write("x" if count else "ready")
    if signal.sigwait(awaited) == signal.SIGTERM:
        break
    count += 1
sys.exit(count)
"""


@pytest.mark.parametrize("stdin", ["", "< /dev/null"])
@pytest.mark.parametrize("by", ["terminal", "kill"])
def test_a_commands_interrupt_comes_once(rest, service, network, tmp_path, stdin, by):
    seen = tmp_path / "seen"
    master, slave = pty.openpty()
    on_terminal = ["setsid", "--ctty", "sh", "-c", f'exec "$@" {stdin}', "sh"]
    hydra = [sys.executable, "-m", "apps.cli", "with-bandwidth", "r1:r2=40", "--url", rest.url]
    process = subprocess.Popen(
        [*on_terminal, *hydra, "--", sys.executable, "-c", COUNT, seen],
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    try:
        wait_until(lambda: seen.exists() and seen.read_text() == "ready")
        if by == "terminal":
            os.write(master, b"\x03")
        else:
            process.send_signal(signal.SIGINT)
        wait_until(lambda: seen.read_text() != "ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 1
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
    assert all_over(service)


ELSEWHERE = """
import pathlib, signal, sys, threading, time
from apps.cli.job import run_with
def other():
    while not pathlib.Path(sys.argv[2]).exists():
        time.sleep(0.02)
    time.sleep(0.2)  # the first thread waits by now
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(600)
threading.Thread(target=other, daemon=True).start()
sys.exit(run_with(None, None, [sys.executable, "-c", *sys.argv[1:]]))
"""


def test_a_signal_that_another_thread_catches_is_passed_on(tmp_path):
    """numpy has threads of its own, which may receive the kernel's signal."""
    command = [sys.executable, "-c", ELSEWHERE, COUNT, tmp_path / "seen"]
    assert subprocess.run(command, timeout=PATIENCE_S, check=False).returncode == 0


def test_a_signal_while_circuits_come_up(start, service, network):
    network.idle = True
    process = start("with-bandwidth", "r1:r2=40", "--", "echo", "never")
    wait_until(lambda: states(service) == [State.ACTIVATING])
    process.send_signal(signal.SIGTERM)
    code, out, _ = finish(process)
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert all_over(service)


def test_what_is_not_admitted_does_not_run(start, service, network):
    code, out, err = finish(start("with-bandwidth", "r1:r2=140", "--", "echo", "never"))
    assert (code, out) == (1, "")
    assert "at most 100 Mb/s" in err
    assert service.reservations() == []


def test_what_does_not_come_up_does_not_run(start, service, network):
    network.fails = True
    code, out, err = finish(start("with-bandwidth", "r1:r2=40", "--", "echo", "never"))
    assert (code, out) == (1, "")
    assert "r1 to r2 is failed: no light" in err


def test_it_is_given_back_once_the_controller_answers_again(
    start, service, network, away, tmp_path
):
    ready = tmp_path / "ready"
    job = "touch $0; until test -e $0.end; do sleep 0.05; done"
    process = start("with-bandwidth", "r1:r2=40", "--", "sh", "-c", job, str(ready))
    wait_until(ready.exists)
    with away():
        (tmp_path / "ready.end").touch()
        assert "retrying for 300 s" in process.stderr.readline()
    code, _, err = finish(process)
    assert (code, err) == (0, "")
    assert all_over(service)


def test_it_waits_for_circuits_while_the_controller_is_away(start, service, network, away):
    network.idle = True
    process = start("with-bandwidth", "r1:r2=40", "--", "echo", "-n", "ran")
    wait_until(lambda: states(service) == [State.ACTIVATING])
    with away():
        assert "retrying for 300 s" in process.stderr.readline()
    network.idle = False
    code, out, err = finish(process)
    assert (code, out, err) == (0, "ran", "")
    assert all_over(service)


def test_a_signal_ends_the_tries_to_give_it_back(start, service, network, away, tmp_path):
    ready = tmp_path / "ready"
    process = start(
        "with-bandwidth", "r1:r2=40", "--", "sh", "-c", f"touch {ready}; exec sleep 600"
    )
    wait_until(ready.exists)
    with away():
        process.send_signal(signal.SIGTERM)
        assert "retrying for" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        code, _, err = finish(process)
    assert code == 128 + signal.SIGTERM
    assert "was not released (ended by SIGTERM)" in err


@pytest.mark.parametrize("pair", ["r1:r2", "r1=5", "r1:r2=-1", "r1:r2=x", "r1:r2=nan"])
def test_pairs_that_are_none(run, pair):
    result = run("with-bandwidth", pair, "--", "true")
    assert result.exit_code == 2
    assert "is not SRC:DST=MBPS" in result.stderr
