"""Web pages that may make a browser send requests here.

A browser lets a page send requests to any address, and a name of the page's own site may be
redirected here (DNS rebinding). Clients other than browsers are not affected.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site with permission to write; ``none`` is a person at the browser."""


class Sites:
    """Judges requests by Host, Origin and Sec-Fetch-Site."""

    def __init__(self, hosts: Iterable[str] = (), *, any_host: bool = False) -> None:
        """``hosts`` are names of the controller, besides the machine's own and all addresses.

        With ``any_host``, other names are accepted as well: if tokens are required, a page has no
        token to send, whatever the name of its site.
        """
        self._named = frozenset(host.lower().rstrip(".") for host in hosts)
        self._own = self._named | {"localhost", socket.gethostname().lower()}
        self._any_host = any_host and not self._named

    def objection(self, scope: Scope) -> str | None:
        """Why the request is for another host, or from a foreign page; None if acceptable."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._any_host and host and not self._is_ours(host):
            return (
                f"{host[:100]!r} is not a name of this controller: use the controller's address, "
                "or add the name to controller.hosts"
            )
        if scope["method"] in _READING:
            return None
        origin = headers.get("origin")
        if origin is not None:
            where = urlsplit(origin).netloc.lower()
            if where and (where == host.lower() or _name(where) in self._named):
                return None
            return f"a page of {origin[:100]!r} may not change anything here"
        site = headers.get("sec-fetch-site", "none")
        return (
            None if site in _OWN_SITES else f"a page of another site ({site[:20]}) sent the request"
        )

    def _is_ours(self, host: str) -> bool:
        name = _name(host)
        try:
            ip_address(name)
        except ValueError:
            return name in self._own or name.endswith(".localhost")
        return True  # an address can't be redirected like a name


def _name(host: str) -> str:
    """The host without the port, and without the brackets of an IPv6 address."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""
