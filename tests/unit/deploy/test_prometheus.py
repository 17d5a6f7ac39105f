"""deploy/prometheus and deploy/grafana, by Prometheus itself."""

import json
import re
import subprocess
from itertools import product
from pathlib import Path

import pytest
import yaml

from apps.controller import auditor, loop, slots
from apps.process.configuration import load_configuration
from apps.process.metrics import TRIGGERS, Metrics
from apps.rest.app import create_app
from apps.rest.routes import reconfigurations
from apps.rest.server import RestServer
from hydra.lifecycle import ReconfigurationState
from hydra.service import Reconfiguration
from mininet_scenarios import plain_http
from tests.prometheus import BIN, DEPLOY, ask, scraping
from tests.unit.rest.fake_service import FakeService
from tests.unit.rest.fake_workers import FakeWorkers
from tests.waiting import wait_until

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
    """What Prometheus scrapes."""
    fabric = load_configuration(ROOT / "configs" / "demo.yaml").fabric
    app = create_app(FakeService(fabric), registry=Metrics().registry, held_by=FakeWorkers())
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def exposed(controller):
    """Names of all metrics, also of those that have no samples yet."""
    text = plain_http.get(f"{controller.url}/metrics").text
    families = re.findall(r"^# TYPE (\w+) (\w+)", text, re.MULTILINE)
    parts = {"histogram": ("_bucket", "_sum", "_count")}
    return {name + end for name, kind in families for end in parts.get(kind, ("",))}


def test_the_rules_and_the_configuration_are_sound():
    done = promtool("check", "config", "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 rules found" in done.stdout


def test_the_rules_fire_when_they_should():
    done = promtool("test", "rules", "hydra.rules.test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_section_in_the_operators_guide():
    rules = yaml.safe_load((DEPLOY / "prometheus" / "hydra.rules.yml").read_text())
    guide = (ROOT / "docs" / "operators-guide.md").read_text()
    sections = dict(re.findall(r"^### (Hydra\w+)\n\n(.*?)\n\n", guide, re.MULTILINE | re.DOTALL))
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    assert sections.keys() == alerts.keys()
    for name, rule in alerts.items():
        page, _, anchor = rule["annotations"]["runbook_url"].rpartition("#")
        assert "docs/operators-guide.md" in page, "no address that nobody has"
        assert anchor == name.lower()
        told = re.findall(r"^- (\w+): ", sections[name], re.MULTILINE)
        assert told == ["Symptom", "Meaning", "Check", "Cure"], name


COUNTED = re.compile(r"(?:increase|rate)\((\w+)(?:\{(.*?)\})?\[")
"""A counter in a rule, and what the rule picks of its labels."""


def test_every_counter_that_an_alert_uses_is_there_from_the_start():
    """Prometheus sees no increase in a series that begins at 1."""
    metrics = Metrics()
    metrics.begin_devices(["p1", "r1"])
    samples = [one for family in metrics.registry.collect() for one in family.samples]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "hydra.rules.yml").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    counted = {name for expression in asked for name, _ in COUNTED.findall(expression)}
    assert len(counted) >= 6
    for name in counted - {"hydra_worker_sessions_ended_total"}:  # of workers that are known
        assert [one.value for one in samples if one.name == name], name
        assert {one.value for one in samples if one.name == name} == {0.0}, name
    began = {
        (one.labels["trigger"], one.labels["state"])
        for one in samples
        if one.name == "hydra_reconfigurations_total"
    }
    assert began == set(product(TRIGGERS, ("done", "partial", "refused", "failed")))


def test_triggers_are_those_that_the_controller_names():
    """Other words would be series that begin late, and are counted as one."""
    rooms = (ROOT / "apps" / "controller").glob("*.py")
    text = "".join(path.read_text() for path in rooms)
    named = set(re.findall(r'\.enter\(\s*f?"(\w+)', text))
    named |= set(re.findall(r'\.go\(\w+, f?"(\w+)', text))
    named |= {auditor.TRIGGER, slots.TRIGGER, loop._PERIODIC, reconfigurations._TRIGGER}
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
    """What panels ask, and what marks incidents on them, by title."""
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
