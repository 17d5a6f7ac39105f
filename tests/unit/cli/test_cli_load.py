"""hydra load: the last hour of circuits and rack pairs."""

import json
import re

import pytest

from apps.cli.load import _sparkline
from hydra.model import NetworkState, Topology
from tests.unit.rest.fake_service import recorded, relay_path, ring_state


@pytest.fixture
def hour(service):
    path = relay_path()
    service.network = NetworkState(3, Topology(frozenset(path.circuits), (path,)))
    recorded(service)
    return service


def row(text, *words):
    """Cells of the one table row that begins with these words."""
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in text.splitlines()
        if "│" in line
    ]
    (found,) = [cells for cells in rows if cells[: len(words)] == list(words)]
    return found


def test_each_direction_has_its_figures_and_a_line(call, hour):
    shown = call("load").stdout
    assert re.search(
        r"^2023-11-1\d .* to 2023-11-1\d .*, every 10 s, in Mb/s$", shown, re.MULTILINE
    )
    there = row(shown, "r1 =p1= r3", "r1")
    assert there[2:] == ["60.0", "60.0", "30.0", "100.0", "▁▁▂▃▃▄·▅▆▇▇██"]
    assert row(shown, "r1 =p1= r3", "r3")[2:] == ["0.0", "0.0", "0.0", "100.0", "▁▁▁▁▁▁·▁▁▁▁▁▁"]
    assert row(shown, "r2 =p2= r3", "r2")[2:] == ["", "", "", "100.0", "·" * 13]
    assert row(shown, "r1", "r2") == ["r1", "r2", "80.0", "80.0", "80.0", "█" * 13]


def test_racks_narrow_it(call, hour):
    shown = call("load", "r4", "r3").stdout
    assert "Circuits: none" in shown
    assert row(shown, "r4", "r3")[2:] == ["", "", "", "·" * 13], "unknown, not 0"
    assert row(shown, "r3", "r4")[2:] == ["0.0", "0.0", "0.0", "▁" * 13]


def test_json_is_the_document(call, hour):
    document = json.loads(call("load", "r1", "--limit", "1", "--json").stdout)
    assert [one["plane"] for one in document["circuits"]] == ["p1"]
    assert document["circuits"][0]["a_to_b_mbps"][5:8] == [25.0, None, 35.0]


def test_one_way_circuits_have_one_line(call, service):
    service.network = ring_state()
    recorded(service)
    assert len(re.findall(r"=p1>", call("load", "r1", "r2").stdout)) == 1
    assert row(call("load", "r1", "r2").stdout, "r1 =p1> r2", "r1")[2] == "60.0"


def test_it_says_that_nothing_is_recorded(call):
    result = call("load")
    assert result.exit_code == 0
    assert result.stdout == "Load is not recorded: policy.poll_interval_s is 0.\n"


def test_it_says_that_there_is_no_sample_yet(call, hour):
    hour.recorded = type(hour.recorded)(hour.fabric, 10.0)
    assert "No sample yet: the first comes 10 s after the start." in call("load").stdout


def test_what_makes_no_sense_is_refused(call, hour):
    assert call("load", "r1", "r2", "r3").exit_code == 2
    result = call("load", "r9")
    assert result.exit_code == 1
    assert "no rack 'r9'" in result.stderr


def test_a_long_time_is_drawn_in_thirty_parts():
    assert _sparkline([0.0] * 180 + [8.0] * 180) == "▁" * 15 + "█" * 15
    assert _sparkline([None] * 12 + [4.0] * 348) == "·" + "█" * 29
    assert _sparkline([]) == ""
