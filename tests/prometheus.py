"""A Prometheus for a test, which scrapes controllers and judges by rules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from mininet_scenarios import plain_http
from mininet_scenarios.emulators.ports import free_port
from tests.waiting import PATIENCE_S

DEPLOY = Path(__file__).parents[1] / "deploy"
BIN = Path(sys.executable).parent


@contextmanager
def scraping(targets: Sequence[str], rules: Path, directory: Path) -> Iterator[httpx.Client]:
    """Scrapes every HOST:PORT once a second, judges by the rules more often; yields its API."""
    document = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    document["global"] |= {"scrape_interval": "1s", "evaluation_interval": "200ms"}
    document["rule_files"] = [str(rules)]
    document["scrape_configs"][0]["static_configs"] = [{"targets": [*targets]}]
    config = directory / "prometheus.yml"
    config.write_text(yaml.safe_dump(document))
    port = free_port()
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                BIN / "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}/api/v1"
    with plain_http.client(base_url=url, timeout=PATIENCE_S) as client:
        try:
            yield client
        finally:
            process.kill()  # the exit status does not matter, and its data is not read again
            process.wait()


def ask(client: httpx.Client, expression: str) -> list[dict[str, Any]]:
    """The samples of ``expression``; none while Prometheus is still starting."""
    try:
        answer = client.get("/query", params={"query": expression})
    except httpx.TransportError:
        return []
    if answer.status_code != httpx.codes.OK:
        return []
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found
