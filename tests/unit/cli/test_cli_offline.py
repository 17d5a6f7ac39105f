"""``hydra plan --fabric``: plans from files, without a controller."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import networkx as nx
import pytest
import yaml

from apps.cli import offline
from tests.waiting import PATIENCE_S
from topology.algorithms import ENTRIES, Entry, Product

from . import CONFIGS, DEMO

pytestmark = pytest.mark.takes(8)

REFERENCE = CONFIGS / "reference.yaml"


def test_a_plan_for_a_configuration_and_a_file(run, tmp_path):
    flows = tmp_path / "flows.csv"
    flows.write_text("src,dst,mbps\nr1,r2,80\nr2,r1,10\nr3,r4,5\n")
    result = run("plan", "--fabric", str(DEMO), "--demand", str(flows), "--check")
    assert result.exit_code == 0, result.output
    assert "hydra-bfs: multi-hop circuits" in result.stdout
    assert "2 of 2; the rest stays electrical" in result.stdout
    assert "r1 =p1= r2" in result.stdout
    assert "passed" in result.stdout


def test_json_has_everything(run, tmp_path):
    path = tmp_path / "demand.json"
    path.write_text("[[0, 60, 60], [0, 0, 60], [0, 0, 0]]")
    result = run("plan", "--fabric", "3x1@100", "--demand", str(path), "--check", "--json")
    document = json.loads(result.stdout)
    assert document["algorithm"] == "anytime"
    assert document["served_share"] == pytest.approx(1 / 3)
    assert document["served_share_bound"] == pytest.approx(90 / 180)
    assert document["unserved"] == [{"src": "r1", "dst": "r3"}, {"src": "r2", "dst": "r3"}]
    (its_path,) = document["paths"]
    assert (its_path["src"], its_path["dst"], its_path["vlan"]) == ("r1", "r2", 2)
    (circuit,) = document["circuits"]
    assert circuit["a"] == {"rack": "r1", "port": "o1"}
    assert document["problems"] == []
    assert document["slots"] == []


def test_the_shortest_window_of_a_schedule(run):
    """Two pairs in turn on one plane: 400 ms of light, and two nights of 25 ms."""
    wants = ("--demand", "r1:r2=20", "--demand", "r1:r3=20")
    arguments = ("plan", "--fabric", "3x1@100", *wants, "--makespan")
    document = json.loads(run(*arguments, "--algorithm", "by-plane", "--json").stdout)
    assert document["makespan"]["least_ms"] == pytest.approx(450.0)
    assert document["makespan"]["window_ms"] == pytest.approx(450.0, rel=0.003)
    assert {slot["lane"] for slot in document["slots"]} == {0}
    shown = run(*arguments, "--algorithm", "by-plane").stdout
    assert "no schedule in less than  450.0 ms" in shown
    compared = json.loads(run(*arguments, "--compare", "--json").stdout)["plans"]
    found = {plan["algorithm"]: plan["makespan"] for plan in compared}
    assert found["anytime"] is None
    assert found["solstice"]["window_ms"] >= 450.0


def test_demand_adds_up_and_limits_hold(run):
    arguments = ("plan", "--fabric", "4x2@100", "--json", "--demand", "r1:r2=5")
    document = json.loads(run(*arguments, "--demand", "r1:r2=6", "--use-plane", "p2").stdout)
    assert document["demand_mbps"] == 11
    assert [c["plane"] for c in document["circuits"]] == ["p2"]
    document = json.loads(run(*arguments, "--rack", "r3", "--plane", "p1").stdout)
    assert document["unserved"] == [{"src": "r1", "dst": "r2"}]
    heavy = json.loads(run(*arguments, "--demand", "r1:r3=500", "--weighted").stdout)
    assert heavy["unserved"] == [{"src": "r1", "dst": "r3"}]


def test_the_seed_decides_what_is_made_up(run):
    def served(seed):
        arguments = ("plan", "--fabric", "12x2", "--demand", "gravity", "--seed", seed, "--json")
        return json.loads(run(*arguments).stdout)["served_share"]

    assert served("3") == served("3") != served("4")


def test_all_algorithms_are_compared(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    plot = tmp_path / "compared.svg"
    arguments = ("plan", "--fabric", "8x2", "--demand", "uniform", "--compare", "--check")
    result = run(*arguments, "--plot", str(plot))
    assert result.exit_code == 0, result.output
    for name in ENTRIES:
        assert name in result.stdout
    assert "<svg" in plot.read_text()
    assert "best possible" in " ".join(result.stdout.split())
    rows = [[cell.strip() for cell in line.split("│")] for line in result.stdout.splitlines()]
    (helios,) = (row for row in rows if "helios" in row)
    assert helios.count("–") == 2, "hops and circuits of a plan of light paths"
    documents = json.loads(run(*arguments, "--json", "--explain", "r1", "r2").stdout)["plans"]
    assert [document["algorithm"] for document in documents] == list(ENTRIES)
    assert all(document["refused"] or document["explanation"] for document in documents)


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_a_plan_is_drawn(run, tmp_path, ending):
    plot = tmp_path / f"plan.{ending}"
    assert run("plan", "--fabric", "4x1", "--demand", "dense", "--plot", str(plot)).exit_code == 0
    assert plot.read_bytes()[:4] in {b"\x89PNG", b"%PDF"}


def test_a_plot_that_can_not_be_written_is_told(run, tmp_path):
    plot = tmp_path / "plan.odd"
    result = run("plan", "--fabric", "4x1", "--demand", "dense", "--plot", str(plot))
    assert result.exit_code == 1
    assert "plan.odd can't be written" in result.stderr


# --- why ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fabric", "demand", "pair", "words"),
    [
        ("3x1@100", ("r1:r2=80",), ("r1", "r2"), ["joined over 1 hop on VLAN 2; 80.0 Mb/s"]),
        ("3x1@100", ("r1:r2=80",), ("r2", "r3"), ["want nothing of each other", "no demand"]),
        (
            "3x1@100",
            ("r1:r2=80", "r1:r3=5"),
            ("r3", "r1"),
            ["1 of 2 pairs want more", "not joined", "r1: 1 of 1 ports in use, towards r2 (80.0)"],
        ),
        ("3x0", ("r1:r2=80",), ("r1", "r2"), ["r1 has no port on a plane"]),
        (
            "3x2@100",
            ("r1:r2=90", "r1:r3=80", "r2:r3=15", "--max-hops=2"),
            ("r2", "r3"),
            [
                "joined over 2 hops",
                "10.0 Mb/s of the demand fit",
                "r3: 1 of 2 ports in use, towards r1",
            ],
        ),
        (
            "3x2@100",
            ("r1:r2=90", "r1:r3=80", "--use-plane=p1"),
            ("r1", "r3"),
            ["no plane of 1 in common has free ports", "do not join them"],
        ),
        ("4x2@100", ("r1:r2=9", "--rack=r3"), ("r1", "r2"), ["r1 is not among the racks"]),
        (
            "4x4@100",
            ("r1:r2=180", "r2:r3=180", "r3:r4=180", "r4:r1=180", "--paths-per-pair=1"),
            ("r1", "r2"),
            [
                "no circuit at all on p3, p4",
                "r1 and r2 want 80.0 Mb/s more and have free ports on p3, p4: "
                "--paths-per-pair 2 lets them have one more circuit",
            ],
        ),
        (
            "4x5@100",
            ("r1:r2=180", "r2:r3=180", "r3:r4=180", "r4:r1=180"),
            ("r1", "r2"),
            ["joined by 2 paths", "all demand is served without them"],
        ),
        (
            "2x4@100",
            ("r1:r2=250", "--algorithm=hydra-bfs"),
            ("r1", "r2"),
            ["no circuit at all on p2, p3, p4", "--paths-per-pair 2 lets them"],
        ),
    ],
)
def test_explanations(run, fabric, demand, pair, words):
    options = [part for part in demand if part.startswith("--")]
    demands = [part for part in demand if not part.startswith("--")]
    arguments = [x for part in demands for x in ("--demand", part)]
    result = run("plan", "--fabric", fabric, *arguments, *options, "--explain", *pair)
    assert result.exit_code == 0, result.output
    for phrase in words:
        assert phrase in result.stdout


def test_a_path_of_several_hops_and_full_circuits_are_explained(run, tmp_path):
    document = yaml.safe_load(DEMO.read_text())
    (wiring,) = document["wiring"]
    chain = [("r[1-2]", "p1"), ("r[2-3]", "p2")]
    document["wiring"] = [wiring | {"racks": racks, "planes": plane} for racks, plane in chain]
    config = tmp_path / "chain.yaml"
    config.write_text(yaml.safe_dump(document))
    demand = ("--demand", "r1:r2=50", "--demand", "r2:r3=60", "--demand", "r1:r3=40")
    arguments = ("plan", "--fabric", str(config), *demand, "--explain", "r1", "r3")
    result = run(*arguments)
    assert "joined over 2 hops on VLAN 100; 40.0 Mb/s" in result.stdout, result.output
    assert "shared with 1 other pair, 10.0 Mb/s left" in result.stdout
    assert "no direct circuit: the racks have no plane in common" in result.stdout
    short = run(*arguments, "--max-hops", "1")
    assert "the plan's circuits join them over 2 hops, more than 1" in short.stdout
    full = run(*arguments, "--demand", "r2:r3=40")
    assert "2 hops would do, but the circuits on the way are full" in full.stdout


def test_several_paths_of_a_pair_are_shown_checked_and_explained(run):
    arguments = ("plan", "--fabric", "2x4@100", "--demand", "r1:r2=250", "--paths-per-pair", "3")
    result = run(*arguments, "--check", "--explain", "r1", "r2")
    assert result.exit_code == 0, result.output
    for words in (
        "1 pair with 3",
        "100.0 % of the demand",
        "joined by 3 paths; 250.0",
    ):
        assert words in result.stdout
    document = json.loads(run(*arguments, "--json").stdout)
    assert [(p["src"], p["dst"]) for p in document["paths"]] == [("r1", "r2")] * 3
    assert len({p["vlan"] for p in document["paths"]}) == document["vlans"] == 3


def test_what_the_configuration_says_of_several_paths_holds_unless_told_otherwise(run, tmp_path):
    document = yaml.safe_load(DEMO.read_text())
    document.setdefault("policy", {}).update(algorithm="hydra-bfs+", paths_per_pair=2)
    configured = tmp_path / "fabric.yaml"
    configured.write_text(yaml.safe_dump(document))
    arguments = ("plan", "--fabric", str(configured), "--demand", "r1:r2=180", "--json")
    assert len(json.loads(run(*arguments).stdout)["paths"]) == 2
    assert len(json.loads(run(*arguments, "--paths-per-pair", "1").stdout)["paths"]) == 1


def test_a_plan_starts_from_what_stands(run, tmp_path):
    now = tmp_path / "now.json"
    arguments = ("plan", "--fabric", "4x2@100", "--check", "--demand")
    now.write_text(run(*arguments, "r1:r2=80", "--demand", "r3:r4=50", "--json").stdout)
    same = run(*arguments, "r1:r2=60", "--demand", "r4:r3=5", "--current", str(now), "--json")
    document = json.loads(same.stdout)
    assert (document["connect"], document["disconnect"], document["problems"]) == (0, 0, [])
    assert document["paths"] == json.loads(now.read_text())["paths"]
    moved = run(*arguments, "r1:r3=60", "--current", str(now), "--use-plane", "p2")
    assert "1 (+1 -2)" in moved.stdout, moved.output
    kept = run(*arguments, "r1:r3=60", "--current", str(now), "--algorithm", "static")
    assert "2 (+0 -0)" in kept.stdout, kept.output
    crowd = (*arguments, "r1:r2=80", "--demand", "r1:r3=100", "--use-plane", "p1", "--current")
    moved = run(*crowd, str(now))
    assert "1 (+1 -2)" in moved.stdout, moved.output
    cautious = run(*crowd, str(now), "--disturbance-mbps", "60")
    assert "1 (+0 -1)" in cautious.stdout, cautious.output
    partial = run(*arguments, "r1:r3=60", "--current", str(now), "--plane", "p2", "--json")
    assert json.loads(partial.stdout)["disconnect"] == 0


HOP = {"from_rack": "r2", "from_port": "o1", "to_rack": "r1", "to_port": "o1"}
ENDS = {"a": {"rack": "r1", "port": "o1"}, "b": {"rack": "r2", "port": "o1"}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[" * 30_000, "is not JSON: values are nested more than 64 levels deep"),
        ("[]", "is no topology as `hydra topology --json` prints it: it:"),
        ('{"circuits": [{"a": 5}], "paths": []}', "circuits.0.a"),
        (json.dumps({"circuits": [], "paths": [{"vlan": 5, "hops": []}]}), "paths.0.hops"),
        (json.dumps({"circuits": [], "paths": [{"vlan": 5, "hops": [HOP]}]}), "can't stand: path"),
        (json.dumps({"circuits": [ENDS], "paths": [{"vlan": 1, "hops": [HOP]}]}), "VLAN 1 of path"),
        (json.dumps({"circuits": [ENDS | {"b": ENDS["a"]}], "paths": []}), "to itself"),
        (
            json.dumps({"circuits": [ENDS], "paths": [{"vlan": v, "hops": [HOP]} for v in (7, 8)]}),
            "the path r2:o1 - r1:o1 is there twice, with VLANs 7 and 8",
        ),
        (
            json.dumps({"circuits": [ENDS | {"b": {"rack": "r2", "port": "o9"}}], "paths": []}),
            "rack r2 has no optical port o9",
        ),
    ],
)
def test_what_is_no_topology_is_told(run, tmp_path, text, words):
    path = tmp_path / "now.json"
    path.write_text(text)
    arguments = ("plan", "--fabric", "2x1", "--demand", "dense", "--current")
    result = run(*arguments, str(path))
    assert result.exit_code == 1
    assert words in result.stderr
    assert "now.json" in result.stderr
    assert "can't be read" in run(*arguments, str(tmp_path / "none.json")).stderr


def test_a_path_may_be_written_from_either_end(run, tmp_path):
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"circuits": [ENDS], "paths": [{"vlan": 7, "hops": [HOP]}]}))
    result = run("plan", "--fabric", "2x1", "--demand", "dense", "--current", str(path), "--json")
    (kept,) = json.loads(result.stdout)["paths"]
    assert (kept["src"], kept["dst"], kept["vlan"]) == ("r1", "r2", 7)


# --- one-way circuits -----------------------------------------------------------------------


ONE_WAY = CONFIGS / "one-way.yaml"
"""Four racks on two planes of 100 Mb/s."""


def test_one_way_circuits_are_planned_in_rings_and_say_where_they_lead(run):
    demand = ("--demand", "r1:r2=80", "--demand", "r2:r3=150", "--demand", "r3:r1=20")
    result = run("plan", "--fabric", str(ONE_WAY), *demand, "--check")
    assert result.exit_code == 0, result.output
    for words in ("3 of 3; the rest", "1 of the circuits, without any demand", "r1 =p1> r2"):
        assert words in result.stdout
    assert "1 pair with 2" in result.stdout, "both planes lead from r2 to r3"
    document = json.loads(
        run("plan", "--fabric", str(ONE_WAY), *demand, "--check", "--json").stdout
    )
    assert document["problems"] == document["slots"] == document["unserved"] == []
    assert document["served_share"] == 1
    assert all(one["one_way"] for one in [*document["circuits"], *document["paths"]])
    for plane in ("p1", "p2"):
        ends = [(c["a"], c["b"]) for c in document["circuits"] if c["plane"] == plane]
        senders, receivers = ([end[at]["port"] for end in ends] for at in (0, 1))
        assert sorted(senders) == sorted(receivers), "every port that sends is lit"


def test_a_plan_of_one_way_circuits_starts_from_what_stands(run, tmp_path):
    now = tmp_path / "now.json"
    arguments = ("plan", "--fabric", str(ONE_WAY), "--check", "--demand")
    now.write_text(run(*arguments, "r2:r1=80", "--demand", "r1:r2=150", "--json").stdout)
    again = (*arguments, "r2:r1=80", "--demand", "r1:r2=150", "--current", str(now))
    same = json.loads(run(*again, "--json").stdout)
    assert (same["connect"], same["disconnect"], same["problems"]) == (0, 0, [])
    assert same["paths"] == json.loads(now.read_text())["paths"]
    assert len(same["paths"]) == 4
    moved = run(*arguments, "r1:r3=10", "--plane", "p1", "--current", str(now))
    assert "4 (+2 -2)" in moved.stdout, moved.output
    broken = json.loads(now.read_text())
    broken["circuits"] = broken["circuits"][1:]
    now.write_text(json.dumps(broken))
    assert "sends and has no light" in run(*again).stderr


# --- graphs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fabric", [DEMO, ONE_WAY])
def test_a_plan_is_read_back_by_networkx(run, tmp_path, fabric):
    demand = ("--demand", "r1:r2=80", "--demand", "r2:r3=150", "--demand", "r3:r1=20")
    for name in ("plan.graphml", "plan.json"):
        result = run("plan", "--fabric", str(fabric), *demand, "--graph", str(tmp_path / name))
        assert result.exit_code == 0, result.output
    graph = nx.read_graphml(tmp_path / "plan.graphml", force_multigraph=True)
    del graph.graph["node_default"], graph.graph["edge_default"]
    document = json.loads((tmp_path / "plan.json").read_text())
    assert nx.utils.graphs_equal(graph, nx.node_link_graph(document, edges="edges"))
    assert graph.is_directed() == (fabric == ONE_WAY)
    assert dict(graph.nodes(data="spine")) == dict.fromkeys(("r1", "r2", "r3", "r4"), False)
    plan = json.loads(run("plan", "--fabric", str(fabric), *demand, "--json").stdout)
    planned = [
        (c["plane"], c["a"]["rack"], c["a"]["port"], c["b"]["rack"], c["b"]["port"], c["rate_mbps"])
        for c in plan["circuits"]
    ]
    edges = [tuple(edge.values()) for _, _, edge in graph.edges(data=True)]
    assert sorted(edges) == sorted(planned) != []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--graph", "{here}/plan.gexf"), 2, "plan.gexf must end in .graphml or .json"),
        (("--graph", "{here}/no-such-folder/plan.json"), 1, "plan.json can't be written: No such"),
        (("--graph", "{here}/plan.json", "--compare"), 2, "--graph draws a single plan"),
        (("--graph", "{here}/plan.json", "--algorithm", "tms"), 1, "tms plans one-way light paths"),
    ],
)
def test_graphs_that_can_not_be_written(run, tmp_path, arguments, code, words):
    given = [text.format(here=tmp_path) for text in arguments]
    result = run("plan", "--fabric", str(DEMO), "--demand", "r1:r2=80", *given)
    assert result.exit_code == code
    assert words in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_graph_is_of_a_plan_from_files(run, tmp_path):
    result = run("plan", "--demand", "r1:r2=80", "--graph", str(tmp_path / "plan.json"))
    assert result.exit_code == 2
    assert "--graph plans from files: add --fabric" in result.stderr


def test_what_can_not_stand_beside_one_way_circuits_is_not_compared(run):
    arguments = ("plan", "--fabric", str(ONE_WAY), "--demand", "r1:r2=80")
    refused = run(*arguments, "--algorithm", "hydra-bfs")
    assert refused.exit_code == 1
    assert "the algorithm plans no one-way light paths" in refused.stderr
    assert "choose b-matching or helios" in refused.stderr
    compared = run(*arguments, "--compare", "--check", "--json", "--explain", "r1", "r2")
    assert compared.exit_code == 0, compared.output
    made = {one["algorithm"]: one for one in json.loads(compared.stdout)["plans"]}
    for name, one in made.items():
        assert bool(one["refused"]) == (ENTRIES[name].product is Product.CIRCUITS)
    assert len(made["b-matching"]["circuits"]) == 2
    assert len(made["tms"]["slots"]) == 1


@pytest.mark.parametrize(
    ("demands", "options", "words"),
    [
        (
            ("r2:r1=80", "r1:r2=0"),
            (),
            [
                "r1 to r2 0.0 Mb/s: 1 circuit; 0.0 Mb/s of the demand fit",
                "the circuit closes a ring and lights the sender of r2:hyt-r2-p1 =p1> r1:",
                "r2 to r1 80.0 Mb/s: 1 circuit; 80.0 Mb/s of the demand fit",
                "r2:hyt-r2-p1 =p1> r1:hyt-r1-p1 on VLAN 100: 100 Mb/s, 20.0 Mb/s left",
            ],
        ),
        (
            ("r1:r3=80", "r1:r2=5", "r3:r2=10"),
            ("--use-plane=p1",),
            [
                "r1 to r2 5.0 Mb/s: no circuit: the traffic stays electrical",
                "r1: 1 of 1 ports in use; the rack sends to r3 (80.0)",
                "r2: 1 of 1 ports in use; the rack is lit by r3 (10.0)",
            ],
        ),
        (("r1:r2=250",), (), ["250.0 Mb/s: 2 circuits; 200.0 Mb/s of the demand fit"]),
        (("r1:r3=80",), (), ["r1 to r2 0.0 Mb/s: no circuit\n"]),
        (
            ("r1:r2=9",),
            ("--rack=r3",),
            ["the traffic stays electrical\n    r1 is not among the racks"],
        ),
    ],
)
def test_one_way_circuits_are_explained(run, demands, options, words):
    arguments = [x for part in demands for x in ("--demand", part)]
    result = run("plan", "--fabric", str(ONE_WAY), *arguments, *options, "--explain", "r1", "r2")
    assert result.exit_code == 0, result.output
    for phrase in words:
        assert phrase in result.stdout


def test_a_plan_of_one_way_circuits_is_drawn(run, tmp_path):
    plot = tmp_path / "plan.png"
    result = run("plan", "--fabric", str(ONE_WAY), "--demand", "r1:r2=80", "--plot", str(plot))
    assert result.exit_code == 0, result.output
    assert plot.read_bytes()[:4] == b"\x89PNG"


# --- spines ---------------------------------------------------------------------------------


def with_spine(tmp_path):
    """r1 and r2 have a plane each; the spine has both."""
    document = yaml.safe_load(DEMO.read_text())
    (racks,) = document["racks"]
    spine = {"names": "s1", "kind": "spine", "tor": racks["tor"]}
    document["racks"] = [racks | {"names": "r[1-2]"}, spine]
    (wiring,) = document["wiring"]
    ends = [("[r1,s1]", "p1"), ("[r2,s1]", "p2")]
    document["wiring"] = [wiring | {"racks": racks, "planes": plane} for racks, plane in ends]
    config = tmp_path / "spine.yaml"
    config.write_text(yaml.safe_dump(document))
    return config, document


def test_paths_run_through_a_spine(run, tmp_path):
    config, _ = with_spine(tmp_path)
    assert run("check", str(config)).exit_code == 0
    result = run("plan", "--fabric", str(config), "--demand", "r1:r2=50", "--check")
    assert "r1 =p1= s1 =p2= r2" in result.stdout, result.output
    refused = run("plan", "--fabric", str(config), "--demand", "r1:s1=50")
    assert refused.exit_code == 1
    assert "s1 is a spine" in refused.stderr


def test_a_spine_has_no_servers_and_a_rack_has_some(run, tmp_path):
    config, document = with_spine(tmp_path)
    rack, spine = document["racks"]
    document["racks"] = [
        {key: value for key, value in rack.items() if key != "servers"},
        spine | {"prefixes": ["10.0.9.0/24"]},
    ]
    config.write_text(yaml.safe_dump(document))
    result = run("check", str(config))
    assert result.exit_code == 1
    assert "racks[0].servers: needs at least one entry" in result.stderr
    assert "racks[1].prefixes: a spine has no servers" in result.stderr


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fabric", "4x1"), "add --demand"),
        (("--compare",), "--compare plans from files: add --fabric"),
        (("--seed", "4"), "--seed plans from files"),
        (("--fabric", "4x1", "--demand", "dense", "--only-if-it-pays"), "not with --fabric"),
        (("--fabric", "4x1", "--demand", "dense", "--url", "http://x"), "not with --fabric"),
        (
            ("--fabric", "4x1", "--demand", "dense", "--compare", "--algorithm", "static"),
            "leave out --algorithm",
        ),
        (("--fabric", "4x1", "--demand", "r1-r2"), "neither SRC:DST=MBPS, such as"),
        (("--fabric", "4x1", "--demand", "d.xls"), "a file, whose name ends in .csv, .tsv"),
        (
            ("--fabric", "4x1", "--demand", "dense", "--weighted", "--paths-per-pair", "2"),
            "leave out --paths-per-pair",
        ),
        (("--fabric", "4x1", "--demand", "dense", "--load", "0"), "--load"),
        (("--fabric", "4x1", "--demand", "dense", "--max-hops", "0"), "--max-hops"),
        (("--fabric", "4x1", "--demand", "dense", "--budget-ms", "nan"), "--budget-ms"),
    ],
)
def test_wrong_usage(run, arguments, words):
    result = run("plan", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fabric", "none.yaml", "--demand", "dense"), "none.yaml: can't be read"),
        (("--fabric", "y" * 5000, "--demand", "dense"), "y: can't be read: File name too long"),
        (("--fabric", f"4x1@{'1' * 5000}", "--demand", "dense"), "a rate of inf Mbps"),
        (("--fabric", f"{'1' * 5000}x1", "--demand", "dense"), "File name too long"),
        (("--fabric", "4x1", "--demand", "d" * 5000), "'dd"),
        (("--fabric", "0x1", "--demand", "dense"), "0 racks on 1 planes"),
        (("--fabric", "9x5000", "--demand", "dense"), "up to 4096"),
        (("--fabric", "4x1@0", "--demand", "dense"), "a rate of 0.0 Mbps"),
        (("--fabric", "4x1@1e999", "--demand", "dense"), "a rate of inf Mbps"),
        (("--fabric", "4x1@1.2.3", "--demand", "dense"), "'1.2.3' is not a rate"),
        (("--fabric", "4x1", "--demand", "dens"), "'dens' is neither a file nor a kind of demand"),
        (("--fabric", "4x1", "--demand", "none.csv"), "none.csv can't be read"),
        (("--fabric", "4x1", "--demand", "r1:r9=5"), "no rack 'r9' in fabric 4x1"),
        (("--fabric", "4x1", "--demand", "r1:r1=5"), "r1 to itself"),
        (("--fabric", "4x1", "--demand", "dense", "--plane", "p9"), "no plane 'p9'"),
        (("--fabric", "4x1", "--demand", "dense", "--rack", "r9"), "no rack 'r9'"),
        (("--fabric", "4x1", "--demand", "dense", "--algorithm", "hdyra"), "choose one of"),
        (("--fabric", "4x1", "--demand", "dense", "--explain", "r1", "r1"), "name two racks"),
        (("--fabric", "4x1", "--demand", "dense", "--window-ms", "10"), "must be longer"),
    ],
)
def test_what_can_not_be_planned_is_told(run, arguments, words):
    result = run("plan", *arguments)
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_a_fabric_that_an_algorithm_can_not_plan_for(run, monkeypatch):
    fussy = replace(ENTRIES["static"], objection=lambda _fabric: "its racks differ")
    monkeypatch.setattr("apps.offline.study.entry", lambda _name: fussy)
    result = run("plan", "--fabric", "4x1", "--demand", "dense", "--algorithm", "static")
    assert result.exit_code == 1
    assert "static can't plan for this fabric: its racks differ" in result.stderr
    compared = run("plan", "--fabric", "4x1", "--demand", "dense", "--compare")
    assert compared.exit_code == 0
    assert "its racks differ" in compared.stdout


def test_a_check_that_fails_is_told_and_ends_in_1(run, monkeypatch):
    honest = ENTRIES["hydra-bfs"]

    def boast(*arguments):
        return replace(honest.plan(*arguments), served_share=0.999)

    boaster = Entry(boast, "claims too much", "", Product.CIRCUITS)
    monkeypatch.setattr("apps.offline.study.entry", lambda _name: boaster)
    arguments = ("plan", "--fabric", "4x1@100", "--demand", "dense", "--load", "0.9")
    assert run(*arguments).exit_code == 0
    result = run(*arguments, "--check")
    assert result.exit_code == 1
    assert "anytime: 0.999000 of the demand is claimed served" in result.stderr


def test_a_file_for_the_controller(call, service, tmp_path):
    flows = tmp_path / "flows.csv"
    flows.write_text("src,dst,mbps\nr1,r2,80\n0,1,1\nr2,r1,1.5\n")
    result = call("plan", "--demand", str(flows), "--demand", "r1:r2=4", "--use-plane", "p2")
    assert result.exit_code == 0, result.output
    (request,) = service.plan_requests
    assert (request.demand[0, 1], request.demand[1, 0], request.demand.sum()) == (85, 1.5, 86.5)
    assert request.use_planes == {1}
    assert call("reconfigure", "--demand", str(flows), "--use-plane", "p1").exit_code == 0
    assert service.plan_requests[1].use_planes == {0}
    flows.with_suffix(".json").write_text("[[0,1,2,3],[4,0,5,6],[7,8,0,9],[1,2,3,0]]")
    assert call("plan", "--demand", str(flows.with_suffix(".json"))).exit_code == 0
    assert service.plan_requests[2].demand.tolist()[2] == [7, 8, 0, 9]
    assert call("plan", "--demand", "gravity").exit_code == 2
    capitals = flows.rename(tmp_path / "FLOWS.CSV")
    assert call("plan", "--demand", str(capitals)).exit_code == 0
    missing = call("plan", "--demand", str(tmp_path / "none.csv"))
    assert missing.exit_code == 1
    assert "none.csv can't be read" in missing.stderr


# --- patience -------------------------------------------------------------------------------

STUCK = """
import time
from dataclasses import replace
from apps.offline import study
from apps.cli import main
from topology.algorithms import ENTRIES
def stuck(*_):
    while True:
        sum(range(100_000_000))  # deaf to Python's own KeyboardInterrupt while it sums
