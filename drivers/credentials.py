"""Passwords of devices, fetched when a driver logs in and kept nowhere.

A secret appears in no log, error or ``repr``: messages name the variable or file, never the secret.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from hydra.errors import DeviceError
from hydra.model import Login

_MAX_BYTES: Final = 4096


def secret(device: str, login: Login) -> str:
    """Return the password of ``login``, from its environment variable or the first line of its
    file.

    The password is read at each call, so a changed password needs no restart. Raises DeviceError,
    with the variable or file and the remedy, if there is no password.
    """
    if login.password_env is not None:
        return _from_environment(device, login.password_env)
    if login.password_file is not None:
        return _from_file(device, login.password_file)
    raise DeviceError(
        device, f"no password for {login.username}: set login.password_env or login.password_file"
    )


def _from_environment(device: str, variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        state = "not set" if value is None else "empty"
        raise DeviceError(
            device,
            f"the environment variable {variable} is {state}; put the password there before "
            "starting the controller (login.password_env)",
        )
    return value


def _from_file(device: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            # Bytes, since a decoding error would quote the secret.
            line = file.readline(_MAX_BYTES + 1)
    except OSError as error:
        raise DeviceError(
            device,
            f"can't read the password file {Path(path).absolute()}: {error.strerror}; make the "
            "file readable for the controller's user (login.password_file; a relative path starts "
            "from the working directory)",
        ) from None
    value = line.rstrip(b"\r\n")
    if not value:
        raise DeviceError(
            device,
            f"the first line of the password file {path} is empty; put the password there "
            "(login.password_file)",
        )
    if len(line) > _MAX_BYTES or not value.isascii():
        raise DeviceError(
            device,
            f"the first line of the password file {path} is no password: the line has more than "
            f"{_MAX_BYTES} bytes, or non-ASCII bytes (login.password_file)",
        )
    return value.decode("ascii")
