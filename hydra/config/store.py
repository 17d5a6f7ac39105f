"""Checks of the settings of the shared store."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from hydra.config.devices import parse_endpoint
from hydra.config.problems import ProblemLog
from hydra.config.schema import EtcdSection, LoginSection, StoreSection
from hydra.config.source import Path
from hydra.settings import EtcdSettings

_ETCD: Final[Path] = ("controller", "store", "etcd")


def read_store(section: StoreSection | None, log: ProblemLog) -> EtcdSettings | None:
    """Settings of etcd; None if the file names no store."""
    if section is None:
        return None
    etcd, tls, user = section.etcd, section.etcd.tls, section.etcd.user
    _check_endpoints(etcd, log)
    if not etcd.prefix.startswith("/") or not etcd.prefix.isprintable():
        log.add((*_ETCD, "prefix"), "{!r} does not begin with a slash: /hydra/", etcd.prefix)
    if tls is not None and (tls.certificate is None) != (tls.key is None):
        log.add((*_ETCD, "tls"), "certificate and key go together: give both, or neither")
    if user is not None:
        _check_user(user, log)
    return EtcdSettings(
        endpoints=tuple(endpoint.rstrip("/") for endpoint in etcd.endpoints),
        prefix=etcd.prefix.rstrip("/") + "/",
        authority=None if tls is None else tls.authority,
        certificate=None if tls is None else tls.certificate,
        key=None if tls is None else tls.key,
        username=None if user is None else user.username,
        password_env=None if user is None else user.password_env,
        password_file=None if user is None else user.password_file,
        lease_s=etcd.lease_s,
    )


def _check_endpoints(etcd: EtcdSection, log: ProblemLog) -> None:
    wanted = "http" if etcd.tls is None else "https"
    for index, endpoint in enumerate(etcd.endpoints):
        path = (*_ETCD, "endpoints", index)
        scheme, _, rest = endpoint.rstrip("/").partition("://")
        if scheme not in {"http", "https"} or parse_endpoint(rest) is None:
            log.add(path, "{!r} is not the URL of a member: http://10.0.0.1:2379", endpoint)
        elif scheme != wanted:
            if etcd.tls is None:
                log.add(path, "{} needs tls: write http, or set tls", endpoint)
            else:
                log.add(path, "{} does not go with tls: write https, or leave tls out", endpoint)
        elif urlsplit(endpoint) in map(urlsplit, etcd.endpoints[:index]):
            log.add(path, "{} is listed twice", endpoint)


def _check_user(user: LoginSection, log: ProblemLog) -> None:
    if user.key_file is not None:
        log.add((*_ETCD, "user", "key_file"), "etcd's users have no keys: remove key_file")
    if (user.password_env is None) == (user.password_file is None):
        log.add((*_ETCD, "user"), "needs exactly one of password_env or password_file")
