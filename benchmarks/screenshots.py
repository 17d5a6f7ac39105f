"""Pictures of the dashboard: ``python -m benchmarks.screenshots [FOLDER]`` (root).

The demo fabric in the middle of a reconfiguration, with its controller; the explanation of a
circuit, with its load; the page at the width of a telephone, in dark mode; and 320 racks with 32
planes. The pictures are for docs/; look at them before a commit.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks._demo import demo_stage
from benchmarks.dashboard import BusyService, serving
from hydra.faults.condition import Condition
from hydra.faults.facts import Facts, MissingSwitch
from hydra.faults.quarantine import Quarantined
from hydra.history import HappeningKind, History
from hydra.model import Fabric, NetworkState, Topology
from hydra.reconfiguration.plan import pair_of
from hydra.roles import Alarm, Severity
from hydra.service import DeviceStatus, QuarantinedPort
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.streams import paced_stream

FOLDER = Path(__file__).parents[1] / "docs" / "screenshots"
DESKTOP, TELEPHONE = (1280, 900), (390, 844)
COLOURS = 256
PATIENCE_MS = 60_000
"""Rate for a machine with other work."""
SLOWLY = {
    "poll_interval_s": 0.5,
    "demand_window_s": 1.0,
    "drain": {"reads": 25, "interval_ms": 60, "bound_ms": 5000},
}
"""Policy with a drain of a second and a half: time for a picture."""

_HAS_LOAD = """() => fetch("/v1/load?rack=r1&rack=r2").then((answer) => answer.json())
  .then((load) => load.unix_s.length > 0)"""
"""True once the controller has recorded a sample of the load."""


class TroubledService(BusyService):
    """A busy service with three consistent faults: a cut fibre, an alarm of an optical switch, and
    a missing vswitch.
    """

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        now_s = time.time()
        topology = self.network.topology
        lost = sorted(topology.circuits)[len(topology.circuits) // 3]
        left = tuple(path for path in topology.paths if lost not in path.circuits)
        vlans = {path: self.network.vlans[path] for path in left}
        self.network = NetworkState(2, Topology(topology.circuits - {lost}, left), vlans)
        pairs = tuple({pair_of(path) for path in topology.paths} - {pair_of(path) for path in left})
        port = fabric.ports[lost.a]
        end = f"{fabric.racks[port.rack].name}:{port.tor_port}"
        cut = Quarantined(port.id, f"carrier lost at {end}", now_s - 40, now_s + 560, pairs)
        self.quarantined = [QuarantinedPort(cut, on_trial=False)]
        complains = fabric.planes[-1].name
        datapath, self.gone = sorted(fabric.vswitch_names.items())[-1]
        server = fabric.server_by_datapath[datapath]
        self.trouble = {
            "alarms": {complains: (Alarm(Severity.MINOR, None, "FAN", "fan 2 has failed"),)},
            "switches_away": [MissingSwitch(self.gone, server.name, server.rack)],
        }
        names = [(fabric.racks[a].name, fabric.racks[b].name) for a, b in pairs]
        self.past = History()
        for ago_s, kind, text, of in (
            (32_400, HappeningKind.CONTROLLER, "release 0.1.0 started", []),
            (
                900,
                HappeningKind.CONDITION,
                f"optical switch {complains} complains: minor FAN, fan 2 has failed",
                [],
            ),
            (900, HappeningKind.CONDITION, f"switch {self.gone} is not connected", []),
            (
                40,
                HappeningKind.QUARANTINE,
                f"carrier lost at {end}: {end} left out of plans",
                names,
            ),
        ):
            self.past.add(now_s - ago_s, kind, text, of)
        self._conditions_at(now_s - 900)  # start of each condition

    def conditions(self) -> Sequence[Condition]:
        return self._conditions_at(time.time())

    def _conditions_at(self, now_s: float) -> Sequence[Condition]:
        out = [port.entry for port in self.quarantined]
        facts = Facts(self.fabric, self.network, now_s, (), out, **self.trouble)
        return self.watch.conditions(facts)

    def devices(self) -> list[DeviceStatus]:
        """Devices as in the fabric, with the faults of some devices."""
        alarms = self.trouble["alarms"]
        return [
            replace(device, connected=device.name != self.gone, alarms=alarms.get(device.name, ()))
            for device in super().devices()
        ]


@contextmanager
def opened(browser: Browser, url: str, size: tuple[int, int], scheme: str) -> Iterator[Page]:
    width, height = size
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    expect(page.locator("#connection")).to_have_text("● live")
    yield page
    page.close()


def shoot(page: Page, path: Path, *, full_page: bool = True) -> None:
    """Take a picture of a page without an error.

    On a busy machine, a request of the page may time out. The page repeats the request, and the
    picture waits.
    """
    error = page.locator("#error")
    while True:
        expect(error).to_be_hidden()
        page.screenshot(path=path, full_page=full_page)
        if error.is_hidden():
            break
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
            while not page.evaluate(_HAS_LOAD):
                page.wait_for_timeout(500)
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
            executable_path="/usr/bin/chromium-headless-shell", args=["--no-sandbox"]
        )
        with (
            serving("reference.yaml", TroubledService) as (server, _),
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
