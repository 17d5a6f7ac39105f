"""Certificates of the REST API and authorities it trusts, for who checks them without a server."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from apps.process.certificates import Renewable
from hydra.errors import HydraError


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the certificate with its chain, and its key."""

    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        """Raises HydraError unless the two can be used together."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise HydraError(
                f"REST can't use the certificate {self.certificate} with the key {self.key} "
                f"({error.strerror or error}): check controller.tls_certificate and tls_key"
            ) from error
        return context


Trust = Callable[[], ssl.SSLContext]
"""The context for the next connection."""


def trust_in(authority: str | None) -> Trust | None:
    """Contexts in which others are known by certificates of this authority, a file of PEM.

    None for None: the system's authorities are trusted. Raises HydraError if it can't be used.
    """
    if authority is None:
        return None

    def context() -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=authority)
        except OSError as error:  # ssl.SSLError is one
            raise HydraError(
                f"no authority can be read from {authority} ({error.strerror or error}): check "
                "controller.authority"
            ) from error

    return Renewable((authority,), context).context
