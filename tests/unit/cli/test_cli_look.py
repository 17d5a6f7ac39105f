"""hydra top, topology as a picture, history, completion and the manual pages."""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from math import dist
from pathlib import Path

import networkx as nx
import pytest
from lxml import etree
from rich.console import Console

from apps.cli import top as top_command
from hydra.model import NetworkState, Topology, VlanId
from tests.unit.rest.fake_service import relay_path, ring_state
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def network(service):
    path = relay_path()
    service.network = NetworkState(
        3, Topology(frozenset(path.circuits), (path,)), {path: VlanId(7)}
    )
    return service


# --- topology -------------------------------------------------------------------------------


def test_the_picture_has_every_rack_and_circuit(call, network):
    root = etree.fromstring(call("topology", "--format", "svg").stdout)
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"r1", "r2", "r3", "r4"} <= set(words)
    assert {"p1: 1 circuit", "p2: 1 circuit"} <= set(words)
    tips = {line.findtext(f"{SVG}title") for line in root.iter(f"{SVG}line")} - {None}
    assert len(tips) == 2
    assert any(tip.startswith("r1 =p1= r3: 12.5 of") for tip in tips)


def test_planes_differ_by_more_than_colour(call, network):
    root = etree.fromstring(call("topology", "--format", "svg").stdout)
    lines = [line for line in root.iter(f"{SVG}line") if line.find(f"{SVG}title") is not None]
    assert len({line.get("stroke-dasharray") for line in lines}) == 2


def test_nothing_but_racks_can_be_drawn(call, service):
    root = etree.fromstring(call("topology", "--format", "svg").stdout)
    assert len(list(root.iter(f"{SVG}circle"))) == 4


def test_dot_is_a_graph(call, network):
    text = call("topology", "--format", "dot").stdout
    assert text.startswith("graph ")
    assert '"r1" -- "r3" [label="p1, 12.5 of 2 × 100 Mb/s"' in text
    assert text.rstrip().endswith("}")


def test_one_way_circuits_are_arrows(call, service):
    service.network = ring_state()
    root = etree.fromstring(call("topology", "--format", "svg").stdout)
    lines = [line for line in root.iter(f"{SVG}line") if line.find(f"{SVG}title") is not None]
    heads = list(root.iter(f"{SVG}polygon"))
    tips = [head.findtext(f"{SVG}title") for head in heads]
    assert tips == [line.findtext(f"{SVG}title") for line in lines]
    assert tips[0] == "r1 =p1> r2: 12.5 of 100 Mb/s"
    assert tips[2] == "r3 =p1> r1: 100 Mb/s"
    for line, head in zip(lines, heads, strict=True):
        tip = [float(x) for x in head.get("points").split()[0].split(",")]
        start, end = ([float(line.get(f"{axis}{n}")) for axis in "xy"] for n in (1, 2))
        assert dist(tip, end) == pytest.approx(5, abs=0.2), "it ends at the rack's circle"
        assert dist(tip, start) + dist(tip, end) == pytest.approx(dist(start, end), abs=0.2)


def test_duplex_circuits_have_no_heads(call, network):
    assert "polygon" not in call("topology", "--format", "svg").stdout


def test_dot_of_one_way_circuits_is_a_directed_graph(call, service):
    service.network = ring_state()
    text = call("topology", "--format", "dot").stdout
    assert text.startswith("digraph ")
    assert '"r1" -> "r2" [label="p1, 12.5 of 100 Mb/s"' in text
    assert '"r3" -> "r1" [label="p1, 100 Mb/s"' in text
    assert "--" not in text


def read_back(form, text):
    if form == "graphml":
        graph = nx.parse_graphml(text, force_multigraph=True)
        del graph.graph["node_default"], graph.graph["edge_default"]
        return graph
    return nx.node_link_graph(json.loads(text), edges="edges")


@pytest.mark.parametrize("form", ["graphml", "node-link"])
@pytest.mark.parametrize("one_way", [False, True])
def test_networkx_reads_the_topology_back(call, service, form, one_way):
    path = relay_path()
    duplex = NetworkState(3, Topology(frozenset(path.circuits), (path,)), {path: VlanId(7)})
    service.network = ring_state() if one_way else duplex
    graph = read_back(form, call("topology", "--format", form).stdout)
    whole = service.network.topology.to_networkx(replace(service.fabric, one_way=one_way))
    for rack in whole:
        del whole.nodes[rack]["spine"]  # which the API does not show
    assert nx.utils.graphs_equal(graph, whole)
    assert graph.is_directed() == one_way
    assert graph.number_of_edges() == len(service.network.topology.circuits) > 1


def test_one_way_circuits_in_tables_lead_from_rack_to_rack(call, service):
    service.network = ring_state()
    shown = call("topology").stdout
    assert re.search(r"plane ┃ from ┃ port +┃ to ┃ port", shown)
    assert re.search(r"p1 +│ r3 +│ hyt-r3-p1 +│ r1 +│ hyt-r1-p1", shown)
    assert "r3 =p1> r1" in shown


