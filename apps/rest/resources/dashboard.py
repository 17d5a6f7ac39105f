"""/ and /dashboard/…: the page that shows the network; asks for a token if required"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from fastapi.responses import Response

from apps.rest.routing import Routes
from hydra.errors import UnknownName

routes = Routes()

_FOLDER: Final = Path(__file__).parents[1] / "static"
_MEDIA_TYPES: Final = {".css": "text/css", ".html": "text/html", ".js": "text/javascript"}
_HEADERS: Final = {
    # Nothing from elsewhere and nothing inline: shown content can't become script.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def _files() -> Mapping[str, bytes]:
    """Content of each file, by name: the page's first paint waits for no disk and no thread."""
    return {
        path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in _MEDIA_TYPES
    }


def _file(name: str) -> Response:
    return Response(_files()[name], media_type=_MEDIA_TYPES[Path(name).suffix], headers=_HEADERS)


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
