import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from . import CONFIGS, DEMO

pytestmark = pytest.mark.takes(15)


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "fabric.yaml"
    path.write_text(
        DEMO.read_text()
        .replace("max_hops: 3", "max_hpos: 3")
        .replace("driver: polatis-scpi", "driver: polatis")
    )
    return path


def test_a_usable_file(run):
    result = run("check", str(DEMO))
    assert result.exit_code == 0
    assert "demo.yaml: usable" in result.stdout
    assert "4 with 8 servers" in result.stdout
    assert result.stderr == ""


def test_json_of_a_usable_file(run):
    result = run("check", "--json", str(CONFIGS / "reference.yaml"))
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "ok": True,
        "fabric": "reference",
        "racks": 320,
        "servers": 10_240,
        "planes": 32,
        "optical_ports": 10_240,
        "one_way_circuits": False,
        "substrate": "dual-homed-vlan",
        "circuit_vlans": 3900,
        "mode": "periodic",
        "algorithm": "anytime",
        "frame_bytes": 1518,
        "warnings": [],
    }


def test_problems_go_to_stderr(run, bad):
    result = run("check", str(bad))
    assert result.exit_code == 1
    assert result.stdout == ""
    *problems, count = result.stderr.splitlines()
    assert count == "2 problems"
    assert problems[0].startswith(f"{bad}:")
    assert "planes[0].driver: unknown optical driver 'polatis'; did you mean" in problems[0]
    assert "policy.max_hpos: unknown key; did you mean 'max_hops'?" in problems[1]


def test_problems_as_json(run, bad):
    result = run("check", "--json", str(bad))
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["ok"] is False
    assert [p["path"] for p in document["problems"]] == ["planes[0].driver", "policy.max_hpos"]
    assert all(p["line"] and p["message"] for p in document["problems"])


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        pytest.param("k: 1\n" * 300, 300, id="alike: 299 keys that repeat, one unknown key"),
        pytest.param("".join(f"k{n}: 1\n" for n in range(3000)), 3000, id="too many to list"),
        pytest.param("rakcs: []\n", 1, id="one"),
    ],
)
def test_the_number_of_problems_is_of_all_not_of_lines(run, tmp_path, lines, count):
    path = tmp_path / "fabric.yaml"
    path.write_text(DEMO.read_text() + lines)
    told = run("check", str(path)).stderr.splitlines()
    assert told[-1] == f"{count:,} problem{'s' if count > 1 else ''}"
    assert len(told) <= 102
    document = json.loads(run("check", "--json", str(path)).stdout)
    assert document["count"] == count == sum(p["count"] for p in document["problems"])


def test_warnings_do_not_fail_the_check(run, tmp_path):
    path = tmp_path / "fabric.yaml"
    path.write_text(DEMO.read_text().replace("planes: p[1-2]", "planes: p1"))
    result = run("check", str(path))
    assert result.exit_code == 0
    assert "Warning: " in result.stderr
    assert "planes[0]: not wired to any rack" in result.stderr


@pytest.fixture
def with_device(tmp_path):
    """The demo with optical switches with this login."""

    def write(login, options=()):
        document = yaml.safe_load(DEMO.read_text())
        login = {"username": "admin", **login}
        document["planes"][0] |= {
            "driver": "polatis-restconf", "login": login, "options": {"tls": True, **dict(options)}
        }  # fmt: skip
        path = tmp_path / "fabric.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


def test_files_of_devices_that_are_not_there_are_problems(run, with_device, tmp_path):
    """Otherwise the first login would fail, long after the check."""
    none = str(tmp_path / "none")
    result = run("check", with_device({"password_file": none}, {"ca_file": none}))
    assert result.exit_code == 1
    told = result.stderr
    assert f"planes.login.password_file: p1, p2: can't read the password file {none}" in told
    assert f"planes.options.ca_file: p1, p2: can't read {none}: No such file" in told
    assert told.endswith("2 problems\n")
    empty = tmp_path / "empty"
    empty.touch()
    result = run("check", with_device({"password_file": str(empty)}, {"ca_file": str(empty)}))
    assert "the first line of the password file" in result.stderr
    assert "the contents are no certificate" in result.stderr


def test_files_of_devices_that_are_there_pass(run, with_device, tmp_path):
    password = tmp_path / "password"
    password.write_text("secret\n")
    result = run("check", with_device({"password_file": str(password)}))
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_password_that_is_not_in_this_environment_is_a_warning(run, with_device, monkeypatch):
    """The service has a separate environment."""
    file = with_device({"password_env": "HYDRA_TEST_PASSWORD"})
    monkeypatch.delenv("HYDRA_TEST_PASSWORD", raising=False)
    result = run("check", file)
    assert result.exit_code == 0
    assert "planes.login.password_env: p1, p2: HYDRA_TEST_PASSWORD is not set here" in result.stderr
    monkeypatch.setenv("HYDRA_TEST_PASSWORD", "secret")
    assert run("check", file).stderr == ""


