"""A certificate authority for a lab: the authority's certificate, and issued certificates.

Keys are ECDSA on P-256. Networks with an authority should use their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apps.process.files import replacing
from hydra.errors import HydraError

_CA: Final = "ca"
_HOST_NAME: Final = re.compile(
    r"(\*\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*",
    re.IGNORECASE | re.ASCII,
)
_LONGEST_NAME: Final = 253
_CLOCK_SKEW: Final = timedelta(minutes=5)
"""Certificates are valid from this time before the issue: clocks in a lab differ."""


class Use(Enum):
    SERVER = "server"
    """Proves the controller to REST clients and to switches."""
    CLIENT = "client"
    """Proves a switch to the controller."""


_USAGE: Final = {
    Use.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
    Use.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH,
}


def create_authority(directory: Path, name: str, days: int, now: datetime) -> Path:
    """Make ``ca.pem`` and ``ca.key``; returns the path of ``ca.pem``.

    Raises HydraError, also if a file exists.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), days, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(ca=True), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return _write_pair(directory, _CA, key, [certificate])


def issue(
    directory: Path, name: str, hosts: Sequence[str], use: Use, days: int, now: datetime
) -> Path:
    """Make ``NAME.pem`` and ``NAME.key`` for host names and addresses; returns the former's path.

    Raises HydraError if ``directory`` has no authority, or if the files exist.
    """
    _check_name(name)
    names = list(map(_general_name, hosts))
    authority = _read_authority(directory)
    _check_end(directory, authority[0], days, now)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(authority, name, key.public_key(), names, use, days, now)
    return _write_pair(directory, name, key, [certificate])


def renew(
    directory: Path,
    name: str,
    hosts: Sequence[str] | None,
    use: Use | None,
    days: int,
    now: datetime,
) -> Path:
    """Replace the certificate ``NAME.pem``; returns the path.

    The key stays, so certificate and key fit at any time. None: hosts and use of the old
    certificate. Raises HydraError without an old certificate.
    """
    _check_name(name)
    authority = _read_authority(directory)
    _check_end(directory, authority[0], days, now)
    file = directory / f"{name}.pem"
    old, key = _read_pair(directory, name, f"`hydra ca issue {name}` makes one")
    if old.public_key() != key.public_key():
        raise HydraError(f"{file} is not the certificate of {name}.key: nothing was renewed")
    names = _names_in(old) if hosts is None else list(map(_general_name, hosts))
    use = _use_of(old, file) if use is None else use
    new = _certificate(authority, name, key.public_key(), names, use, days, now)
    try:
        with replacing(file, 0o644) as stream:
            stream.write(new.public_bytes(serialization.Encoding.PEM).decode())
    except OSError as error:
        raise HydraError(f"can't write {error.filename}: {error.strerror}") from error
    return file


def _check_name(name: str) -> None:
    if name in {"", _CA} or Path(name).name != name:
        raise HydraError(
            f"{name!r} can't name a certificate: the name becomes a file beside ca.pem"
        )


def _check_end(directory: Path, ca_certificate: x509.Certificate, days: int, now: datetime) -> None:
    if now + timedelta(days=days) > ca_certificate.not_valid_after_utc:
        raise HydraError(
            f"{directory / 'ca.pem'} ends {ca_certificate.not_valid_after_utc:%Y-%m-%d}, before "
            f"{days} days have passed: ask for fewer days, or make a new authority"
        )


def _certificate(
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    name: str,
    key: ec.EllipticCurvePublicKey,
    names: Sequence[x509.GeneralName],
    use: Use,
    days: int,
    now: datetime,
) -> x509.Certificate:
    ca_certificate, ca_key = authority
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        _builder(subject, ca_certificate.subject, key, days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USAGE[use]]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(ca_key, hashes.SHA256())


def _names_in(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return list(found.value)


def _use_of(certificate: x509.Certificate, file: Path) -> Use:
    """Raises HydraError for a certificate for neither use, made by another authority."""
    usages: Collection[x509.ObjectIdentifier] = ()
    with suppress(x509.ExtensionNotFound):
        usages = tuple(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    for use, usage in _USAGE.items():
        if usage in usages:
            return use
    raise HydraError(f"{file} is for neither servers nor clients: add --use server or --use client")


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: int,
    now: datetime,
) -> x509.CertificateBuilder:
    now = now.astimezone(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    if len(host) > _LONGEST_NAME or not _HOST_NAME.fullmatch(host):
        raise HydraError(
            f"{host!r} is neither an address nor a host name in ASCII: write the host as DNS has it"
        )
    return x509.DNSName(host)


def _read_authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    return _read_pair(directory, _CA, "`hydra ca create` makes an authority")


def _read_pair(
    directory: Path, name: str, remedy: str
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """``remedy``: the command that makes missing files."""
    certificate_file, key_file = directory / f"{name}.pem", directory / f"{name}.key"
    kind = "authority" if name == _CA else "certificate"
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    except FileNotFoundError as error:
        raise HydraError(f"no {error.filename}: {remedy}") from error
    except OSError as error:
        raise HydraError(f"can't read {error.filename}: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise HydraError(
            f"{name}.pem and {name}.key in {directory} are no {kind} of ours"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise HydraError(f"{key_file} is no key that `hydra ca` made")
    return certificate, key


def _write_pair(
    directory: Path,
    name: str,
    key: ec.EllipticCurvePrivateKey,
    chain: Sequence[x509.Certificate],
) -> Path:
    """Write both files or none; only the owner can read the key, from the first moment on."""
    certificate_file, key_file = directory / f"{name}.pem", directory / f"{name}.key"
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    shown = b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in chain)
    remedy = "move it away, or choose another name"
    if name != _CA:
        remedy = f"--renew renews a certificate; or {remedy}"
    written: list[Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, content, mode in ((key_file, secret, 0o600), (certificate_file, shown, 0o644)):
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            written.append(file)
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
    except OSError as error:
        for file in written:
            file.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            raise HydraError(f"{error.filename} exists already: {remedy}") from error
        raise HydraError(f"can't write {error.filename}: {error.strerror}") from error
    return certificate_file
