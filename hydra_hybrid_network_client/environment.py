"""Environment variables with the controller's address and credentials."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

from hydra_hybrid_network_client.errors import BadSetting, BadToken

DEFAULT_URL: Final = "http://127.0.0.1:8080"


def controller_url() -> str:
    """The URL in HYDRA_URL, or several with commas between; by default, this machine's."""
    return os.environ.get("HYDRA_URL") or DEFAULT_URL


def bearer_token() -> str | None:
    """The token in HYDRA_TOKEN, or in the file named by HYDRA_TOKEN_FILE; None without either.

    Raises BadSetting.
    """
    token = os.environ.get("HYDRA_TOKEN", "")
    path = os.environ.get("HYDRA_TOKEN_FILE")
    if not token and path:
        try:
            token = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
            raise BadSetting(
                f"HYDRA_TOKEN_FILE {path} can't be read ({why}): name the file of a token that "
                "`hydra token create` printed, or unset it"
            ) from error
    try:
        return bare(token) or None
    except BadToken as error:
        raise BadSetting(
            "the token in HYDRA_TOKEN or HYDRA_TOKEN_FILE has other characters than a "
            "line of ASCII: give it as `hydra token create` printed it"
        ) from error


def bare(token: str) -> str:
    """``token`` without the end of line from a file. Raises BadToken."""
    stripped = token.strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise BadToken("the token is not one line of printable ASCII")
    return stripped


def trusted() -> ssl.SSLContext | None:
    """The system's authorities and those in the file HYDRA_CA; None if HYDRA_CA is not set.

    Raises BadSetting.
    """
    path = os.environ.get("HYDRA_CA")
    if not path:
        return None
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise BadSetting(
            f"HYDRA_CA {path} can't be read ({error.strerror or error}): name the file of the "
            "controller's authority (ca.pem of `hydra ca`), or unset it"
        ) from error
    return context


def trusted_by_default(urls: list[str]) -> ssl.SSLContext:
    """The system's authorities, or none if no URL uses TLS: loading takes longer than most
    answers.
    """
    if all(url.startswith("http://") for url in urls):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return ssl.create_default_context()
