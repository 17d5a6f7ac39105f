"""The documents as a site: the build gives no warning, and links and pages are complete."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest
from playwright.sync_api import expect

from .blocks import ROOT


class Page(HTMLParser):
    """Links of a page, its loaded files, and its link targets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        known = {name: value for name, value in attrs if value}
        self.places |= {known[name] for name in ("id", "name") if name in known}
        if tag == "a" and "href" in known:
            self.links.add(known["href"])
        elif tag in {"script", "img", "iframe", "source"} and "src" in known:
            self.loads.add(known["src"])
        elif tag == "link" and known.get("rel") not in {"canonical", "next", "prev"}:
            self.loads.add(known["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(Folder, pages by path in the folder)"""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    pages = {
        str(path.relative_to(folder)): Page(path.read_text())
        for path in folder.rglob("*.html")
        if path.name != "404.html"
    }
    return folder, pages


def test_every_document_is_a_page_that_the_first_page_leads_to(site):
    _, pages = site
    documents = {
        str(path.relative_to(ROOT / "docs").with_suffix(".html")).replace("README", "index")
        for path in ROOT.glob("docs/**/*.md")
    }
    assert documents == pages.keys()
    assert documents <= {link.partition("#")[0] for link in pages["index.html"].links} | {
        "index.html"
    }


def test_links_and_their_places_exist(site):
    folder, pages = site
    broken = []
    for name, page in pages.items():
        for link in page.links | page.loads:
            parts = urlsplit(urljoin(name, link))
            target = parts.path.removeprefix("/") or "index.html"
            there = parts.scheme or (folder / target).exists()
            placed = not parts.fragment or parts.scheme or parts.fragment in pages[target].places
            if not there or not placed:
                broken.append((name, link))
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site):
    _, pages = site
    assert [link for page in pages.values() for link in page.loads if urlsplit(link).netloc] == []


def test_pages_are_searched_without_a_server(site, page):
    folder, _ = site
    page.goto((folder / "index.html").as_uri())
    field = page.get_by_role("textbox", name="Search")
    field.click()
    field.press_sequentially("quarantine")
    expect(page.locator("[data-md-component=search-result]")).to_contain_text("The REST API")
