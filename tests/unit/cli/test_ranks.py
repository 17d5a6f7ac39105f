"""``hydra ranks`` on a chain of racks: r1, r3, r2, r4."""

import json
import subprocess

import pytest

from hydra.model import Circuit, NetworkState, Path, PlaneId, PortId, RackId, Topology, VlanId

from . import DEMO


@pytest.fixture
def chain(service):
    """Circuits r1 - r3 and r2 - r4 on p1, r2 - r3 on p2; ports of a rack are 2 * rack + plane."""
    ends = [(0, 0, 2), (0, 1, 3), (1, 1, 2)]
    paths = [
        Path(RackId(a), RackId(b), (Circuit(PlaneId(p), PortId(2 * a + p), PortId(2 * b + p)),))
        for p, a, b in ends
    ]
    circuits = frozenset(path.circuits[0] for path in paths)
    vlans = {path: VlanId(100 + at) for at, path in enumerate(paths)}
    service.network = NetworkState(1, Topology(circuits, tuple(sorted(paths))), vlans)


ORDER = ["h11", "h12", "h31", "h21", "h41", "h42", "h22", "h32"]
PROVEN = "electrical neighbours: 0 of 8, 3 in the given order; the fewest possible (proven)\n"


def test_all_servers(call, chain):
    result = call("ranks")
    assert (result.exit_code, result.stdout.split()) == (0, ORDER)
    assert result.stderr == PROVEN


def test_a_host_file_with_slots(call, chain, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("h41 slots=2\nh31 slots=1\nh21\n")
    result = call("ranks", "--hosts", str(hosts), "--slots", "4")
    assert result.stdout.splitlines() == ["h41 slots=2", "h31 slots=1", "h21 slots=4"]
    assert "1 of 3, 1 in the given order" in result.stderr
    ordered = call("ranks", "--hosts", str(hosts), "--format", "slurm")
    assert ordered.stdout.split() == ["h41", "h41", "h31", "h21"]


def test_json(call, chain):
    document = json.loads(call("ranks", "--json").stdout)
    assert document["hosts"][2] == {"name": "h31", "rack": "r3", "slots": None}
    assert [host["name"] for host in document["hosts"]] == ORDER
    del document["hosts"]
    assert document == {
        "electrical": 0,
        "electrical_given": 3,
        "electrical_at_least": 0,
        "proven": True,
    }


def test_a_topology_from_a_file_needs_no_controller(call, run, chain, tmp_path):
    file = tmp_path / "monday.json"
    file.write_text(call("topology", "--json").stdout)
    result = run("ranks", "--topology", str(file), "--config", str(DEMO))
    assert (result.exit_code, result.stdout.split(), result.stderr) == (0, ORDER, PROVEN)


def test_open_mpi_places_ranks_in_the_order_of_the_file(call, chain, tmp_path):
    """By mpirun's own map; mpirun would reach all hosts but the first by ssh, so no rank is
    launched.
    """
    ring = tmp_path / "ring"
    ring.write_text(call("ranks", "--slots", "1").stdout)
    command = ["mpirun", "--allow-run-as-root", "--hostfile", str(ring), "--display-map"]
    command += ["--do-not-launch", "--bind-to", "none", "-n", "8", "true"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    nodes = [line.split()[3] for line in shown.splitlines() if "Data for node:" in line]
    assert nodes == ORDER, shown


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["--hosts", "missing"], 1, "--hosts missing can't be read"),
        (["--config", str(DEMO)], 2, "--topology and --config go together: give both or neither"),
        (["--topology", "t.json"], 2, "--topology and --config go together"),
        (["--topology", "t.json", "--config", str(DEMO)], 1, "t.json can't be read"),
    ],
)
def test_bad_input_is_one_error(call, arguments, code, error):
    result = call("ranks", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert [error in line for line in result.stderr.splitlines() if "Error" in line] == [True]


def test_a_host_that_no_rack_has(call, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("h11\nh99\n")
    result = call("ranks", "--hosts", str(hosts))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: the controller knows no server h99: ")
