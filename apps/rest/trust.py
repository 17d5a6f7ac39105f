"""The REST API's certificates and trusted authorities; needs no server."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from apps.process.certificates import Renewable
from hydra.errors import HydraError


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the certificate with its chain, and the key."""

    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        """Raises HydraError unless certificate and key fit together."""
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
    """Contexts that trust certificates of ``authority``, a PEM file.

    None for None: trust the system's authorities. Raises HydraError if the file can't be used.
    """
    if authority is None:
        return None

    def context() -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=authority)
        except OSError as error:  # includes ssl.SSLError
            raise HydraError(
                f"no authority can be read from {authority} ({error.strerror or error}): check "
                "controller.authority"
            ) from error

    return Renewable((authority,), context).context