# --- top ------------------------------------------------------------------------------------


def test_top_shows_load_demand_and_what_is_missing(call, network):
    network.unready = ["vswitch b11", "vswitch b12", "vswitch b21", "vswitch b22"]
    shown = call("top", "--count", "1").stdout
    assert "NOT READY" in shown
    assert "; and 1 more" in shown
    assert "r1 =p1= r3" in shown
    assert "12%" in shown
    assert "by circuits" in shown
    assert "electrically" in shown


def test_top_begins_with_what_is_wrong(call, network):
    shown = " ".join(call("top", "--count", "1").stdout.split())
    assert "ready, NOT HEALTHY: 2 THINGS ARE WRONG" in shown
    assert "no carrier at r1 (r1:hyt-r1-p1); repair the devices; clearing the ports" in shown
    network.quarantined.clear()
    assert "ready, healthy" in call("top", "--count", "1").stdout
    assert json.loads(call("top", "--count", "1", "--json").stdout)["healthy"]


def test_top_tells_the_direction_with_a_circuit_from_that_without(call, service):
    service.network = ring_state()
    shown = call("top", "--count", "1").stdout
    assert "r1 =p1> r2" in shown
    assert "12%" in shown
    assert re.search(r"r1 to r2 +12\.5 +by circuits", shown)
    service.network = ring_state(backwards=True)
    assert re.search(r"r1 to r2 +12\.5 +electrically", call("top", "--count", "1").stdout)


def test_top_prints_each_look_where_there_is_no_terminal(call, network):
    shown = call("top", "--count", "2", "--interval", "0.2").stdout
    assert shown.count("Demand, the largest") == 2


def test_looks_that_are_counted_stay_on_the_screen(call, network, monkeypatch):
    alternate = "\x1b[?1049h"
    monkeypatch.setattr(top_command, "Console", partial(Console, force_terminal=True))
    shown = call("top", "--count", "1").stdout
    assert "Demand, the largest" in shown
    assert alternate not in shown


