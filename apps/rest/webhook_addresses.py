"""Addresses allowed for webhooks: a name is resolved when a connection is made.

An operator's webhook makes the controller send requests from its own place in the network, with a
wider reach than the operator's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from functools import cached_property
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import httpcore
import httpx

from hydra.errors import HydraError


class RefusedAddress(HydraError):
    """A webhook would lead to a forbidden address."""


class WebhookNetworks:
    """Public addresses, and the networks listed in the configuration."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(network) for network in networks
        ]

    def check(self, host: str, address: str) -> None:
        """Raises RefusedAddress unless webhooks may lead to ``address``, an address of ``host``."""
        found = ip_address(address.partition("%")[0])
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        if found.is_global and not found.is_multicast:
            return
        if any(found.version == network.version and found in network for network in self._networks):
            return
        name = "" if host == address else f"{host} is "
        raise RefusedAddress(
            f"{name}{address}, not a public address: list its network at "
            "controller.webhook_networks to have events sent there"
        )

    def check_literal(self, host: str) -> None:
        """Raises RefusedAddress for a forbidden address; a name is checked at each connection."""
        try:
            ip_address(host)
        except ValueError:
            return
        self.check(host, host)


class _Backend(httpcore.AsyncNetworkBackend):
    """Connects to exactly the checked address."""

    def __init__(self, reach: WebhookNetworks) -> None:
        self._reach = reach
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Raises RefusedAddress if one of the host's addresses is out of reach, OSError.

        Addresses are tried in turn. A silent address takes a part of the time, so that time is left
        for the remaining addresses and for the answer.
        """
        if port > 65_535:
            raise OSError(f"there is no port {port}")
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        for address in addresses:
            self._reach.check(host, address)
        part_s = None if timeout is None else timeout / (len(addresses) + 1)
        for last, address in enumerate(addresses, 1 - len(addresses)):
            try:
                return await self._inner.connect_tcp(
                    address, port, part_s if last else timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if last == 0:
                    raise
        raise OSError(f"{host} has no address")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class ReachTransport(httpx.AsyncBaseTransport):
    """Transport of a client with access to ``reach`` only; keeps up to ``most_kept`` connections
    open.

    The system's authorities are read at the first request: reading takes longer than anything else
    at a controller's start, and most controllers have no webhooks.
    """

    def __init__(self, reach: WebhookNetworks, most_kept: int) -> None:
        self._reach = reach
        self._most_kept = most_kept

    @cached_property
    def _made(self) -> httpx.AsyncHTTPTransport:
        context = ssl.create_default_context()
        made = httpx.AsyncHTTPTransport(verify=context)
        # httpx has no argument for the network backend of httpcore.
        made._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=None,
            max_keepalive_connections=self._most_kept,
            network_backend=_Backend(self._reach),
        )
        return made

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._made.handle_async_request(request)

    async def aclose(self) -> None:
        if "_made" in self.__dict__:
            await self._made.aclose()
