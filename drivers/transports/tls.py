"""Options of drivers that come by TLS: whose certificate the device's is checked against."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from hydra.errors import DeviceError

NOT_TRUSTED: Final = "; compare its certificate with options.ca_file and options.server_name"
"""End of an error message, where a certificate was not taken."""


class TlsOptions(BaseModel):
    """``options`` of a device that shows a certificate."""

    model_config = ConfigDict(extra="forbid")

    ca_file: str | None = None
    """PEM file of the authority that signed the device's certificate, or that certificate itself.

    None: the system's authorities.
    """
    server_name: str | None = None
    """Name in the device's certificate, where that is not the address."""


def authorities(device: str, options: TlsOptions) -> str | None:
    """Certificates in ``ca_file``, as PEM. Raises DeviceError if there are none to be read."""
    if options.ca_file is None:
        return None
    remedy = "put the certificate there that the device's is signed with (options.ca_file)"
    try:
        text = Path(options.ca_file).expanduser().read_text("latin-1")
        ssl.create_default_context(cadata=text)
    except ssl.SSLError:  # an OSError, too
        raise DeviceError(
            device, f"{options.ca_file} has no certificate in PEM; {remedy}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its contents are no certificate"
        raise DeviceError(device, f"can't read {options.ca_file}: {reason}; {remedy}") from None
    return text
