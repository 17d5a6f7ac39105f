"""SSH connections to devices (paramiko): host keys, log-in, and a deadline for all of it.

A device's host key is checked before anything secret is sent: against the key that the
configuration names, or against a ``known_hosts`` file of OpenSSH. An unknown key is an error that
shows its fingerprint, for comparison with the one that the device's console shows.
"""

from __future__ import annotations

import base64
import binascii
import logging
import socket
import time
from pathlib import Path
from typing import Final

import paramiko
from pydantic import BaseModel, ConfigDict, field_validator

from drivers.credentials import secret
from drivers.transports.tcp import parse_endpoint
from hydra.errors import DeviceError, DeviceUnavailable
from hydra.model import Login

_KEEPALIVE_S: Final = 10
_ANY: Final = "any"

_log: Final = logging.getLogger(__name__)
# paramiko logs, with tracebacks, errors that the caller receives anyway.
_log.setLevel(logging.CRITICAL)


class SshOptions(BaseModel):
    """``options`` of a device that is reached over SSH."""

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
                    f"{text!r} is neither a type and a key in base64, nor {_ANY!r}; take it from "
                    "ssh-keyscan, once its fingerprint is what the device's console shows"
                )
        return text


def connect(
    device: str, address: str, login: Login, options: SshOptions, deadline: float
) -> paramiko.Transport:
    """An authenticated connection, made before ``deadline`` (of :func:`time.monotonic`).

    Raises DeviceUnavailable if the device can't be reached or does not answer in time, and
    DeviceError if its key is not trusted or it refuses the login.
    """
    try:
        connection = _connect_tcp(device, address, deadline)
    except OSError as error:
        raise DeviceUnavailable(device, f"can't connect to {address}: {_reason(error)}") from error
    transport = None
    try:
        transport = paramiko.Transport(connection)
        transport.set_log_channel(_log.name)
        _negotiate(transport, deadline)
        _check_host_key(device, address, transport.get_remote_server_key(), options)
        _authenticate(device, address, transport, login, deadline)
    except (paramiko.SSHException, OSError, EOFError) as error:
        _abandon(transport, connection)
        raise DeviceUnavailable(device, f"SSH to {address}: {_reason(error)}") from error
    except DeviceError:
        _abandon(transport, connection)
        raise
    transport.set_keepalive(_KEEPALIVE_S)
    return transport


def remaining(deadline: float) -> float:
    """Seconds until ``deadline``. Raises TimeoutError when it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connect_tcp(device: str, address: str, deadline: float) -> socket.socket:
    connection = socket.create_connection(
        parse_endpoint(device, address), timeout=remaining(deadline)
    )
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _negotiate(transport: paramiko.Transport, deadline: float) -> None:
    left = remaining(deadline)
    transport.banner_timeout = transport.handshake_timeout = left
    transport.start_client(timeout=left)
    if not transport.initial_kex_done:
        raise TimeoutError


def _check_host_key(
    device: str, address: str, presented: paramiko.PKey, options: SshOptions
) -> None:
    if options.host_key == _ANY:
        return
    shown = f"{presented.get_name()} {presented.fingerprint}"
    if options.host_key is not None:
        if options.host_key.split()[:2] == [presented.get_name(), presented.get_base64()]:
            return
        raise DeviceError(
            device,
            f"{address} shows another host key than options.host_key: {shown}; find out who "
            "answers there before you change the configuration",
        )
    known = _known_hosts(device, options.known_hosts, address)
    if known.check(_known_name(address), presented):
        return
    if known.lookup(_known_name(address)):
        raise DeviceError(
            device,
            f"{address} shows another host key than {options.known_hosts} has: {shown}; find out "
            "who answers there before you change that file",
        )
    raise DeviceError(
        device,
        f"the host key of {address} is not known: {shown}; compare it with the device's console, "
        f"then put it into {options.known_hosts} (ssh-keyscan) or into options.host_key",
    )


def _known_hosts(device: str, path: str, address: str) -> paramiko.HostKeys:
    keys = paramiko.HostKeys()
    file = Path(path).expanduser()
    if not file.exists():
        return keys
    try:
        keys.load(str(file))
    except (OSError, paramiko.SSHException) as error:
        raise DeviceError(
            device, f"can't read {path} for the host key of {address}: {_reason(error)}"
        ) from error
    return keys


def _known_name(address: str) -> str:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
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
        # paramiko raises this also if the device was only too slow, or left.
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


def _abandon(transport: paramiko.Transport | None, connection: socket.socket) -> None:
    if transport is not None:
        transport.close()
    connection.close()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, EOFError):
        return "the device closed the connection"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
