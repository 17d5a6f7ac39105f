"""/ and /dashboard/…: the page that shows the network; asks for a token if required"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from fastapi.responses import Response

from apps.rest.routing import Routes
from hydra.errors import UnknownName

routes = Routes()

_FOLDER: Final = Path(__file__).parents[1] / "static"
_STYLE: Final = '<link rel="stylesheet" href="/dashboard/style.css">'
_START: Final = '<script type="module" src="/dashboard/main.js"></script>'
_MEDIA_TYPES: Final = {".css": "text/css", ".html": "text/html", ".js": "text/javascript"}
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def _files() -> Mapping[str, str]:
    """Text of each file, by name. The page brings its style sheet along, so that its first
    paint waits for no second answer, and names all modules, so that none is found late.
    """
    found = {
        path.name: path.read_text(encoding="utf-8")
        for path in _FOLDER.iterdir()
        if path.suffix in _MEDIA_TYPES
    }
    modules = (name for name in sorted(found) if name.endswith(".js"))
    preloads = (f'<link rel="modulepreload" href="/dashboard/{name}">\n' for name in modules)
    page = found["index.html"].replace(_STYLE, f"<style>{found['style.css']}</style>")
    return {**found, "index.html": page.replace(_START, "".join(preloads) + _START)}


@cache
def _security_policy() -> str:
    # Nothing from elsewhere, and nothing inline but the style sheet: shown content can't become
    # script.
    style = b64encode(sha256(_files()["style.css"].encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self'; style-src 'sha256-{style}'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _file(name: str) -> Response:
    headers = {**_HEADERS, "Content-Security-Policy": _security_policy()}
    return Response(_files()[name], media_type=_MEDIA_TYPES[Path(name).suffix], headers=headers)


@routes.on("GET", "/", public=True, include_in_schema=False)
async def page() -> Response:
    """The page holds no network data: the data is read with the caller's own token."""
    return _file("index.html")


@routes.on("GET", "/dashboard/{name}", public=True, include_in_schema=False)
async def asset(name: str) -> Response:
    """A style sheet or a module of the page."""
    if name not in _files():
        raise UnknownName(f"the dashboard has no {name!r}")
    return _file(name)
