"""The controller's settings: listening addresses, state files, shared store, workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """The shared store of several controllers, with a single leader."""

    endpoints: Sequence[str]
    """URLs of the etcd members."""
    prefix: str = "/hydra/"
    """Prefix of all keys; ends in a slash."""
    authority: str | None = None
    """PEM: the authority of the certificates of the members."""
    certificate: str | None = None
    """PEM: the certificate of the controller towards the members."""
    key: str | None = None
    username: str | None = None
    password_env: str | None = None
    password_file: str | None = None
    lease_s: int = 2
    """Time after which a silent leader is replaced. etcd grants at least 1.5 times its election
    timeout, in whole seconds.
    """


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The link to the processes that hold the connections of switches."""

    host: str = "127.0.0.1"
    port: int = 6654
    shards: int = 64
    """Number of parts of the racks; a single worker owns each part at a time."""
    lease_s: float = 3.0
    """Time after which the switches of a silent worker move to other workers. The silent worker
    stops sending before that time.
    """
    key: str | None = None
    """File with the controller's secret key; None: the link is for the local machine only."""
    known: str | None = None
    """Folder with the public keys of admitted workers."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Listening addresses and state files of the controller."""

    openflow_host: str = "127.0.0.1"
    openflow_port: int = 6653
    rest_host: str = "127.0.0.1"
    rest_port: int = 8080
    journal: str = "hydra-journal.db"
    tokens: str | None = None
    """File with the hashes of the tokens; None: REST is open on loopback."""
    tls_certificate: str | None = None
    """PEM, with the chain; None: REST speaks plain HTTP."""
    tls_key: str | None = None
    openflow_certificate: str | None = None
    """PEM, with the chain; None: OpenFlow is not encrypted."""
    openflow_key: str | None = None
    openflow_authority: str | None = None
    """PEM: the authority of the certificates of switches."""
    requests_per_s: float = 100.0
    """Limit for each caller of REST, over 5 s."""
    url: str | None = None
    """URL of REST for other controllers and their clients; None: the name of the machine, and the
    REST port.
    """
    authority: str | None = None
    """PEM: the authority of the certificates of other controllers; None: the system's
    authorities.
    """
    hosts: Sequence[str] = ()
    """Host names of REST, beside the machine name and addresses."""
    webhook_networks: Sequence[str] = ()
    """IP prefixes that webhooks may reach, beside public addresses."""
    connections: int | None = None
    """Simultaneous connections to REST; None: 512 plus two per server."""
    connections_per_address: int | None = None
    """Connections per address; None: half of ``connections``. A /64 network of IPv6 counts as an
    address.
    """
    audit_log: str | None = None
    """A file; None: the log of the controller."""
    journal_days: float = 90.0
    """Days for which journal entries stay; intents and promises stay anyway."""
    etcd: EtcdSettings | None = None
    """None: a single controller, with its journal in a file."""
    workers: WorkerSettings | None = None
    """None: switches connect to the controller directly."""
