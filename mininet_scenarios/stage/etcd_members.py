"""etcd on this machine: members on loopback, with a data directory for each member."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from apps.etcd.gateway import Etcd, EtcdRefused, EtcdUnanswered
from hydra.settings import EtcdSettings
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.patience import PATIENCE_S

PROGRAM: Final = "/usr/bin/etcd"
QUICK: Final = ("--heartbeat-interval", "20", "--election-timeout", "400")
"""Options as in ``deploy/three-machines``: a lease of two seconds outlasts an election."""


class EtcdMembers:
    """Members of a cluster; ``with`` starts the members, and kills them at the end."""

    def __init__(self, folder: Path, number: int = 1, options: Sequence[str] = ()) -> None:
        """``options``: further options of each member, besides name, addresses and data."""
        self._folder = folder
        self._options = tuple(options)
        ports = [free_port() for _ in range(2 * number)]
        self.names = [f"m{member}" for member in range(1, number + 1)]
        self._clients = dict(zip(self.names, ports[:number], strict=True))
        self._peers = dict(zip(self.names, ports[number:], strict=True))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(self.endpoint(name) for name in self.names)

    def endpoint(self, name: str) -> str:
        return f"http://127.0.0.1:{self._clients[name]}"

    def settings(self, prefix: str = "/hydra/", lease_s: int = 2) -> EtcdSettings:
        return EtcdSettings(self.endpoints, prefix, lease_s=lease_s)

    def __enter__(self) -> EtcdMembers:
        with ExitStack() as stack:
            stack.callback(self.close)
            for name in self.names:
                self.start(name)
            self.await_quorum()
            stack.pop_all()  # nothing failed: the members go on
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self, name: str) -> None:
        """Start a member, with its existing data."""
        peers = ",".join(
            f"{name}=http://127.0.0.1:{port}" for name, port in sorted(self._peers.items())
        )
        client, peer = self.endpoint(name), f"http://127.0.0.1:{self._peers[name]}"
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL"),  # if a run is killed, the members end too
                    PROGRAM,
                    *("--name", name),
                    *("--data-dir", str(self._folder / name)),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", peers),
                    *self._options,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={key: value for key, value in os.environ.items() if "ETCD" not in key},
            )

    def start_all(self) -> None:
        """Start all killed members, and wait until a reading is answered."""
        for name in self.names:
            if name not in self._processes:
                self.start(name)
        self.await_quorum()

    def await_quorum(self) -> None:
        """Wait until a reading is answered. Raises TimeoutError."""
        etcd = Etcd(self.settings())
        until_s = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < until_s:
                try:
                    etcd.transaction([], [], patience_s=1.0)  # timed: asked again later
                except (EtcdRefused, EtcdUnanswered):
                    continue
                return
        finally:
            etcd.close()
        raise TimeoutError(f"etcd does not answer, see {self._folder}/*.log")

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, e.g. SIGSTOP or SIGCONT; after SIGSTOP, wait until the member has
        stopped.
        """
        process = self._processes[name]
        process.send_signal(number)
        if number is signal.SIGSTOP:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def leader(self) -> str:
        """Name of the leading member. Raises TimeoutError if no member leads."""
        etcd = Etcd(self.settings())
        until_s = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < until_s:
                for name, (_, said) in zip(self.names, etcd.members(), strict=True):
                    if said is not None and said.get("leader") == said["header"]["member_id"]:
                        return name
        finally:
            etcd.close()
        raise TimeoutError(f"no member of etcd leads, see {self._folder}/*.log")

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait(PATIENCE_S)

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)
