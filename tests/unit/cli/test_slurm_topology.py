"""``hydra slurm topology``: the file, its renewal, and the command after a renewal."""

import pytest
import yaml

import apps.cli.slurm_topology
from hydra.model import NetworkState, Topology, VlanId
from tests.unit.rest.fake_service import relay_path

RELAYED = "SwitchName=circuits1 Switches=r1,r2"


@pytest.fixture
def ask(run, rest, service, monkeypatch):
    """``hydra slurm topology ARGUMENTS…`` against a controller's real REST API."""
    monkeypatch.setenv("HYDRA_URL", rest.url)
    return lambda *arguments: run("slurm", "topology", *arguments)


@pytest.fixture
def relayed(service):
    """A path from r1 to r2."""
    path = relay_path()
    service.network = NetworkState(
        1, Topology(frozenset(path.circuits), (path,)), {path: VlanId(100)}
    )


def test_it_is_printed(ask, relayed):
    result = ask("--format", "conf")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "# Written by `hydra slurm topology`.",
        "SwitchName=r1 Nodes=h11,h12",
        "SwitchName=r2 Nodes=h21,h22",
        "SwitchName=r3 Nodes=h31,h32",
        "SwitchName=r4 Nodes=h41,h42",
        RELAYED,
        "SwitchName=electrical Switches=circuits1,r3,r4",
    ]
    (document,) = yaml.safe_load(ask("--plugin", "block").stdout)
    assert document["block"]["block_sizes"] == [2, 4, 8]


def test_the_command_runs_after_a_change_alone(ask, tmp_path):
    file, ran = tmp_path / "topology.yaml", tmp_path / "ran"
    command = ("--file", str(file), "--", "sh", "-c", f"echo >> {ran}")
    for _ in range(2):
        assert ask(*command).exit_code == 0
    assert ran.read_text() == "\n"
    assert yaml.safe_load(file.read_text())[0]["topology"] == "hydra"
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("topology")] == [
        file.name
    ]


def test_a_command_that_fails_is_an_error(ask, tmp_path):
    result = ask("--file", str(tmp_path / "t.yaml"), "--", "false")
    assert (result.exit_code, result.stderr) == (1, "Error: `false` failed: exit status 1\n")
    result = ask("--file", str(tmp_path / "u.yaml"), "--", "./none")
    assert result.stderr == "Error: ./none can't be run: No such file or directory\n"


def test_a_folder_that_is_missing(ask, tmp_path):
    file = tmp_path / "none" / "topology.yaml"
    result = ask("--file", str(file))
    assert result.stderr == f"Error: {file} can't be written: No such file or directory\n"


@pytest.mark.parametrize("arguments", [["--watch"], ["--", "true"]])
def test_no_file_to_renew(ask, arguments):
    result = ask(*arguments)
    assert result.exit_code == 2
    assert "give --file FILE" in result.stderr


def test_the_file_follows_the_circuits(ask, service, tmp_path, monkeypatch):
    """Between renewals: no path, a path, no path, and a command that works again.

    The command fails after the path, and runs again.
    """
    file, ran, fails = tmp_path / "topology.conf", tmp_path / "ran", tmp_path / "fails"
    path = relay_path()
    seen = []

    def nothing():
        pass

    def a_path():
        fails.touch()
        service.network = NetworkState(
            1, Topology(frozenset(path.circuits), (path,)), {path: VlanId(100)}
        )

    def mended():
        fails.unlink()

    def end():
        raise KeyboardInterrupt

    steps = iter([nothing, a_path, nothing, mended, end])

    def sleep(seconds):
        assert seconds == 90
        seen.append((RELAYED in file.read_text(), len(ran.read_text().split())))
        next(steps)()

    monkeypatch.setattr(apps.cli.slurm_topology.time, "sleep", sleep)
    command = ("sh", "-c", f"echo x >> {ran}; ! test -e {fails}")
    told = ("--format", "conf", "--file", str(file), "--watch", "--every", "90s")
    result = ask(*told, "--", *command)
    assert result.exit_code == 0, result.output
    assert seen == [(False, 1), (False, 1), (True, 2), (True, 3), (True, 4)]
    assert result.stderr.count("Warning: ") == 1, "a trouble is told once while it lasts"
    assert "failed: exit status 1; trying again" in result.stderr


def test_no_controller_answers(run, tmp_path):
    file = tmp_path / "topology.yaml"
    result = run("slurm", "topology", "--url", "http://127.0.0.1:9", "--file", str(file), "--watch")
    assert (result.exit_code, file.exists()) == (3, False)
    assert "no controller answers at http://127.0.0.1:9" in result.stderr
