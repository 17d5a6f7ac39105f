"""The state left by scripts/bootstrap.sh, for any interruption in the middle of apt-get."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, wait_until

SCRIPT = Path(__file__).parents[3] / "scripts" / "bootstrap.sh"
DEFINITIONS = SCRIPT.read_text().split("\n((EUID == 0)) || say", 1)[0]
INSTALL = """
SYSTEMD={folder}/systemd SERVICE_POLICY={folder}/policy-rc.d NEW_UNITS=(hydra-test.service)
keep_services_back
apt_install a-package || exit 1
let_services_be
"""
SYSTEMCTL = """#!/bin/sh
[ "$2" != mask ] || touch {folder}/masked
[ "$2" != unmask ] || rm {folder}/masked
"""
APT = """#!/bin/sh
ls {folder} >{folder}/while-at-work
touch {folder}/at-work
exec {work}
"""


def begin(folder, work):
    """The part of the script around apt-get, with stand-ins for apt-get and systemctl."""
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("apt-get", APT), ("systemctl", SYSTEMCTL)):
        (programs / name).write_text(text.format(folder=folder, work=work))
        (programs / name).chmod(0o755)
    script = folder / "part.sh"
    script.write_text(DEFINITIONS.replace('cd "$(dirname "$0")/.."', "") + INSTALL)
    script.write_text(script.read_text().replace("{folder}", str(folder)))
    path = f"{programs}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["env", "--default-signal=HUP", "bash", script],  # nohup has ignored the signal
        env={**os.environ, "PATH": path},
        start_new_session=True,
    )


def kept_back(folder):
    return {"masked", "policy-rc.d"} & {one.name for one in folder.iterdir()}


def while_at_work(folder):
    return {"masked", "policy-rc.d"} <= set((folder / "while-at-work").read_text().split())


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_interrupts_it_leaves_no_daemon_kept_back(tmp_path, ended_by):
    running = begin(tmp_path, "sleep 600")
    wait_until((tmp_path / "at-work").exists)
    assert while_at_work(tmp_path)
    os.killpg(running.pid, ended_by)  # as a terminal does
    assert running.wait(PATIENCE_S) == 128 + ended_by
    assert not kept_back(tmp_path)


@pytest.mark.parametrize(("work", "status"), [("true", 0), ("false", 1)])
def test_it_lets_services_be_once_apt_is_through(tmp_path, work, status):
    assert begin(tmp_path, work).wait(PATIENCE_S) == status
    assert while_at_work(tmp_path)
    assert not kept_back(tmp_path)


def test_a_policy_of_somebody_else_stays(tmp_path):
    (tmp_path / "policy-rc.d").write_text("theirs")
    assert begin(tmp_path, "true").wait(PATIENCE_S) == 0
    assert (tmp_path / "policy-rc.d").read_text() == "theirs"


def packages_by_file(name):
    """A table of the script: Debian's packages by the file that shows their presence."""
    listed = f'for file in "${{!{name}[@]}}"; do echo "$file ${{{name}[$file]}}"; done'
    text = DEFINITIONS.replace('cd "$(dirname "$0")/.."', "")
    done = subprocess.run(
        ["bash", "-c", f"{text}\n{listed}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return {file: set(names) for file, *names in map(str.split, done.stdout.splitlines())}


def test_a_demo_installs_nothing_that_opens_a_port():
    """Packages for tests bring daemons, which are kept from starting: a new daemon has to be
    named.
    """
    demo, tests = packages_by_file("NEEDS"), packages_by_file("TESTS_NEED")
    for_tests = set().union(*tests.values())
    assert set().union(*demo.values()).isdisjoint(for_tests)
    daemons = packages_by_file("ONLY_FOR_TESTS")
    assert daemons.keys() <= tests.keys()
    serving = {file for file in {**demo, **tests} if re.search(r"(/sbin/.*d|-server|/etcd)$", file)}
    not_kept_back = {
        "/usr/sbin/ovs-vswitchd",
        "/usr/sbin/netconfd",
    }  # neither daemon listens by default
    assert serving - not_kept_back == daemons.keys()


def test_a_clone_may_lie_in_a_folder_with_spaces(tmp_path):
    """pip splits the values of these variables at spaces."""
    clone = tmp_path / "my clone"
    pip = clone / ".venv" / "bin" / "python"
    pip.parent.mkdir(parents=True)
    pip.write_text('#!/bin/sh\necho "$PIP_CONSTRAINT $PIP_BUILD_CONSTRAINT" >told\n')
    pip.chmod(0o755)
    (clone / "build-constraints.txt").touch()
    text = DEFINITIONS.replace('cd "$(dirname "$0")/.."', "")
    done = subprocess.run(
        ["bash", "-c", f"{text}\npip_install --no-deps ."],
        cwd=clone,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0
    told = (clone / "told").read_text().split()
    assert len(told) == 2
    assert all((clone / one).is_file() for one in told)


def in_clone(clone, program, **options):
    text = DEFINITIONS.replace('cd "$(dirname "$0")/.."', "")
    script = f"{text}\n{program}"
    return subprocess.Popen(["bash", "-c", script], cwd=clone, text=True, **options)


@pytest.mark.parametrize(
    ("outcome", "there"),
    [("fail 'no network'", "old"), ("kill -TERM $$", "old"), (":", "new")],
)
def test_an_environment_stays_unless_a_new_one_takes_its_place(tmp_path, outcome, there):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "old").touch()
    python = "mkdir -p .venv/bin; touch .venv/new; ln -s /bin/true .venv/bin/python"
    program = f"""
    install_packages() {{ {outcome}; }}
    pip_install() {{ :; }}
    ln() {{ :; }}
    eval "$(declare -f make_virtual_environment | sed 's,/usr/bin/python3 -m venv.*,{python};,')"
    make_virtual_environment
    """
    in_clone(tmp_path, program.replace("ln -s", "command ln -s")).wait(PATIENCE_S)
    assert (tmp_path / ".venv" / there).exists()
    assert not (tmp_path / ".venv" / ({"old", "new"} - {there}).pop()).exists()
    assert not (tmp_path / ".venv.before").exists()


def test_a_second_run_waits_for_the_first_and_says_so(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "bootstrap.sh").touch()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with in_clone(tmp_path, "take_turn; echo in; read -r", **pipes) as first:
        assert first.stdout.readline() == "in\n"
        with in_clone(tmp_path, "take_turn; echo in", **pipes) as second:
            assert "waiting" in second.stdout.readline()
            first.stdin.close()
            assert second.stdout.readline() == "in\n"


@pytest.mark.parametrize(
    ("changed", "purpose", "done"),
    [
        (None, "test", ["all", "tests"]),
        ("requirements.txt", "test", ["all", "tests"]),
        ("requirements.txt", "demo", ["all", "tests"]),
        ("setup.py", "test", ["project"]),
        ("setup.py", "demo", ["project"]),
        ("README.md", "test", []),
    ],
)
def test_packages_are_installed_anew_only_if_their_list_has_changed(
    tmp_path, changed, purpose, done
):
    (tmp_path / ".venv").mkdir()
    for name in ("requirements.txt", "setup.py"):
        (tmp_path / name).touch()
    program = """
    PACKAGES=(requirements.txt) PROJECT=(setup.py)
    make_virtual_environment() { echo all >>calls; }
    install_project() { echo project >>calls; }
    install_packages() { echo tests >>calls; }
    install_prometheus() { :; }
    PURPOSE=%s; bring_up_to_date
    """
    if changed is not None:
        assert in_clone(tmp_path, program % "test").wait(PATIENCE_S) == 0
        (tmp_path / "calls").unlink()
        (tmp_path / changed).write_text("more")
    assert in_clone(tmp_path, program % purpose).wait(PATIENCE_S) == 0
    calls = tmp_path / "calls"
    assert (calls.read_text().split() if calls.exists() else []) == done
    assert in_clone(tmp_path, program % purpose).wait(PATIENCE_S) == 0
    assert (calls.read_text().split() if calls.exists() else []) == done
