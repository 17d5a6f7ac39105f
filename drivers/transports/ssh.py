"""SSH connections to devices (paramiko): host keys, log-in, and a deadline for all of it.

A device's host key is checked before anything secret is sent: against the key in the configuration,
or against a ``known_hosts`` file of OpenSSH. The error for an unknown key shows its fingerprint,
for comparison with the fingerprint on the device's console.

Lines of ``known_hosts`` about the device are read as OpenSSH reads them, ``@revoked`` among them;
certificates of authorities (``@cert-authority``) are not accepted.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import paramiko
from pydantic import BaseModel, ConfigDict, field_validator

from drivers.credentials import secret
from drivers.transports.tcp import parse_endpoint, reach
from hydra.errors import DeviceError, DeviceUnavailable
from hydra.model import Login

_KEEPALIVE_S: Final = 10
_ANY: Final = "any"

_log: Final = logging.getLogger(__name__)
# paramiko logs errors with tracebacks, though the caller receives them.
_log.setLevel(logging.CRITICAL)


class SshOptions(BaseModel):
    """``options`` of a device reached over SSH."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host_key: str | None = None
    """Type and key in base64, as in a ``known_hosts`` line; ``any``: every key is trusted."""
    known_hosts: str = "~/.ssh/known_hosts"
    """File used if ``host_key`` is not given."""

    @field_validator("host_key")
    @classmethod
    def _is_key(cls, text: str | None) -> str | None:
        if text is not None and text != _ANY:
            kind, _, encoded = text.partition(" ")
            try:
                base64.b64decode(encoded, validate=True)
            except binascii.Error:
                encoded = ""
            if not kind or not encoded:
                raise ValueError(
                    f"{text!r} is neither a type and a key in base64, nor {_ANY!r}; take the key "
                    "from ssh-keyscan, and compare the fingerprint with the device's console"
                )
        return text


def connect(
    device: str, address: str, login: Login, options: SshOptions, deadline: float
) -> paramiko.Transport:
    """An authenticated connection, made before ``deadline`` (of :func:`time.monotonic`).

    Raises DeviceUnavailable if the device can't be reached or does not answer in time, and
    DeviceError if its key is not trusted or the login is refused.
    """
    try:
        connection = reach(parse_endpoint(device, address), remaining(deadline))
    except OSError as error:
        raise DeviceUnavailable(device, f"can't connect to {address}: {_reason(error)}") from error
    with ExitStack() as abandoned:
        abandoned.callback(connection.close)
        try:
            transport = paramiko.Transport(connection)
            abandoned.callback(transport.close)
            transport.set_log_channel(_log.name)
            known = tuple(_known_keys(device, address, options))
            _prefer({key.kind for key in known if not key.revoked}, transport)
            _negotiate(transport, deadline)
            _check_host_key(device, address, transport.get_remote_server_key(), known, options)
            _authenticate(device, address, transport, login, deadline)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise DeviceUnavailable(device, f"SSH to {address}: {_reason(error)}") from error
        transport.set_keepalive(_KEEPALIVE_S)
        abandoned.pop_all()
    return transport


def remaining(deadline: float) -> float:
    """Seconds until ``deadline``. Raises TimeoutError when the deadline has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@contextmanager
def ended_at(deadline: float, transport: paramiko.Transport) -> Iterator[None]:
    """Close the connection at ``deadline``, if the block has not ended by then.

    paramiko sets no limit to its wait for the answers to a channel's requests. Raises TimeoutError
    when the deadline has passed.
    """
    end = threading.Timer(remaining(deadline), transport.close)
    end.daemon = True
    end.start()
    try:
        yield
    except (paramiko.SSHException, EOFError) as error:
        if time.monotonic() >= deadline:
            raise TimeoutError from error
        raise
    finally:
        end.cancel()


def _negotiate(transport: paramiko.Transport, deadline: float) -> None:
    left = remaining(deadline)
    transport.banner_timeout = transport.handshake_timeout = left
    transport.start_client(timeout=left)
    if not transport.initial_kex_done:
        raise TimeoutError


@dataclass(frozen=True, slots=True)
class _Known:
    """A device's host key, by the configuration or a line of ``known_hosts``."""

    kind: str
    """The key's type, such as ``ssh-rsa``."""
    encoded: str
    """The key in base64."""
    revoked: bool = False

    def is_shown_as(self, presented: paramiko.PKey) -> bool:
        return (self.kind, self.encoded) == (presented.get_name(), presented.get_base64())


