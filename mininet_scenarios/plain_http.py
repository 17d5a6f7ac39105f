"""HTTP without TLS or proxies, for requests between programs on this machine.

Otherwise each client of httpx, and each request without a client, reads the system's authorities:
20 ms of processor time. Clients here also wait patiently: httpx gives up after 5 s.
"""

from __future__ import annotations

import ssl
from functools import partial
from typing import Final

import httpx

from mininet_scenarios.patience import PATIENCE_S

_NO_AUTHORITIES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

client: Final = partial(httpx.Client, verify=_NO_AUTHORITIES, trust_env=False, timeout=PATIENCE_S)
request: Final = partial(httpx.request, verify=_NO_AUTHORITIES, trust_env=False, timeout=PATIENCE_S)
get: Final = partial(request, "GET")
post: Final = partial(request, "POST")
