"""Several controllers of one fabric on this machine, with etcd: killed, stopped and handed over."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

import httpx

from mininet_scenarios import plain_http
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.patience import PATIENCE_S, looks
from mininet_scenarios.stage.controller_process import ControllerProcess, Launched, launch
from mininet_scenarios.stage.etcd_members import EtcdMembers
from mininet_scenarios.stage.stage import ScenarioError, Stage
from mininet_scenarios.testbed import ovs

_POLL_S: Final = 0.02


@dataclass(slots=True)
class ReplicaSet:
    """Controllers by name; switches connect to all controllers."""

    processes: dict[str, ControllerProcess]
    http: httpx.Client
    frozen: set[str] = field(default_factory=set)

    def ready(self) -> set[str]:
        """Names of the controllers that take requests: at most one."""
        return {name for name in self.processes if self.answers(name, "/readyz") == 200}

    def answers(self, name: str, path: str) -> int | None:
        """Status of the controller's answer; None without an answer."""
        if name in self.frozen or not self.processes[name].running:
            return None
        try:
            return self.http.get(self.processes[name].base_url + path).status_code
        except httpx.TransportError:
            return None

    def leader(self, but: str | None = None) -> str:
        """Wait for a leader other than ``but``. Raises ScenarioError."""
        for _ in looks(_POLL_S):
            found = self.ready() - {but}
            if len(found) > 1:
                raise ScenarioError(f"{' and '.join(sorted(found))} lead")
            if found:
                return found.pop()
        raise ScenarioError(f"no controller leads after {PATIENCE_S:g} s")

    def standing_by(self, number: int) -> None:
        """Wait until so many stand by whom all switches have found. Raises ScenarioError."""
        for _ in looks(_POLL_S):
            url = self.processes[self.leader()].base_url
            found = self.http.get(f"{url}/v1/replicas").json()
            least = found["leader"] and found["leader"]["switches"]
            ready = [replica for replica in found["standing_by"] if replica["switches"] == least]
            if len(ready) >= number:
                return
        raise ScenarioError(f"fewer than {number} stand by after {PATIENCE_S:g} s")

    def kill(self, name: str) -> None:
        self.processes[name].kill()

    def freeze(self, name: str) -> None:
        """Stop all threads of a controller, as on a paused machine."""
        self.frozen.add(name)
        os.kill(self.processes[name].pid, signal.SIGSTOP)

    def release(self, name: str) -> None:
        """Let a stopped controller go on."""
        os.kill(self.processes[name].pid, signal.SIGCONT)
        self.frozen.discard(name)

    def thaw(self, name: str) -> int:
        """Let a controller go on; return the exit status with which the controller ends. Raises
        ScenarioError if the controller does not end.
        """
        self.release(name)
        return self.await_end(name)

    def await_end(self, name: str) -> int:
        """Wait for a process that ends by itself; return the exit status. Raises ScenarioError."""
        process = self.processes[name]
        for _ in looks(_POLL_S):
            if not process.running:
                return process.stop()
        raise ScenarioError(f"{name} goes on:\n{process.log_tail()}")

    def start(self, name: str) -> None:
        self.processes[name].start(ready=False)

    def start_ended(self) -> dict[str, int]:
        """Start controllers that have ended by themselves, as a service does; return exit
        statuses.
        """
        ended = {name: process for name, process in self.processes.items() if not process.running}
        statuses = {name: process.stop() for name, process in ended.items()}
        for name in ended:
            self.start(name)
        return statuses


@contextmanager
def replicas(
    stage: Stage,
    etcd: EtcdMembers,
    policy: Mapping[str, Any],
    settings: Mapping[str, Any],
    names: tuple[str, ...] = ("a", "b"),
    *,
    lease_s: int = 2,
    launch: Callable[[Path, BinaryIO], Launched] = launch,
    launches: Mapping[str, Callable[[Path, BinaryIO], Launched]] = MappingProxyType({}),
    endpoints: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ports: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[ReplicaSet]:
    """Controllers that share ``etcd``; the first leads when the block begins.

    By name of a controller: ``launches``: a special launch; ``endpoints``: etcd's endpoints, by
    default the members; ``ports``: the port for switches, by default any free port.
    """
    prefix = f"/{stage.fabric.name}/"
    bridges = [
        server.vswitch.bridge for server in stage.fabric.servers if server.vswitch is not None
    ]
    bridges += [rack.tor.bridge for rack in stage.fabric.racks if rack.tor.bridge]
    before = f"tcp:{stage.config['controller']['openflow']}"
    with ExitStack() as stack:
        http = stack.enter_context(plain_http.client(timeout=PATIENCE_S))
        these = ReplicaSet({}, http)
        targets = []
        for name in names:
            openflow = f"127.0.0.1:{ports.get(name) or free_port()}"
            there = list(endpoints.get(name, etcd.endpoints))
            store = {"etcd": {"endpoints": there, "prefix": prefix, "lease_s": lease_s}}
            own = {"openflow": openflow, "rest": f"127.0.0.1:{free_port()}", "store": store}
            process = ControllerProcess(
                stage.written(policy, {**settings, **own}),
                launch=launches.get(name, launch),
                ready_timeout_s=90,
            )
            these.processes[name] = process
            stack.callback(process.kill)
            targets.append(f"tcp:{openflow}")
        stack.callback(ovs.set_controllers, bridges, [before])
        ovs.set_controllers(bridges, targets)
        for name in names:
            these.processes[name].start(ready=name == names[0])
        these.standing_by(len(names) - 1)
        yield these
