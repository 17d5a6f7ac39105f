"""The dashboard by keyboard, for all widths and both colour schemes, and the files of the page."""

import json
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from apps.rest.resources import dashboard
from hydra.history import HappeningKind

from .dashboard_pages import complaints, shoot
from .fake_service import recorded

pytestmark = pytest.mark.takes(7)

STATIC = Path(dashboard.__file__).parents[1] / "static"


def test_the_heat_map_is_walked_with_the_keyboard(server, network, page):
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("epoch 3")
    page.locator("#heat").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#heat-cell")).to_have_text("r1 to r1: 0 Mb/s, electrically")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#heat-cell")).to_have_text(
        "r1 to r2: 12.5 Mb/s, by circuits; "
        "constrained, wants perhaps 25 Mb/s, plans count on 20 Mb/s"
    )
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#heat-cell")).to_have_text("r1 to r1: 0 Mb/s, electrically")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_fits_and_can_be_read(server, network, page, width, scheme):
    """No sideways scrolling, and text of at least 4.5 to 1 against its ground (WCAG 1.4.3)."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(server.url)
    expect(page.locator("#circuits tbody tr")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ratios = page.evaluate(
        """() => {
          const value = (name) => {
            const pen = document.createElement('canvas').getContext('2d');
            pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
            pen.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => {
              c /= 255;
              return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          return ['--ink', '--quiet', '--bad', '--good'].map((one) =>
            Math.min(...['--card', '--ground'].map((on) => contrast(value(one), value(on)))));
        }"""
    )
    assert min(ratios) >= 4.5
    shoot(page, f"{scheme}-{width}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_page_nor_in_its_dialogs(server, network, page, scheme):
    recorded(network)
    network.past.add(time.time(), HappeningKind.LOGIN, "olaf came", [])
    page.emulate_media(color_scheme=scheme)
    page.goto(server.url)
    expect(page.locator("#conditions .bad-thing").first).to_be_visible()
    page.get_by_text("Decisions of the periodic mode").click()
    for width in (390, 2560, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert complaints(page) == [], width
    dialogs = {
        "Why is r1 =p1= r3 here?": "#why .load-there",
        "The last hour of r3 to r4": "#why .load-there",
        "Plan…": "#ask li",
        "Policy…": "#policy-groups table",
    }
    for button, content in dialogs.items():
        page.get_by_role("button", name=button).click()
        expect(page.locator(content).first).to_be_visible()
        assert complaints(page) == [], button
        page.keyboard.press("Escape")


def test_what_has_not_changed_is_left_alone(server, network, page):
    page.goto(server.url)
    expect(page.locator("#summary")).to_contain_text("✓ ready")
    changed = page.evaluate(
        """async () => {
          let changes = 0;
          const watch = new MutationObserver((all) => { changes += all.length; });
          for (const one of document.querySelectorAll('#summary, #conditions, #history, #error'))
            watch.observe(one, { childList: true, characterData: true, subtree: true });
          getSelection().selectAllChildren(document.querySelector('#conditions code'));
          const looks = () => Number(document.body.dataset.looks);
          const first = looks();
          while (looks() < first + 2) await new Promise((done) => setTimeout(done, 50));
          return [changes, String(getSelection())];
        }"""
    )
    assert changed == [0, page.locator("#conditions code").first.inner_text()]
    network.quarantined.clear()
    expect(page.locator("#summary")).to_contain_text("✓ healthy")


def test_whoever_closes_a_dialog_is_back_on_its_button(server, network, page):
    page.goto(server.url)
    for name, dialog in (("Why is r1 =p1= r3 here?", "#why"), ("Clear r1 hyt-r1-p1", "#ask")):
        button = page.get_by_role("button", name=name, exact=True)
        button.press("Enter")
        expect(page.locator(dialog)).to_be_visible()
        looks = int(page.locator("body").get_attribute("data-looks"))
        page.wait_for_function("many => Number(document.body.dataset.looks) > many", arg=looks)
        page.keyboard.press("Escape")
        expect(button).to_be_focused()


def test_every_control_can_be_reached_with_the_keyboard(server, network, page):
    page.goto(server.url)
    expect(page.locator("#circuits tbody tr")).to_have_count(2)
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.id || document.activeElement.getAttribute('aria-label')"
            )
        )
    assert {"plan", "plane", "rack", "heat", "reconfiguration", "timeline"} <= {
        *reached,
        *({"timeline"} if "Timeline by substep and device" in reached else ()),
    }
    assert {"Why is r1 =p1= r3 here?", "Clear r1 hyt-r1-p1"} <= reached


def test_nothing_comes_from_elsewhere(client):
    answer = client.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for path in STATIC.iterdir():
        assert not re.search(r"(?:src|href|url|import)\W+(?:https?:)?//", path.read_text()), path
    for name in re.findall(r'"(/dashboard/[^"]+)"', answer.text):
        assert client.get(name).status_code == 200


def test_only_what_belongs_to_the_page_is_given_out(client):
    for name in ("nothing.js", "..%2fapp.py", "%2e%2e", "app.py"):
        answer = client.get(f"/dashboard/{name}")
        assert answer.status_code == 404
        assert json.loads(answer.text)["type"].startswith("/problems/")


def test_the_page_is_part_of_what_is_installed():
    setup = (Path(__file__).parents[3] / "setup.py").read_text()
    assert '"apps.rest": ["static/*"]' in setup
    assert {path.suffix for path in STATIC.iterdir()} == {".html", ".css", ".js"}


def test_the_page_is_no_larger_than_150_kb():
    assert sum(path.stat().st_size for path in STATIC.iterdir()) <= 150_000
