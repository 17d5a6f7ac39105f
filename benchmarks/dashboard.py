"""The dashboard in Chromium at 320 racks and 32 planes, compared with 4 racks and 2 planes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from apps.process.configuration import load_configuration
from apps.process.metrics import Metrics
from apps.rest.app import create_app
from apps.rest.server import RestServer
from benchmarks._report import Result, report, run_benchmark
from hydra.model import Circuit, Fabric, NetworkState, Topology, VlanId
from hydra.model import Path as CircuitPath
from hydra.service import DemandReport, DemandSource, DeviceStatus
from tests.unit.rest.fake_service import FakeService

CONFIGS = Path(__file__).parents[1] / "configs"
WATCHED_S = 10.0
SUBSTEPS = 9
PAUSE_S = 1.0
SMALL = "4 racks, 2 planes"
PAINT, WEIGHT = ("first paint", "ms", "lower"), ("page, with all answers", "kB", "lower")
MOST = {PAINT: 300.0, WEIGHT: 150.0}
"""Targets, measured at 4 racks."""
_ANSWERS = """() => ["navigation", "resource"]
  .flatMap((kind) => performance.getEntriesByType(kind))
  .reduce((sum, entry) => sum + entry.transferSize, 0)"""
"""Bytes of all answers so far, with 300 bytes of headers each, as counted by Chromium."""
_SHIFT = 7
_SCROLLED_S = 5.0
_SCROLL = """async (ms) => {
  const frames = [];
  const end = performance.now() + ms;
  let [last, step] = [performance.now(), 20];
  while (last < end) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
    const before = scrollY;
    scrollBy(0, step);
    if (scrollY === before) step = -step;
  }
  return frames;
}"""
"""Scrolls down and up for ``ms``; returns the times between frames, in ms."""


class BusyService(FakeService):
    """A service with circuits of all racks on every plane, in different pairs; one rack pair in
    fifty sends.
    """

    def devices(self) -> list[DeviceStatus]:
        """Circuits on all planes."""
        fabric = self.fabric
        return [
            *(
                DeviceStatus(plane.name, "optical-switch", plane.driver, True)
                for plane in fabric.planes
            ),
            *(DeviceStatus(rack.name, "tor", rack.tor.driver, True) for rack in fabric.racks),
            *(
                DeviceStatus(name, "vswitch", "openflow", True)
                for name in fabric.vswitch_names.values()
            ),
        ]

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        circuits = list(self._circuits())
        pairs: dict[tuple[int, int], CircuitPath] = {}
        for circuit in circuits:
            a, b = (fabric.ports[end].rack for end in (circuit.a, circuit.b))
            low, high = min(a, b), max(a, b)
            pairs.setdefault((low, high), CircuitPath(low, high, (circuit,)))
        paths = tuple(sorted(pairs.values()))
        vlans = {path: VlanId(100 + number % 3000) for number, path in enumerate(paths)}
        self.network = NetworkState(1, Topology(frozenset(circuits), paths), vlans)
        rng = np.random.default_rng(1)
        shape = (len(fabric.racks),) * 2
        rates = rng.exponential(30.0, shape) * (rng.random(shape) < 0.02)
        full = fabric.planes[0].rate_mbps
        loads = full * rng.beta(1.5, 4.0, len(fabric.ports))
        self._loads = {port.id: float(loads[port.id]) for port in fabric.ports}
        self._demand = DemandReport(DemandSource.MEASURED, rates, rates, 0.5, ())

    def _circuits(self):
        for plane in self.fabric.planes:
            ports = [port for port in self.fabric.ports if port.plane == plane.id]
            half = len(ports) // 2
            shift = _SHIFT * int(plane.id) % max(1, half)
            others = ports[half + shift :] + ports[half : half + shift]
            for near, far in zip(ports[:half], others, strict=False):
                if near.rack != far.rack:
                    yield Circuit(plane.id, min(near.id, far.id), max(near.id, far.id))

    def demand(self) -> DemandReport:
        return self._demand

    def port_rates_mbps(self):
        return self._loads


@contextmanager
def serving(
    config: str, kind: type[BusyService] = BusyService
) -> Iterator[tuple[RestServer, BusyService]]:
    """The page of a busy fabric, described by one of the shipped configurations."""
    service = kind(load_configuration(CONFIGS / config).fabric)
    server = RestServer(create_app(service, registry=Metrics().registry), "127.0.0.1", 0)
    server.start()
    try:
        yield server, service
    finally:
        server.stop()


def substep_ms(page: Page, service: BusyService) -> float:
    """Median time from an event of a reconfiguration until the page shows the event."""
    took_ms = []
    for _ in range(SUBSTEPS):
        started_s = time.perf_counter()
        queued = service.reconfigure(None, "operator")
        page.wait_for_function(
            "id => document.getElementById('reconfiguration-facts').textContent.startsWith(id)",
            arg=queued.id,
        )
        took_ms.append((time.perf_counter() - started_s) * 1000)
        service.finish(queued.id)
        time.sleep(PAUSE_S)
    return median(took_ms)


def scrolling(page: Page) -> tuple[float, float]:
    """(Median of frames per second, the main thread's processor time per frame in ms).

    The processor time shows, even on a busy machine, whether 60 frames a second are possible.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before_s = _main_thread_s(session)
    frames_ms = page.evaluate(_SCROLL, 1000 * _SCROLLED_S)
    busy_ms = 1000 * (_main_thread_s(session) - before_s)
    return 1000 / median(frames_ms), busy_ms / len(frames_ms)


def _main_thread_s(session: CDPSession) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def measure(browser: Browser, config: str) -> dict[tuple[str, str, str], float]:
    """Figures of the page, by (metric, unit, better direction)."""
    page = browser.new_page(viewport={"width": 1400, "height": 1500})
    with serving(config) as (server, service):
        page.goto(server.url)
        page.wait_for_selector("#circuits meter")
        looks = "Number(document.body.dataset.looks)"
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        found = {
            PAINT: page.evaluate(paint),
            ("all shown", "ms", "lower"): page.evaluate(
                "performance.getEntriesByName('hydra-shown')[0].startTime"
            ),
            WEIGHT: page.evaluate(_ANSWERS) / 1000,
        }
        before = page.evaluate(looks)
        time.sleep(WATCHED_S)
        looked = page.evaluate(looks) - before
        found["updates while nothing happens", "/s", "higher"] = looked / WATCHED_S
        found["from a substep's event to the page", "ms", "lower"] = substep_ms(page, service)
        frames, busy_ms = scrolling(page)
        found["frames while scrolling, median", "/s", "higher"] = frames
        found["the main thread for a frame", "ms", "lower"] = busy_ms
        page.close()
    return found


def main() -> int:
    with sync_playwright() as playwright:
        options = {"executable_path": "/usr/bin/chromium-headless-shell", "args": ["--no-sandbox"]}
        browser = playwright.chromium.launch(**options)
        small = measure(browser, "demo.yaml")
        large = measure(browser, "reference.yaml")
        browser.close()
    results = [
        *(Result(SMALL, *metric, small[metric], target=most) for metric, most in MOST.items()),
        *(
            Result("320 racks, 32 planes", *metric, value, small[metric], SMALL)
            for metric, value in large.items()
            if metric != WEIGHT
        ),
    ]
    return report("dashboard", results)


if __name__ == "__main__":
    run_benchmark(main)
