"""An incident as seen by an operator: status, the page, conditions, and alerts.

The alerts are those of a real Prometheus with the shipped rules, whose times are shortened.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from click.testing import CliRunner
from playwright.sync_api import Page, expect

from apps.cli import hydra
from apps.rest.problems import STANDING_BY
from mininet_scenarios import plain_http
from tests.prometheus import DEPLOY, ask
from tests.waiting import PATIENCE_S

from .live import wait_until

SHORTEST_S: Final = 4.0
"""Least duration in the shortened rules: scrapes, one a second, may fail for 3 s on a busy machine.
"""
_UNITS_S: Final = {"s": 1, "m": 60}


def shortened_rules(path: Path, minute_s: float) -> Path:
    """Write the shipped rules to ``path``, with ``seconds`` for a minute; returns the path."""

    def shortened(found: re.Match[str]) -> str:
        lasts_s = int(found[2]) * _UNITS_S[found[3]] * minute_s / 60
        return f"{found[1]}{round(1000 * max(SHORTEST_S, lasts_s))}ms"

    shipped = (DEPLOY / "prometheus" / "hydra.rules.yml").read_text()
    text, count = re.subn(r"(for: |\[)(\d+)([sm])\b", shortened, shipped)
    assert count > 16
    path.write_text(text)
    return path


@dataclass
class Operator:
    """Asks the controller at ``url``, and has its page open."""

    url: str
    prometheus: httpx.Client
    page: Page
    began_s: float = 0.0
    """Unix time of the start of the incident."""

    def run(self, *command: str) -> tuple[int, str]:
        """Run `hydra COMMAND`, as an operator would; returns its exit status and output."""
        done = CliRunner().invoke(hydra, [*command, "--url", self.url], prog_name="hydra")
        return done.exit_code, done.output

    @contextmanager
    def incident(self, fault: AbstractContextManager[None]) -> Iterator[None]:
        """An incident begins, and is repaired at the end."""
        self.began_s = time.time()
        with fault:
            yield

    def note(self, what: str) -> None:
        print(f"{time.time() - self.began_s:5.1f} s {what}")

    def conditions(self, url: str | None = None) -> list[dict[str, Any]]:
        """The list at this path, or at ``url``.

        A standby is asked again while the standby reports another leader, or no leader for the
        moment: a standby reports the loss of the store after a time-out.
        """
        asked = f"{url or self.url}/v1/conditions"
        answers: list[httpx.Response] = []

        def known() -> bool:
            answers[:] = [plain_http.get(asked, timeout=PATIENCE_S)]
            return answers[0].status_code == 200 or answers[0].json()["type"] != STANDING_BY.uri

        wait_until(known)
        assert answers[0].status_code == 200, answers[0].text
        found: list[dict[str, Any]] = answers[0].json()["conditions"]
        return found

    def kinds(self) -> set[str]:
        return {one["kind"] for one in self.conditions()}

    def is_told(self, *kinds: str, words: str, status: int = 5) -> list[dict[str, Any]]:
        """The conditions, which must be of these kinds; the status and the page must agree."""
        wait_until(lambda: self.kinds() == set(kinds))
        self.note(f"listed: {', '.join(kinds)}")
        conditions = self.conditions()
        assert {one["kind"] for one in conditions} == set(kinds), conditions
        code, said = self.run("status")
        assert code == status, said
        assert said.startswith("ready\nnot healthy" if status == 5 else "not ready")
        assert words in said
        expect(self.page.locator("#conditions")).to_contain_text(words)
        self.note("on the page")
        return conditions

    def firing(self) -> set[str]:
        """Alerts that have fired at any time since the start of the incident."""
        since_ms = round(1000 * (time.time() - self.began_s))
        fired = f'count_over_time(ALERTS{{alertstate="firing"}}[{since_ms}ms])'
        return {one["metric"]["alertname"] for one in ask(self.prometheus, fired)}
