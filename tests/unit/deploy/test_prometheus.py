"""deploy/prometheus and deploy/grafana, checked by Prometheus itself."""

import contextlib
import json
import re
import subprocess
from itertools import product
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from apps.controller import auditor, planning_loop, slots
from apps.process.configuration import load_configuration
from apps.process.metrics import TRIGGERS, Metrics
from apps.process.worker_list import SessionEnd
from apps.rest.app import create_app
from apps.rest.resources import reconfigurations
from apps.rest.server import RestServer
from hydra.failures import FailureKind
from hydra.lifecycle import ReconfigurationState
from hydra.reconfiguration import commands
from hydra.reconfiguration.executor import STEPS
from hydra.reconfiguration.gate import GATE
from hydra.service import Reconfiguration
from mininet_scenarios import plain_http
from mininet_scenarios.emulators.ports import free_port
from tests.prometheus import BIN, DEPLOY, ask, scraping
from tests.unit.cli.test_cli_schedule import week_of
from tests.unit.rest.fake_service import FakeService
from tests.unit.rest.fake_workers import FakeWorkers
from tests.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[3]
NAMES = re.compile(r"\b(?:hydra|process)_\w+")


def promtool(*arguments):
    return subprocess.run(
        [BIN / "promtool", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=DEPLOY / "prometheus",
    )


@pytest.fixture(scope="module")
def controller():
    """The metrics page that Prometheus scrapes."""
    fabric = load_configuration(ROOT / "configs" / "demo.yaml").fabric
    service = FakeService(fabric)
    service.week = week_of(fabric)
    app = create_app(service, registry=Metrics().registry, held_by=FakeWorkers())
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def exposed(controller):
    """Names of all metrics, also of metrics without samples yet."""
    text = plain_http.get(f"{controller.url}/metrics").text
    families = re.findall(r"^# TYPE (\w+) (\w+)", text, re.MULTILINE)
    parts = {"histogram": ("_bucket", "_sum", "_count")}
    return {name + end for name, kind in families for end in parts.get(kind, ("",))}


def test_every_metric_is_in_the_page_about_watching(controller):
    """Under its name without ``hydra_``, in the table of metrics; the table has no other names."""
    text = plain_http.get(f"{controller.url}/metrics").text
    served = set(re.findall(r"^# TYPE hydra_(\w+) ", text, re.MULTILINE))
    guide = (ROOT / "docs" / "watching.md").read_text()
    table = guide.partition("| metrics `hydra_…` | tell |\n")[2].partition("\n\n")[0]
    told = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert told == served - {name for name in served if name.endswith("_created")}


def test_the_rules_and_the_configuration_are_sound():
    done = promtool("check", "config", "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "21 rules found" in done.stdout


def test_the_label_for_links_of_alerts_is_there_to_uncomment(tmp_path):
    shipped = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    with_label = tmp_path / "prometheus.yml"
    with_label.write_text(shipped.replace("# external_labels", "external_labels"))
    (tmp_path / "hydra.rules.yml").write_bytes(
        (DEPLOY / "prometheus" / "hydra.rules.yml").read_bytes()
    )
    done = promtool("check", "config", str(with_label))
    assert done.returncode == 0, done.stdout + done.stderr
    labels = yaml.safe_load(with_label.read_text())["global"]["external_labels"]
    assert labels.keys() == {"hydra_docs"}


def test_the_rules_fire_when_they_should():
    done = promtool("test", "rules", "hydra.rules.test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_section_in_the_page_about_watching():
    rules = yaml.safe_load((DEPLOY / "prometheus" / "hydra.rules.yml").read_text())
    guide = (ROOT / "docs" / "watching.md").read_text()
    sections = dict(
        re.findall(r"^### (Hydra\w+)\n\n(.*?)\n(?:\n|\Z)", guide, re.MULTILINE | re.DOTALL)
    )
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    assert sections.keys() == alerts.keys()
    for name, rule in alerts.items():
        page, _, anchor = rule["annotations"]["runbook_url"].rpartition("#")
        assert "docs/watching.md" in page, "no address that nobody has"
        assert anchor == name.lower()
        told = re.findall(r"^- (\w+): ", sections[name], re.MULTILINE)
        assert told == ["Symptom", "Meaning", "Check", "Cure"], name


COUNTED = re.compile(r"(?:increase|rate)\((\w+)[{\[]")
"""A counter in a rule or a panel."""
NOBODY_BEGINS = {"job", "instance"}
"""Labels added by Prometheus."""
NAMED = {"worker", "device"}
"""Labels whose values are names in a network."""
BUSY = {"hydra_device_errors_total", "hydra_command_failures_total"}
"""Counters that may stand above 0 at the first scrape."""


def counters(text):
    """Samples of each counter on a metrics page: labels and value."""
    return {
        f"{family.name}_total": [(one.labels, one.value) for one in family.samples]
        for family in text_string_to_metric_families(text)
        if family.type == "counter"
    }


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """Counters of a controller that has just started, with missing devices."""
    folder = tmp_path_factory.mktemp("fresh")
    rest = f"127.0.0.1:{free_port()}"
    document = yaml.safe_load((ROOT / "configs" / "demo.yaml").read_text())
    document["controller"] |= {
        "rest": rest,
        "openflow": f"127.0.0.1:{free_port()}",
        "journal": str(folder / "journal.db"),
        "audit_log": str(folder / "audit.log"),
    }
    config = folder / "fabric.yaml"
    config.write_text(yaml.safe_dump(document))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [BIN / "hydra", "run", "--config", config], cwd=folder, stdout=log, stderr=log
        )
    try:

        def answers():
            assert process.poll() is None, (folder / "log").read_text()
            with contextlib.suppress(OSError, httpx.TransportError):
                return plain_http.get(f"http://{rest}/healthz", timeout=PATIENCE_S)

        wait_until(answers)
        yield counters(plain_http.get(f"http://{rest}/metrics", timeout=PATIENCE_S).text)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def fresh_worker():
    """The counters of a worker that has just connected to the controller."""
    fabric = load_configuration(ROOT / "configs" / "demo.yaml").fabric
    app = create_app(
        FakeService(fabric), registry=Metrics().registry, held_by=FakeWorkers(just_known=True)
    )
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    found = counters(plain_http.get(f"{server.url}/metrics").text)
    server.stop()
    return {name: some for name, some in found.items() if name.startswith("hydra_worker_sessions")}


def test_every_counter_that_rules_and_panels_use_is_there(fresh, fresh_worker):
    rules = yaml.safe_load((DEPLOY / "prometheus" / "hydra.rules.yml").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    asked += [expression for _, expression in asked_by_grafana()]
    counted = {name for expression in asked for name in COUNTED.findall(expression)}
    counted = {
        name for name in counted if name.endswith("_total")
    }  # without counters of percentiles
    assert len(counted) >= 12
    assert counted <= fresh.keys() | fresh_worker.keys()


LABELS = {  # of each labelled counter
    "hydra_reconfigurations_total": {
        "trigger": TRIGGERS,
        "state": ("done", "partial", "refused", "failed"),
    },
    "hydra_gate_failures_total": {"step": GATE, "kind": FailureKind},
    "hydra_step_failures_total": {"step": STEPS, "kind": FailureKind},
    "hydra_command_failures_total": {
        "command": [
            name
            for name, value in vars(commands).items()
            if isinstance(value, type) and commands.Asks in value.__mro__[1:]
        ],
        "kind": FailureKind,
    },
    "hydra_dropped_lines_total": {"sink": ("log", "audit")},
    "hydra_worker_sessions_ended_total": {"worker": ("w1",), "cause": SessionEnd},
    "hydra_probes_total": {"event": ("sent", "heard", "unknown")},
    "hydra_device_errors_total": {"device": ("p1", "p2", "r1", "r2", "r3", "r4")},
}


def test_every_counter_begins_at_0_with_every_value_of_its_labels(fresh, fresh_worker):
    """Prometheus sees no increase in a series that begins at 1."""
    samples = {name: some for name, some in fresh.items() if name.startswith("hydra_")}
    samples |= fresh_worker
    assert samples.keys() >= LABELS.keys()
    for name, some in samples.items():
        labels = LABELS.get(name, {})
        assert all(one.keys() == labels.keys() for one, _ in some), f"LABELS lacks some of {name}"
        began = {tuple(one[key] for key in labels) for one, _ in some}
        assert began == set(product(*labels.values())), name
        # The start itself sends requests to missing devices.
        assert name in BUSY or {value for _, value in some} == {0.0}, name


def test_rules_are_tested_with_series_that_begin_as_the_controllers_do(fresh, fresh_worker):
    tests = yaml.safe_load((DEPLOY / "prometheus" / "hydra.rules.test.yml").read_text())["tests"]
    given = [one for test in tests for one in test["input_series"]]
    series = re.compile(r"(\w+_total)\{(.*)\}")
    tried = set()
    for one in given:
        if (found := series.fullmatch(one["series"])) is None:
            continue
        name, labels = found[1], dict(re.findall(r'(\w+)="(.*?)"', found[2]))
        its_own = {key: value for key, value in labels.items() if key not in NOBODY_BEGINS | NAMED}
        samples = {**fresh, **fresh_worker}[name]
        began = [
            {key: value for key, value in one.items() if key not in NAMED} for one, _ in samples
        ]
        assert its_own in began, one
        assert re.match(r"0(\s|x|\+)", one["values"]), one
        tried.add(name)
    assert len(tried) >= 6


def test_triggers_are_those_that_the_controller_names():
    """Other words would be series that begin late, and are counted as a single series."""
    rooms = (ROOT / "apps" / "controller").rglob("*.py")
    text = "".join(path.read_text() for path in rooms)
    named = set(re.findall(r'\.enter\(\s*f?"(\w+)', text))
    named |= set(re.findall(r'\.go\(\w+, f?"(\w+)', text))
    named |= {auditor.TRIGGER, slots.TRIGGER, planning_loop._PERIODIC, reconfigurations._TRIGGER}
    assert len(named) == 8
    assert {*named, "other"} == set(TRIGGERS)
    metrics = Metrics()
    for trigger in ("reservation 3f", "something new"):
        entry = Reconfiguration("r", ReconfigurationState.FAILED, trigger, 1, 0.0)
        metrics.reconfigured(entry)
    value = metrics.registry.get_sample_value
    for trigger in ("reservation", "other"):
        labels = {"trigger": trigger, "state": "failed"}
        assert value("hydra_reconfigurations_total", labels) == 1


def asked_by_grafana():
    """Queries of panels, and queries of the incident marks, by title."""
    board = json.loads((DEPLOY / "grafana" / "hydra.json").read_text())
    marks = board["annotations"]["list"]
    assert [mark["name"] for mark in marks][:2] == ["What is wrong", "Circuits lost"]
    return [
        *(
            (panel["title"], target["expr"])
            for panel in board["panels"]
            for target in panel["targets"]
        ),
        *((mark["name"], mark["expr"]) for mark in marks),
    ]


def test_rules_and_panels_ask_for_what_there_is(exposed):
    rules = yaml.safe_load((DEPLOY / "prometheus" / "hydra.rules.yml").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    asked += [expression for _, expression in asked_by_grafana()]
    names = {name for expression in asked for name in NAMES.findall(expression)}
    assert len(names) > 15
    assert names <= exposed


@pytest.fixture
def prometheus(controller, tmp_path):
    rules = DEPLOY / "prometheus" / "hydra.rules.yml"
    with scraping([controller.url.removeprefix("http://")], rules, tmp_path) as client:
        yield client


def test_prometheus_scrapes_us_and_every_panel_can_be_asked(prometheus):
    wait_until(lambda: ask(prometheus, 'up{job="hydra"} == 1'), every_s=0.2)
    assert [one["value"][1] for one in ask(prometheus, "hydra_ready")] == ["1"]
    for title, expression in asked_by_grafana():
        answer = prometheus.get("/query", params={"query": expression.replace("$instance", ".+")})
        assert answer.status_code == 200, (title, answer.text)
    rules = prometheus.get("/rules").json()["data"]["groups"][0]["rules"]
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