study.entry = lambda name: replace(ENTRIES[name], plan=stuck)
main()
"""


def test_slow_plans_say_so_and_ctrl_c_ends_them_at_once():
    command = [sys.executable, "-c", STUCK, "plan", "--fabric", "4x1", "--demand", "dense"]
    process = subprocess.Popen(
        command, cwd=CONFIGS.parent, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    try:
        assert "planning with anytime (1 of 1)" in process.stderr.readline()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == -signal.SIGINT  # a shell says 130
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stderr.close()
        process.wait()


INTERRUPTED = """
import os, signal, sys
from apps.cli import main

class Presses:
    def find_spec(self, name, path=None, target=None):
        if name == "apps.cli.offline":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Presses())
main()
"""


def test_ctrl_c_while_the_planner_is_loaded_ends_it_in_the_same_way():
    command = [sys.executable, "-c", INTERRUPTED, "plan", "--fabric", "4x1", "--demand", "dense"]
    ended = subprocess.run(
        command, cwd=CONFIGS.parent, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")  # a shell says 130


def test_ctrl_c_is_pythons_again_afterwards(run):
    before = signal.getsignal(signal.SIGINT)
    assert run("plan", "--fabric", "4x1", "--demand", "dense").exit_code == 0
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("source", ["options", "file"])
def test_demand_that_adds_up_to_no_number_is_refused_without_a_warning(run, tmp_path, source):
    flows = tmp_path / "flows.csv"
    flows.write_text("src,dst,mbps\n0,1,1e308\n0,1,1e308\n")
    demand = {
        "options": ("--demand", "r1:r2=1e308", "--demand", "r1:r2=1e308"),
        "file": ("--demand", str(flows)),
    }[source]
    result = run("plan", "--fabric", "4x1", *demand)
    assert result.exit_code == 1
    assert "Mbps: entries must be finite" in result.stderr, result.exception


def test_what_is_quick_says_nothing(run):
    assert run("plan", "--fabric", "4x1", "--demand", "dense").stderr == ""
    assert offline.ENTRIES is ENTRIES
