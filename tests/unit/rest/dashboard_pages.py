"""What tests of the dashboard ask of a page."""

import os
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

SHOTS = os.environ.get("HYDRA_SCREENSHOTS")
"""A folder to leave screenshots in, for people to look at."""
MOMENT = "Nov 14, 2023, 10:13:20\u202fPM UTC"
"""When everything was, as Chromium has it in English."""


def shoot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


def complaints(page):
    """What axe-core finds on the page as it is: rules, and the elements that break them."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]
