"""Questions of dashboard tests to a page."""

import os
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from mininet_scenarios import plain_http
from tests.waiting import PATIENCE_S

SHOTS = os.environ.get("HYDRA_SCREENSHOTS")
"""A folder for screenshots, for people to look at."""
MOMENT = "14 Nov 2023, 22:13:20"
"""The times of all fixtures, as in the page."""


def shoot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


def complaints(page):
    """axe-core's findings on the present page: rules, and the elements that violate them."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]


def told_by(server, resource):
    with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
        return client.get(f"/v1/{resource}").json()
