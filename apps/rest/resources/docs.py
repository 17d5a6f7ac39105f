"""/docs: the API in Swagger UI, from files in the installation."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from fastapi import Response, status
from fastapi.responses import FileResponse, HTMLResponse
from starlette.exceptions import HTTPException

from apps.rest.routing import Routes

_ASSETS: Final = files("fastapi_offline") / "static"
_MEDIA_TYPES: Final = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon.png": "image/png",
}
_PAGE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>HydRA - REST API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="icon" href="/docs/favicon.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
# validatorUrl null: Swagger UI would otherwise send the description to an external service.
_START: Final = """\
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
});
"""
_HEADERS: Final = {
    # Swagger UI needs styles in attributes, and pictures in the style sheet.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}
"""The browser itself enforces that the page loads from and sends to this server only."""

routes = Routes("/docs")


@routes.on("GET", public=True, include_in_schema=False)
def page() -> HTMLResponse:
    return HTMLResponse(_PAGE, headers=_HEADERS)


@routes.on("GET", "/start.js", public=True, include_in_schema=False)
def start() -> Response:
    return Response(_START, media_type="text/javascript", headers=_HEADERS)


@routes.on("GET", "/{name}", public=True, include_in_schema=False)
def asset(name: str) -> FileResponse:
    if name not in _MEDIA_TYPES:
        raise HTTPException(status.HTTP_404_NOT_FOUND)
    return FileResponse(str(_ASSETS / name), media_type=_MEDIA_TYPES[name], headers=_HEADERS)
