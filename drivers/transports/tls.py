"""Options of drivers with TLS: authorities for the check of a device's certificate."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from hydra.errors import DeviceError

NOT_TRUSTED: Final = (
    "; compare the device's certificate with options.ca_file and options.server_name"
)
"""End of an error message, where a certificate was not taken."""

_CERTIFICATE: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)
_HASHED: Final = re.compile(r"[0-9a-f]{8}\.[0-9]+")
"""Names by which OpenSSL finds a certificate in a directory."""


class TlsOptions(BaseModel):
    """``options`` of a device that shows a certificate."""

    model_config = ConfigDict(extra="forbid")

    ca_file: str | None = None
    """PEM file of the authority that signed the device's certificate, or the certificate itself.

    None: the system's authorities.
    """
    server_name: str | None = None
    """Name in the device's certificate, if different from the address."""


def authorities(device: str, options: TlsOptions) -> str | None:
    """Certificates in ``ca_file``, as PEM. Raises DeviceError if there are none to be read."""
    if options.ca_file is None:
        return None
    remedy = "put the certificate of the device's signer there (options.ca_file)"
    try:
        text = Path(options.ca_file).expanduser().read_text("latin-1")
        if not text.strip():  # ssl would take an empty text for the system's authorities
            raise ValueError
        ssl.create_default_context(cadata=text)
    except ssl.SSLError:  # an OSError, too
        raise DeviceError(
            device, f"{options.ca_file} has no certificate in PEM; {remedy}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the contents are no certificate"
        raise DeviceError(device, f"can't read {options.ca_file}: {reason}; {remedy}") from None
    return text


def all_authorities(device: str, options: TlsOptions) -> str:
    """Certificates as PEM, the system's if there is no ``ca_file``: for libraries without a
    default.

    Raises DeviceError if there are no readable certificates.
    """
    trusted = authorities(device, options)
    if trusted is not None:
        return trusted
    try:
        texts = [file.read_text("latin-1") for file in _system_files()]
    except OSError as error:
        raise DeviceError(
            device, f"can't read {error.filename}: {error.strerror}; set options.ca_file"
        ) from None
    found = [certificate for text in texts for certificate in _CERTIFICATE.findall(text)]
    if not found:
        raise DeviceError(
            device,
            "this machine trusts no authorities: install the package ca-certificates, or "
            "set options.ca_file",
        )
    return "\n".join(found)


def _system_files() -> list[Path]:
    """Files with the system's authorities, at OpenSSL's places."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile is not None:
        return [Path(paths.cafile)]
    found = [] if paths.capath is None else sorted(Path(paths.capath).iterdir())
    return [file for file in found if _HASHED.fullmatch(file.name) and file.is_file()]