def _prefer(kinds: Collection[str], transport: paramiko.Transport) -> None:
    """Ask for a host key of the given types first: a device may have a key of each type."""
    security = transport.get_security_options()
    wanted = [
        name
        for name in security.key_types
        if name in kinds or (name.startswith("rsa-") and "ssh-rsa" in kinds)  # its signatures
    ]
    security.key_types = (*wanted, *(kind for kind in security.key_types if kind not in wanted))


def _check_host_key(
    device: str,
    address: str,
    presented: paramiko.PKey,
    known: Collection[_Known],
    options: SshOptions,
) -> None:
    if options.host_key == _ANY:
        return
    shown = f"{presented.get_name()} {presented.fingerprint}"
    same = [key for key in known if key.is_shown_as(presented)]
    if any(key.revoked for key in same):
        raise DeviceError(
            device,
            f"{address} shows a host key that {options.known_hosts} has revoked: {shown}; find out "
            "who answers there",
        )
    if same:
        return
    if options.host_key is not None:
        raise DeviceError(
            device,
            f"{address} shows another host key than options.host_key: {shown}; find out who "
            "answers there before you change the configuration",
        )
    if not all(key.revoked for key in known):
        raise DeviceError(
            device,
            f"{address} shows another host key than {options.known_hosts} has: {shown}; find out "
            "who answers there before you change the file",
        )
    raise DeviceError(
        device,
        f"the host key of {address} is not known: {shown}; compare the key with the device's "
        f"console, then put the key into {options.known_hosts} (ssh-keyscan) or into "
        "options.host_key",
    )


def _known_keys(device: str, address: str, options: SshOptions) -> Iterator[_Known]:
    """Known host keys of the device; unreadable lines are skipped."""
    if options.host_key is not None:
        if options.host_key != _ANY:
            kind, encoded = options.host_key.split()[:2]
            yield _Known(kind, encoded)
        return
    path = options.known_hosts
    try:
        lines = Path(path).expanduser().read_bytes().splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise DeviceError(
            device, f"can't read {path} for the host key of {address}: {_reason(error)}"
        ) from error
    name = _known_name(address)
    for line in lines:
        words = line.decode("utf-8", "replace").split()
        marks = [words.pop(0)] if words and words[0].startswith("@") else []
        if len(words) >= 3 and marks in ([], ["@revoked"]) and _are_about(words[0], name):
            yield _Known(words[1], words[2], revoked=bool(marks))


def _are_about(patterns: str, name: str) -> bool:
    """True if a line's names, patterns or hashed name match the given name (sshd(8))."""
    if patterns.startswith("|"):
        return _hashed(patterns, name) == patterns
    found = False
    for pattern in patterns.lower().split(","):
        positive = pattern.removeprefix("!")
        wild = re.escape(positive).replace(r"\*", ".*").replace(r"\?", ".")
        if re.fullmatch(wild, name):
            if pattern != positive:
                return False
            found = True
    return found


def _hashed(salted: str, name: str) -> str | None:
    """A name hashed with the salt of another hash; None for an invalid hash."""
    try:
        hashed: str = paramiko.HostKeys.hash_host(name, salted)
    except (ValueError, AssertionError):
        return None
    return hashed


def _known_name(address: str) -> str:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]").lower()
    return host if port == "22" else f"[{host}]:{port}"


def _authenticate(
    device: str, address: str, transport: paramiko.Transport, login: Login, deadline: float
) -> None:
    transport.auth_timeout = remaining(deadline)
    try:
        if login.key_file is not None:
            transport.auth_publickey(login.username, _private_key(device, login.key_file))
        else:
            transport.auth_password(login.username, secret(device, login))
    except paramiko.AuthenticationException as error:
        # paramiko also raises this error if the device was only too slow, or left.
        if time.monotonic() >= deadline:
            raise TimeoutError from error
        if not transport.is_active():
            raise EOFError from error
        means = "password" if login.key_file is None else f"key {login.key_file}"
        raise DeviceError(
            device, f"{address} refuses {login.username} with this {means}; check the login"
        ) from error


def _private_key(device: str, path: str) -> paramiko.PKey:
    try:
        return paramiko.PKey.from_path(Path(path).expanduser())
    except (
        OSError,
        paramiko.SSHException,
        paramiko.UnknownKeyType,
        ValueError,
        TypeError,
    ) as error:
        raise DeviceError(
            device,
            f"can't use {path} as a private SSH key without a passphrase "
            f"({type(error).__name__}); check login.key_file",
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, EOFError):
        return "the device closed the connection"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