def test_ctrl_c_ends_a_look_and_a_watch_as_they_say(call, network, monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("apps.cli.top.time.sleep", interrupted)
    assert call("top").exit_code == 0
    monkeypatch.setattr("apps.cli.client.ControllerClient.events", interrupted)
    assert call("watch").exit_code == 0


def test_circuits_are_listed_with_their_load(call, network):
    shown = call("topology").stdout
    assert re.search(r"there ┃ back ┃ of Mb/s", shown)
    assert re.search(r"p1 +│ r1 +│ hyt-r1-p1 +│ r3 +│ hyt-r3-p1 +│ +12\.5 +│ +│ +100\.0", shown)


def test_top_as_json_is_an_object_a_look(call, network):
    result = call("top", "--count", "2", "--interval", "0.2", "--json")
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["ready"]
    assert second["unix_s"] > first["unix_s"]
    assert len(second["topology"]["circuits"]) == 2


def test_top_says_where_nothing_answers(run):
    result = run("top", "--count", "1", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 3


# --- history --------------------------------------------------------------------------------


@pytest.fixture
def past(service):
    for trigger in ("operator", "periodic", "reservation v0"):
        service.reconfigure(None, trigger)
    service.finish("c1")


def test_history_lists_the_latest_with_reasons(call, past):
    result = call("history")
    order = re.findall(r"^│ (c\d)", result.stdout, re.MULTILINE)
    assert order == ["c2", "c1", "c0"]
    assert "keep: gains 1.0 Mb/s, less than 5 Mb/s" in result.stdout


def test_history_counts_circuits_of_changes_with_a_timeline(call, past):
    shown = call("history").stdout
    (ended,) = [line for line in shown.splitlines() if line.startswith("│ c1")]
    others = [line for line in shown.splitlines() if re.match("│ c[02]", line)]
    assert re.search(r"│ \+\d -\d +│", ended)
    assert others
    assert not any("+0 -0" in line for line in others)


def test_history_tells_what_happened_over_restarts(call, service):
    shown = call("history").stdout
    assert "reservation v7 (r1 to r2, 40 Mb/s) is failed: no other path" in shown
    assert shown.index("v7") < shown.index("carrier lost") < shown.index("started")
    later = json.loads(call("history", "--since", "2023-11-14T22:15:00Z", "--json").stdout)
    assert [one["kind"] for one in later["happenings"]] == ["reservation"]


def test_history_is_paged_by_time(call, service):
    """The hint to the next page leads there, and repeats no line."""
    kinds, page = [], ["history", "--limit", "1"]
    while page:
        kinds += [one["kind"] for one in json.loads(call(*page, "--json").stdout)["happenings"]]
        more = re.search(
            r"and more before: hydra (history --before \S+)$", call(*page).stdout, re.M
        )
        page = [*more[1].split(), "--limit", "1"] if more else []
    assert kinds == ["reservation", "quarantine", "controller"]
    assert "--since 2023-11-14" in call("history", "--since", "2023-11-14", "--limit", "1").stdout
    span = ("--since", "2023-11-14T22:14:00Z", "--before", "2023-11-14T22:15:00Z")
    between = json.loads(call("history", *span, "--json").stdout)
    assert [one["kind"] for one in between["happenings"]] == ["quarantine"]


def test_moments_in_sentences_have_the_form_and_zone_of_all_others(call, service, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Athens")
    time.tzset()
    try:
        told = call("history").stdout, call("explain", "circuit", "r1", "r2").stdout
        status = call("status").stdout
    finally:
        monkeypatch.undo()
        time.tzset()
    assert all("2023-11-15 00:13:20 EET keep: gains" in one for one in told)
    assert "r1:hyt-r1-p1 is on trial, since 2023-11-15 00:13:20 EET" in told[1]
    assert not any(re.search(r"\d\dZ\b", one) for one in (*told, status))


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--state", "partial"], ["c1"]),
        (["--trigger", "reservation"], ["c2"]),
        (["--limit", "1"], ["c2"]),
        (["--state", "done", "--state", "queued"], ["c2", "c0"]),
    ],
)
def test_history_can_be_narrowed(call, past, options, ids):
    document = json.loads(call("history", "--json", *options).stdout)
    assert [one["id"] for one in document["reconfigurations"]] == ids


def test_one_is_drawn_by_substep_to_scale(call, past):
    lines = call("history", "c1").stdout.splitlines()
    (whole,) = [line for line in lines if "divert" in line and "all" in line]
    (device,) = [line for line in lines if "h11" in line and "2 rules" in line]
    assert whole.count("━") == 60  # 0 to 4.5 ms, which is all of it
    assert device.count("━") == 52  # 3.9 of 4.5 ms


def test_an_unknown_one_is_refused(call):
    result = call("history", "c9")
    assert result.exit_code == 1
    assert "no reconfiguration 'c9'" in result.stderr


# --- completion and manual ------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(run, shell):
    script = run("completion", shell).stdout
    assert "_HYDRA_COMPLETE" in script


def test_bash_completes_commands():
    """As requested by its script."""
    done = subprocess.run(
        [Path(sys.executable).with_name("hydra")],
        env={"_HYDRA_COMPLETE": "bash_complete", "COMP_WORDS": "hydra re", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    names = {line.split(",")[1] for line in done.stdout.splitlines()}
    assert {"reconfigure", "reload", "reserve", "restore"} <= names


def test_every_command_has_a_manual_page(tmp_path):
    subprocess.run(
        [sys.executable, "scripts/man_pages.py", tmp_path],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        check=True,
        timeout=PATIENCE_S,
    )
    pages = {path.name for path in tmp_path.iterdir()}
    assert {"hydra.1", "hydra-top.1", "hydra-backup.1", "hydra-quarantine-clear.1"} <= pages
    assert ".TH" in (tmp_path / "hydra-top.1").read_text()


def test_devices_with_their_alarms(call):
    text = call("devices").stdout
    assert "major LOS at port 3: no light at the input" in text
    assert "never connected" in text
    down = json.loads(call("devices", "--down", "--json").stdout)["devices"]
    assert [one["name"] for one in down] == ["p1", "h42"]


def test_the_policy_in_force(call):
    text = call("policy").stdout
    assert "policy.epoch_s" in text
    assert re.search(r"policy.epoch_s .*│ --set or reload ", text)
    assert re.search(r"policy.transition .*│ reload ", text)
    assert re.search(r"policy.max_hops .*│ next start ", text)
    assert json.loads(call("policy", "--json").stdout)["values"][0]["key"] == "policy.mode"
    text = call("policy", "--set", "epoch_s=30", "--set", "policy.on_drift=report").stdout
    assert re.search(r"policy.epoch_s +│ 30.0 ", text)
    assert re.search(r"policy.on_drift +│ report ", text)
    assert text.count("policy.") == 2, "the others stay as they are"
    text = call("policy", "--set", "drain.reads=7", "--set", "policy.drain.bound_ms=9").stdout
    assert re.search(r"policy.drain.reads +│ 7 ", text)
    assert re.search(r"policy.drain.bound_ms +│ 9.0 ", text)
    assert call("policy", "--set", "drain=1", "--set", "drain.reads=7").exit_code == 2
    assert "max_hops" in call("policy", "--set", "max_hops=2").stderr
    assert call("policy", "--set", "epoch_s").exit_code == 2
    for number in ("NaN", "Infinity", "1e400"):
        refused = call("policy", "--set", f"epoch_s={number}")
        assert refused.exit_code == 1
        assert "/epoch_s: must be a valid number, not " in refused.stderr