def test_a_missing_file_is_a_problem_not_a_traceback(run, tmp_path):
    result = run("check", str(tmp_path / "none.yaml"))
    assert result.exit_code == 1
    assert "none.yaml: can't be read" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["check"], ["check", "a", "b"], ["check", "--frobnicate"], ["chek"], ["run"]]
)
def test_wrong_usage(run, arguments, monkeypatch):
    monkeypatch.delenv("HYDRA_CONFIG", raising=False)
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(("file", "code"), [(str(DEMO), 0), ("no-such-file.yaml", 1)])
def test_as_a_process_of_its_own(file, code):
    done = subprocess.run(
        [sys.executable, "-m", "apps.cli", "check", "--json", file],
        cwd=CONFIGS.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert json.loads(done.stdout)["ok"] is (code == 0)
    assert done.stderr == ""


def test_run_refuses_a_bad_file_before_it_listens(bad):
    done = subprocess.run(
        [sys.executable, "-m", "apps.cli", "run", "--config", str(bad)],
        cwd=CONFIGS.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "policy.max_hpos: unknown key" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("tokens", "none.json", "a file without tokens"),
        ("journal", "file/journal.db", "is no folder"),
        ("journal", "/proc/journal.db", "can't write /proc/journal.db.lock (No such file"),
        ("journal", "/proc/hydra/journal.db", "check the directory"),
        ("journal", "x" * 248, "File name too long"),
        ("journal", "damaged.db", "is damaged"),
        ("journal", "cut.db", "the write-ahead log exists without the file"),
        ("audit_log", "/proc/audit.log", "can't write /proc/audit.log (No such file"),
        ("authority", "none.pem", "no authority can be read from"),
        ("audit_log", "folder", "not a regular file"),
        ("audit_log", "x" * 300, "File name too long"),
        ("openflow_certificate", "none.pem", "OpenFlow can't use"),
        ("tls_certificate", "none.pem", "REST can't use"),
    ],
)
def test_what_a_start_would_refuse_of_files(run, tmp_path, key, value, words):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"no journal" * 1000)
    damaged.chmod(0o600)
    (tmp_path / "cut.db-wal").touch(0o600)
    before = sorted(tmp_path.iterdir())
    settings = {"journal": str(tmp_path / "journal.db"), key: str(tmp_path / value)}
    if key == "tls_certificate":
        settings["tls_key"] = settings[key]
    if key == "openflow_certificate":
        settings |= dict.fromkeys(("openflow_key", "openflow_authority"), settings[key])
    document = yaml.safe_load(DEMO.read_text())
    document["controller"] = settings
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(document))
    result = run("check", str(path))
    assert result.exit_code == 1
    assert f"controller.{key}: " in result.stderr
    assert words in result.stderr
    path.unlink()
    assert sorted(tmp_path.iterdir()) == before


def test_relative_paths_start_where_the_controller_runs(run, tmp_path, monkeypatch):
    """As in systemd's unit: the file in one directory, the controller in another."""
    at_work, here = tmp_path / "at-work", tmp_path / "here"
    for folder in (at_work, here):
        folder.mkdir()
    made = run(
        "token", "create", "me", "--role", "operator", "--file", str(at_work / "tokens.json")
    )
    assert made.exit_code == 0
    document = yaml.safe_load(DEMO.read_text())
    document["controller"] = {"journal": "journal.db", "tokens": "tokens.json"}
    (here / "fabric.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.chdir(here)
    alone = run("check", "fabric.yaml")
    assert alone.exit_code == 1
    assert "controller.tokens: " in alone.stderr
    there = run("check", "--directory", str(at_work), "fabric.yaml")
    assert there.exit_code == 0, there.stderr
    assert Path.cwd() == here
    monkeypatch.chdir(at_work)
    assert run("check", str(here / "fabric.yaml")).exit_code == 0


def test_the_directory_that_systemd_has_not_made_yet_counts_as_empty(run, tmp_path):
    missing, file = tmp_path / "hydra", tmp_path / "fabric.yaml"
    document = yaml.safe_load(DEMO.read_text())
    document["controller"] = {"journal": "journal.db"}
    file.write_text(yaml.safe_dump(document))
    done = run("check", "--directory", str(missing), str(file))
    assert done.exit_code == 0, done.stderr
    assert f"{missing} does not exist, and was taken as empty: systemd makes" in done.stderr
    document["controller"] = {"tokens": "tokens.json"}
    file.write_text(yaml.safe_dump(document))
    done = run("check", "--directory", str(missing), str(file))
    assert done.exit_code == 1
    assert "controller.tokens: " in done.stderr
    assert not missing.exists()


def test_an_audit_log_may_be_a_stream(run, tmp_path):
    document = yaml.safe_load(DEMO.read_text())
    journal = str(tmp_path / "journal.db")
    document["controller"] = {"journal": journal, "audit_log": "/dev/null"}
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(document))
    assert run("check", str(path)).exit_code == 0


@pytest.mark.parametrize("arguments", [("check", str(DEMO)), ("--help",)])
def test_a_full_disk_is_one_line(arguments):
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [Path(sys.executable).with_name("hydra"), *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "Error: the output can't be written: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_takes_nothing_of_the_exit_code(closed):
    hydra = Path(sys.executable).with_name("hydra")
    for file, code in ((DEMO, 0), (DEMO.with_name("none.yaml"), 1)):
        command = f'exec "{hydra}" check "{file}" {closed}'
        result = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
        )
        assert (result.returncode, "Traceback" in result.stderr) == (code, False), result.stderr


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_an_encoding_that_lacks_a_letter_is_no_error(locale):
    code = (
        "from apps.cli import _prepare_streams as prepare; prepare(); "
        "from apps.cli.output import print_table; print_table('Racks', ['name'], [['Süd']])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=CONFIGS.parent,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": locale},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert "S?d" in result.stdout


def test_a_misspelt_command_is_recognised(run):
    assert "Did you mean 'topology'?" in run("topologgy").stderr


@pytest.mark.parametrize("kind", ["sparse", "dense", "uniform", "gravity"])
def test_made_up_demands_leave_spines_out(run, kind):
    result = run("plan", "--fabric", str(CONFIGS / "leaf-spine.yaml"), "--demand", kind)
    assert result.exit_code == 0, result.stderr
