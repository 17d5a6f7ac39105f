"""Access control: roles, stored tokens, visibility of reservations.

A token is ``hydra_NAME_SECRET``; only the SHA-256 of the secret is stored. The secret has 256
random bits, so a slow hash would add no protection.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import isfinite
from typing import Any, Final

from hydra.errors import HydraError
from hydra.reservations.quotas import NO_QUOTA, Quota
from hydra.reservations.reservation import PRIORITIES, Reservation

_PREFIX: Final = "hydra"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")


class Role(StrEnum):
    VIEWER = "viewer"
    """Reads everything, changes nothing."""
    TENANT = "tenant"
    """Makes reservations, and sees only its own."""
    AGENT = "agent"
    """Reports for the server named in the token, and sees nothing else."""
    OPERATOR = "operator"
    """Full access."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Caller of the API."""

    name: str
    role: Role
    quota: Quota = NO_QUOTA

    @property
    def tenant(self) -> str | None:
        """Owner of the caller's reservations, and limit of the caller's view; None for other
        roles.
        """
        return self.name if self.role is Role.TENANT else None

    def sees(self, reservation: Reservation) -> bool:
        return self.role is not Role.TENANT or reservation.owner == self.name


LOCAL: Final = Caller("local", Role.OPERATOR)
"""Caller without a token at a controller without tokens, which listens on loopback only."""


NOBODY: Final = Caller("", Role.AGENT)
"""Caller without a valid token: only public resources are answered."""


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token without its secret."""

    name: str
    role: Role
    secret_sha256: str
    created_unix_s: float
    quota: Quota = NO_QUOTA

    def to_record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "role": self.role.value,
            "secret_sha256": self.secret_sha256,
            "created_unix_s": self.created_unix_s,
            **{name: limit for name, limit in asdict(self.quota).items() if limit is not None},
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> StoredToken:
        """Read a record. Raises HydraError, with no content except the name."""
        try:
            name = check_name(str(record["name"]))
            token = cls(
                name,
                Role(record["role"]),
                str(record["secret_sha256"]),
                float(record["created_unix_s"]),
                _quota(name, record),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise HydraError(f"not a token's record ({type(error).__name__})") from None
        if not re.fullmatch(r"[0-9a-f]{64}", token.secret_sha256):
            raise HydraError(f"token {token.name}: secret_sha256 is not a SHA-256 in hexadecimal")
        return token


def _quota(name: str, record: Mapping[str, Any]) -> Quota:
    """Read the limits. Raises HydraError for invalid limits, which must not count as unlimited."""
    count, mbps = record.get("max_reservations"), record.get("max_mbps")
    if count is not None and not (isinstance(count, int) and count >= 0):
        raise HydraError(f"token {name}: max_reservations is not a whole number from 0")
    if mbps is not None and not (isinstance(mbps, int | float) and isfinite(mbps) and mbps >= 0):
        raise HydraError(f"token {name}: max_mbps is not a finite number from 0")
    priority = record.get("max_priority", 0)
    if not isinstance(priority, int) or priority not in PRIORITIES:
        raise HydraError(f"token {name}: max_priority is not a whole number from 0 to 9")
    return Quota(count, mbps, priority)


def check_name(name: str) -> str:
    """Raise HydraError unless ``name`` is a valid token name."""
    if not _NAME.fullmatch(name):
        raise HydraError(
            f"{name!r} can't name a token: use letters, digits, dots and hyphens, 63 at most"
        )
    return name


def make_token(
    name: str, role: Role, secret: str, created_unix_s: float, quota: Quota = NO_QUOTA
) -> tuple[str, StoredToken]:
    """Return the token for the client, and the record to store; ``secret`` must be random."""
    return f"{_PREFIX}_{check_name(name)}_{secret}", StoredToken(
        name, role, _hash(secret), created_unix_s, quota
    )


def identify(text: str, known: Mapping[str, StoredToken]) -> Caller | None:
    """Owner of the token ``text``; None for an unknown token."""
    prefix, _, rest = text.partition("_")
    name, _, secret = rest.partition("_")
    stored = known.get(name)
    expected = _hash("") if stored is None else stored.secret_sha256
    genuine = hmac.compare_digest(_hash(secret), expected)
    if stored is None or not genuine or prefix != _PREFIX:
        return None
    return Caller(stored.name, stored.role, stored.quota)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
