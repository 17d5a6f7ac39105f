"""Pictures of the dashboard: ``python -m benchmarks.screenshots [FOLDER]`` (root).

The demo fabric in the middle of a reconfiguration, before a controller that moves it; why one of
its circuits is there, with its load; the page at the width of a telephone, in the dark; and 320
racks with 32 planes. They are for docs/, and are to be looked at.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks._demo import demo_stage
from benchmarks.dashboard import serving
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.streams import paced_stream

FOLDER = Path(__file__).parents[1] / "docs" / "screenshots"
DESKTOP, TELEPHONE = (1280, 900), (390, 844)
COLOURS = 256
PATIENCE_MS = 60_000
"""For a machine that has other work."""
SLOWLY = {
    "poll_interval_s": 0.5,
    "demand_window_s": 1.0,
    "drain": {"reads": 25, "interval_ms": 60, "bound_ms": 5000},
}
"""Policy by which draining takes a second and a half: time for a picture."""


@contextmanager
def opened(browser: Browser, url: str, size: tuple[int, int], scheme: str) -> Iterator[Page]:
    width, height = size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    expect(page.locator("#connection")).to_have_text("● live")
    yield page
    page.close()


def shoot(page: Page, path: Path, *, full_page: bool = True) -> None:
    page.screenshot(path=path, full_page=full_page)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE).save(
            path, optimize=True
        )
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB", flush=True)


def demo(browser: Browser, stage: Stage, folder: Path) -> None:
    with stage.process(SLOWLY) as process, ControllerClient(process.base_url) as client:
        before = [PairDemand("r1", "r2", 80.0), PairDemand("r1", "r3", 80.0)]
        after = [PairDemand("r1", "r2", 80.0), PairDemand("r3", "r4", 80.0)]
        client.reconfigure(before)
        with (
            opened(browser, process.base_url, DESKTOP, "light") as page,
            paced_stream(stage, "h11", "h21", pps=900, payload_bytes=950, count=12_000),
            paced_stream(stage, "h31", "h41", pps=300, payload_bytes=950, count=4_000),
        ):
            page.wait_for_timeout(4000)
            change = threading.Thread(target=client.reconfigure, args=(after,))
            change.start()
            expect(page.locator("#reconfiguration-facts")).to_contain_text(": draining")
            page.wait_for_timeout(500)
            shoot(page, folder / "demo-mid-reconfiguration.png")
            change.join()
            page.get_by_role("button", name="Why is r1 ").first.click()
            expect(page.locator("#why svg.load")).to_be_visible()
            expect(page.locator("#why li").last).to_be_visible()
            shoot(page, folder / "demo-why.png", full_page=False)
            with opened(browser, process.base_url, TELEPHONE, "dark") as telephone:
                expect(telephone.locator("#reconfiguration-facts")).to_contain_text(": done")
                shoot(telephone, folder / "demo-telephone.png")


def main(argv: Sequence[str] = ()) -> int:
    folder = Path(argv[0]) if argv else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        with (
            serving("reference.yaml") as (server, _),
            opened(browser, server.url, DESKTOP, "light") as page,
        ):
            page.wait_for_selector("#circuits meter")
            shoot(page, folder / "320-racks.png")
        with demo_stage() as stage:
            demo(browser, stage, folder)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
