"""Workers of a controller on this machine, for the switches of a testbed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.patience import PATIENCE_S, looks
from mininet_scenarios.stage.controller_process import ControllerProcess, Launched, launch
from mininet_scenarios.stage.stage import ScenarioError, Stage
from mininet_scenarios.testbed import ovs
from mininet_scenarios.testbed.shell import member_environment

_LOG_TAIL_CHARACTERS: Final = 3000


@dataclass(slots=True)
class WorkerProcess:
    """A worker as users start it: a separate process, ``hydra worker``."""

    name: str
    config: Path
    port: int
    log: Path
    controllers: tuple[int, ...] = ()
    """Ports of controllers' links; none: the configuration's."""
    scheme: str = "tcp"
    """``ssl``, if the configuration names OpenFlow's certificates."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Additional environment variables."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def target(self) -> str:
        """The worker's address for switches, in Open vSwitch's notation."""
        return f"{self.scheme}:127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ScenarioError(f"worker {self.name} does not run")
        return self._process.pid

    def start(self) -> None:
        command = [str(Path(sys.executable).with_name("hydra")), "worker"]
        command += ["--config", str(self.config), "--name", self.name]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        for port in self.controllers:
            command += ["--controller", f"127.0.0.1:{port}"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=member_environment({"PYTHONUNBUFFERED": "1", **self.environment}),
                start_new_session=True,
            )

    def await_start(self, patience_s: float = 60.0) -> None:
        """Wait until the worker accepts switches. Raises ScenarioError."""
        for _ in looks(0.05, patience_s):
            if "OpenFlow on" in self.log_tail():
                return
            if self._process is None or self._process.poll():
                break
        raise ScenarioError(f"worker {self.name} does not start:\n{self.log_tail()}")

    def stop(self) -> int:
        """End the worker by SIGTERM, as an operator does; returns the exit code, 0 if none ran."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        process.kill()
        return process.wait()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def cpu_s(self) -> float:
        """Processor time of the worker so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-_LOG_TAIL_CHARACTERS:]


@contextmanager
def workers(
    stage: Stage,
    policy: Mapping[str, Any],
    names: tuple[str, ...] = ("w1",),
    *,
    lease_s: float = 3.0,
    launch: Callable[[Path, BinaryIO], Launched] = launch,
    ready_timeout_s: float = 60.0,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[ControllerProcess, dict[str, WorkerProcess]]]:
    """A ready controller, and its workers by name; switches are configured with all workers.

    Switches connect over TLS if the configuration names certificates. ``environment``: variables of
    the workers.
    """
    link = {"listen": f"127.0.0.1:{free_port()}", "shards": 4, "lease_s": lease_s}
    config = stage.written(policy, {"workers": link, "rest": f"127.0.0.1:{free_port()}"})
    bridges = [
        server.vswitch.bridge for server in stage.fabric.servers if server.vswitch is not None
    ]
    bridges += [rack.tor.bridge for rack in stage.fabric.racks if rack.tor.bridge]
    before = f"tcp:{stage.config['controller']['openflow']}"
    scheme = "ssl" if stage.config["controller"].get("openflow_certificate") else "tcp"
    these = {
        name: WorkerProcess(
            name,
            config,
            free_port(),
            stage.work_dir / f"worker-{name}.log",
            scheme=scheme,
            environment=environment,
        )
        for name in names
    }
    process = ControllerProcess(config, launch=launch, ready_timeout_s=ready_timeout_s)
    with ExitStack() as stack:
        for worker in these.values():
            stack.callback(worker.kill)
            worker.start()
        stack.callback(ovs.set_controllers, bridges, [before])
        ovs.set_controllers(bridges, [worker.target for worker in these.values()])
        stack.callback(process.kill)
        try:
            process.start()
        except Exception as error:
            tails = "\n".join(f"{worker.name}: {worker.log_tail()}" for worker in these.values())
            raise ScenarioError(f"{error}\n{tails}") from error
        yield process, these


def await_workers(
    seen: Callable[[], list[dict[str, Any]]],
    right: Callable[[list[dict[str, Any]]], bool],
    patience_s: float = PATIENCE_S,
) -> list[dict[str, Any]]:
    """Wait until ``right`` accepts the workers reported by the controller. Raises ScenarioError."""
    for _ in looks(0.05, patience_s):
        if right(found := seen()):
            return found
    raise ScenarioError(f"the workers stay {found}")
