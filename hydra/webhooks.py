"""Webhooks: recipients of events, signatures, and retry pauses.

Signatures follow the Standard Webhooks specification 1.0, for which receivers find libraries.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hydra.errors import HydraError
from hydra.events import EventKind

SECRET_BYTES: Final = 32
_MARK: Final = "whsec_"
"""Prefix of every key of Standard Webhooks."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Webhook:
    """A subscriber; events are posted to ``url``."""

    id: str
    url: str
    secret: str
    """Key that signs the messages; only the journal and the creator of the subscriber have the
    key.
    """
    kinds: frozenset[EventKind]
    """Kinds of events to post; empty: all."""
    tenant: str | None
    """A tenant: only events about the tenant's reservations are posted; None: all events."""
    created_unix_s: float

    def __repr__(self) -> str:
        return f"Webhook({self.id!r}, {self.url!r})"  # without the secret

    def to_record(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "url": self.url,
            "secret": self.secret,
            "kinds": sorted(kind.value for kind in self.kinds),
            "tenant": self.tenant,
            "created_unix_s": self.created_unix_s,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Webhook:
        """Read a record. Raises HydraError without the content of the record."""
        try:
            fields = dict(record)
            fields["kinds"] = frozenset(map(EventKind, fields["kinds"]))
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise HydraError(f"not a webhook's record ({type(error).__name__})") from None


def make_secret(chance: bytes) -> str:
    """Make a secret from :data:`SECRET_BYTES` random bytes."""
    return _MARK + base64.b64encode(chance).decode()


def signed_headers(secret: str, message_id: str, unix_s: int, body: bytes) -> dict[str, str]:
    """Headers for ``body``: HMAC-SHA-256 over identifier, time and body."""
    key = base64.b64decode(secret.removeprefix(_MARK))
    signed = b".".join([message_id.encode(), str(unix_s).encode(), body])
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(unix_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def pause_s(failures: int, chance: float) -> float:
    """Pause before the next attempt in s, after ``failures`` (from 1) in a row; ``chance`` is in
    [0, 1).

    The pause doubles from 1 s to 5 min; half is random, so that senders that failed simultaneously
    do not retry simultaneously.
    """
    full_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures - 1, 30))
    return full_s * (0.5 + chance / 2)
