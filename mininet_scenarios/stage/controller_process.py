"""The controller as users start it: a separate process, ``ryu-manager apps/main.py``."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final, Protocol, Self

import apps
from apps.process.configuration import load_configuration
from hydra.errors import HydraError
from mininet_scenarios import cycles
from mininet_scenarios.cycles.names import CycleName, environment_for
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.testbed.shell import member_environment

ALL_THERE: Final = "/readyz?complete=true"
"""Answers 200 once the controller takes requests and no device or switch is away."""
APPLICATION: Final = Path(apps.__file__).with_name("main.py")
WITH_A_CYCLE: Final = Path(cycles.__file__).with_name("application.py")
"""The controller with an experiment's cycle."""
READY_TIMEOUT_S: Final = PATIENCE_S
_SAID_CHARACTERS: Final = 500
_POLL_S: Final = 0.05
_LOG_TAIL_LINES: Final = 30
_PROC: Final = Path("/proc")


class ControllerProcessError(HydraError):
    """The controller did not start, ended by itself, or did not get ready in time."""


class Launched(Protocol):
    """Used part of :class:`subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...


def launch(
    config: Path,
    log: BinaryIO,
    environment: Mapping[str, str] = MappingProxyType({}),
    application: Path = APPLICATION,
) -> Launched:
    """Start ``ryu-manager`` in a new process group, with output into ``log``.

    ``environment``: additional environment variables.
    """
    variables = {"HYDRA_CONFIG": str(config), "PYTHONUNBUFFERED": "1", **environment}
    return subprocess.Popen(
        [str(_ryu_manager()), str(application)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=member_environment(variables),
        start_new_session=True,  # Ctrl-C is for the scenario, which then ends the controller
    )


class Launch(Protocol):
    """Starts the controller of a configuration file, with output into a log."""

    def __call__(self, config: Path, log: BinaryIO, /) -> Launched: ...


@dataclass(frozen=True, slots=True)
class WithCycle:
    """Starts a controller with an experiment's cycle."""

    cycle: CycleName
    rules: int = 0

    def __call__(self, config: Path, log: BinaryIO, /) -> Launched:
        return launch(config, log, environment_for(self.cycle, self.rules), WITH_A_CYCLE)


def launch_with(cycle: CycleName, rules: int = 0) -> Launch:
    """Start of a controller with ``cycle``, each push filled up to ``rules`` rules.

    Cycles of the controller's own start as users start a controller.
    """
    return launch if cycle.own and not rules else WithCycle(cycle, rules)


class ControllerProcess:
    """A controller for one configuration file; ready when the block begins, and ended with the
    block.

    The output goes to ``log``, by default a file beside the configuration. The controller may be
    stopped, killed and started again any number of times: the data plane stays unchanged.
    """

    def __init__(
        self,
        config: Path,
        *,
        log: Path | None = None,
        ready_timeout_s: float = READY_TIMEOUT_S,
        launch: Launch = launch,
    ) -> None:
        self.config = config.resolve()
        self.log = log or Path(f"{self.config.with_suffix('')}-controller.log")
        self.settings = load_configuration(self.config).controller
        self._ready_timeout_s = ready_timeout_s
        self.launch = launch
        self._process: Launched | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        return f"http://{self.settings.rest_host}:{self.settings.rest_port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Id of the process, and of the process group with all workers."""
        if self._process is None:
            raise ControllerProcessError(f"no controller runs for {self.config}")
        return self._process.pid

    def start(self, *, ready: bool = True) -> None:
        """Start the controller, and return once requests are taken and all devices are there, or
        without ``ready`` once REST answers.

        Raises :class:`ControllerProcessError`, with the end of the log, if the controller is not
        ready in time.
        """
        if self.running:
            raise ControllerProcessError(f"the controller for {self.config} runs already")
        Path(self.settings.journal).parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = self.launch(self.config, log)
        try:
            self._wait_for(self._process, ALL_THERE if ready else "/healthz")
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int:
        """End the controller by SIGTERM, as an operator does; returns the exit code, 0 if none
        ran.
        """
        process = self._process
        if process is None:
            return 0
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        return self._reap(process)

    def kill(self) -> None:
        """Crash the controller: SIGKILL to the process and all workers."""
        if self._process is not None:
            self._reap(self._process)

    def restart(self, launch: Launch | None = None) -> None:
        """Stop the controller and start it again, by the new ``launch`` if given."""
        self.stop()
        self.launch = launch or self.launch
        self.start()

    def members(self) -> set[int]:
        """Ids of the process and its workers, without ended processes."""
        return members_of(self.pid)

    def cpu_s(self) -> float:
        """Processor time of the process and its workers so far."""
        ticks = 0
        for pid in self.members():
            fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        if not self.log.exists():
            return "the controller wrote nothing"
        log = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(log[-lines:])

    def _reap(self, process: Launched) -> int:
        """End all processes left in the process group, and forget the process."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._process = None
        return process.wait()

    def _wait_for(self, process: Launched, path: str) -> None:
        began = time.monotonic()
        deadline = began + self._ready_timeout_s
        while (said := self.answer_to(path))[0] != http.HTTPStatus.OK:
            if process.poll() is not None:
                raise ControllerProcessError(
                    f"the controller ended with {process.returncode}; {self.log} ends:\n"
                    f"{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise ControllerProcessError(
                    f"the controller is not ready after {self._ready_timeout_s:.0f} s "
                    f"(GET {self.base_url}{path}: {said[1][:_SAID_CHARACTERS]}); "
                    f"{self.log} ends:\n{self.log_tail()}"
                )
            # An answer takes the controller's time, and a large fabric is ready late.
            time.sleep(_POLL_S + (time.monotonic() - began) / 100)

    def answer_to(self, path: str) -> tuple[int, str]:
        """Status and body of the answer to GET ``path``; status 0 if there is no answer."""
        address = self.settings.rest_host, self.settings.rest_port
        # timed: asked again later
        with contextlib.closing(http.client.HTTPConnection(*address, timeout=2.0)) as connection:
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode(errors="replace")
            except (OSError, http.client.HTTPException) as error:
                return 0, f"no answer: {error}"


def members_of(group: int) -> set[int]:
    """Ids of a group's processes, without zombies."""
    found = set()
    for entry in _PROC.glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, _, its_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.add(int(entry.name))
    return found


def _ryu_manager() -> Path:
    """Path of the project's own launcher, installed beside the present interpreter."""
    launcher = Path(sys.executable).with_name("ryu-manager")
    if not launcher.exists():
        raise ControllerProcessError(
            f"{launcher} is missing: install the project (`make bootstrap`)"
        )
    return launcher
