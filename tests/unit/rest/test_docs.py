"""docs/api.md and docs/lifecycle.md agree with the code."""

import json
import re
import runpy
import shlex
from itertools import pairwise
from pathlib import Path

from apps.rest.app import create_app
from apps.rest.problems import CATALOGUE
from hydra.lifecycle import RECONFIGURATION_TRANSITIONS, RESERVATION_TRANSITIONS
from tests.unit.cli import jobs

DOCS = Path(__file__).parents[3] / "docs"
API = (DOCS / "api.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Cells of the first table after ``heading``, without the table's heading."""
    section = API.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def quoted(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def test_the_diagrams_are_those_of_the_tables():
    assert (DOCS / "lifecycle.md").read_text() == runpy.run_path(
        str(DOCS.parent / "scripts" / "lifecycle_page.py")
    )["page"](), "run python scripts/lifecycle_page.py > docs/lifecycle.md"


def test_the_reservation_states_are_those_of_the_table():
    documented = {cells[0].strip("`"): quoted(cells[1]) for cells in rows("Reservations")}
    assert documented == {
        state.value: {other.value for other in successors}
        for state, successors in RESERVATION_TRANSITIONS.items()
    }


def test_every_state_of_a_reconfiguration_is_named():
    section = API.split("## Plans and reconfigurations", 1)[1].split("\n## ", 1)[0]
    assert {state.value for state in RECONFIGURATION_TRANSITIONS} <= quoted(section)


def test_the_problem_types_are_those_of_the_catalogue():
    assert rows("Errors") == [[f"`{p.uri}`", str(p.status), p.meaning] for p in CATALOGUE]


def test_the_resources_are_those_of_the_api(service):
    documented = {cells[0].strip("`") for cells in rows("Resources")}
    served = {
        f"{method.upper()} {path}"
        for path, methods in create_app(service).openapi()["paths"].items()
        for method in methods
    }
    generic = re.compile(r"\{\w+\}")
    assert {generic.sub("{}", one) for one in documented} == {
        generic.sub("{}", one) for one in served
    }


carried_out = jobs.network


def in_answers(answers, command: str) -> str:
    """The command with `ID` and `START` from the answers so far."""
    if "START" in command:
        later = answers[-1].json()["alternatives"][-1]
        command = command.replace("START", json.dumps(later["start_unix_s"]))
    if "ID" in command:
        last = answers[-1].json()
        command = command.replace("ID", (last if "id" in last else last["reservations"][0])["id"])
    return command


def run_curl(client, command: str):
    """Send the request of this curl command."""
    words = shlex.split(command)
    assert words[0] == "curl"
    options = dict(pairwise(words))
    headers = dict(value.split(": ", 1) for name, value in pairwise(words) if name == "-H")
    body = options.get("-d")
    (url,) = (word for word in words if word.startswith("http://127.0.0.1:8080"))
    method = options.get("-X", "GET" if body is None else "POST")
    path = url.removeprefix("http://127.0.0.1:8080")
    return client.request(method, path, content=body, headers=headers)


def test_the_examples_run_and_answer_as_they_say(client, carried_out):
    section = API.split("\n## Examples\n", 1)[1]
    commands = [line for line in section.splitlines() if line.startswith("curl ")]
    promised = [int(code) for code in re.findall(r"\((\d{3})\)", section)]
    answers, codes = [], []
    for command in commands:
        ready = in_answers(answers, command)
        if " -N " in ready:
            with client.stream("GET", ready.split("8080")[1].rstrip("'")) as stream:
                codes.append(stream.status_code)
                assert stream.headers["content-type"].startswith("text/event-stream")
        else:
            answers.append(run_curl(client, ready))
            codes.append(answers[-1].status_code)
    assert codes == promised
    (shown,) = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    assert json.loads(shown) == answers[1].json()
