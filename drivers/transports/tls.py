"""Options of drivers that come by TLS: whose certificate the device's is checked against."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from hydra.errors import DeviceError


class TlsOptions(BaseModel):
    """``options`` of a device that shows a certificate."""

    model_config = ConfigDict(extra="forbid")

    ca_file: str | None = None
    """PEM file of the authority that signed the device's certificate, or that certificate itself.

    None: the system's authorities.
    """
    server_name: str | None = None
    """Name in the device's certificate, where that is not the address."""


def authorities(device: str, options: TlsOptions) -> bytes | None:
    """Contents of ``ca_file``. Raises DeviceError if it can't be read."""
    if options.ca_file is None:
        return None
    try:
        return Path(options.ca_file).expanduser().read_bytes()
    except OSError as error:
        raise DeviceError(
            device,
            f"can't read {options.ca_file}: {error.strerror}; put the certificate there that the "
            "device's is signed with (options.ca_file)",
        ) from None
