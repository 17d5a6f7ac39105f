"""Controllers forked off a process that has imported all modules of ``ryu-manager``.

The controllers' planning processes are forked off the same process, and emulators of optical
switches off another process. The imports are most of a start. Starts as by users are tested by
``test_launch``, ``test_controller_process``, ``test_ocs_emulator``, the demo, the tutorial and the
experiments.

``python -m tests.integration.warm FD controllers`` is the first process, ``… FD emulators`` the
second; each ends, with all of its children, when the other end of the socket FD is closed.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NoReturn

from apps.openflow.package import NAME, VARIABLE
from mininet_scenarios.stage.controller_process import APPLICATION
from mininet_scenarios.testbed.shell import MEMBER_VARIABLE, member_environment
from tests.waiting import PATIENCE_S

_STATUS = struct.Struct("!i")
_MAX_ORDER = 65536
_NO_MEMBER = b"0"
_CONTROLLERS, _EMULATORS = "controllers", "emulators"
_LATE = (
    "anyio._backends._asyncio",
    "drivers.optical.polatis_scpi",
    "drivers.tor.openflow",
    "drivers.tor.ovs_ovsdb",
    "encodings.idna",
    "numpy.ma",
    "uvicorn.lifespan.off",
    "uvicorn.loops.asyncio",
)
"""Modules that controllers of the shipped fabrics import once they are at work."""


class _Warm:
    """A process that forks others."""

    def __init__(self, of: str, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), of],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={
                    **os.environ,
                    **variables,
                    MEMBER_VARIABLE: _NO_MEMBER.decode(),
                    "PYTHONUNBUFFERED": "1",
                },
            )

    def fork(self, words: Sequence[str], variables: Mapping[str, str], log: BinaryIO) -> Forked:
        """A process that runs ``words``, with these additional variables."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            environment = member_environment({**self._variables, **variables})
            order = json.dumps([words, environment]).encode()
            socket.send_fds(self._socket, [order], [log.fileno(), theirs.fileno()])
        return Forked(ours)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(PATIENCE_S)


class Warm(_Warm):
    """Forks controllers."""

    def __init__(self, package: str) -> None:
        super().__init__(_CONTROLLERS, {VARIABLE: package})

    def launch(
        self,
        config: Path,
        log: BinaryIO,
        environment: Mapping[str, str] = MappingProxyType({}),
        application: Path = APPLICATION,
    ) -> Forked:
        """As ``controller_process.launch``."""
        return self.fork([str(application)], {"HYDRA_CONFIG": str(config), **environment}, log)


class _WarmEmulators(_Warm):
    def __init__(self) -> None:
        super().__init__(_EMULATORS, {})

    def spawn(self, module: str, arguments: Sequence[str], log: BinaryIO) -> Forked:
        """As ``testbed.ocs._spawn``."""
        return self.fork([module, *arguments], {}, log)


class Forked:
    """Like :class:`subprocess.Popen`, for a grandchild."""

    def __init__(self, reports: socket.socket) -> None:
        self._reports = reports
        self.returncode: int | None = None
        self.pid = self._report()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._reports], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._reports], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("controller", timeout or 0.0)
            self.returncode = self._report()
            self._reports.close()
        return self.returncode

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _report(self) -> int:
        (value,) = _STATUS.unpack(self._reports.recv(_STATUS.size))
        return int(value)


_started: dict[str, Warm] = {}
_emulators: list[_WarmEmulators] = []


def warm(package: str = NAME) -> Warm:
    """One for the session, and for OpenFlow by this package; :func:`cool` closes it."""
    if package not in _started:
        _started[package] = Warm(package)
    return _started[package]


def spawn_emulator(module: str, arguments: Sequence[str], log: BinaryIO) -> Forked:
    """As ``testbed.ocs._spawn``, by a process that :func:`cool` ends."""
    if not _emulators:
        _emulators.append(_WarmEmulators())
    return _emulators[0].spawn(module, arguments, log)


def cool() -> None:
    """Close all started processes."""
    while _started:
        _started.popitem()[1].close()
    while _emulators:
        _emulators.pop().close()


class _Server:
    """Forks processes for a session, and planners for its controllers."""

    def __init__(self, orders: socket.socket, become: Callable[..., None]) -> None:
        """``become``: the work of a child, with its words, its log and the address of planners,
        after its environment is set.
        """
        self._become = become
        self._orders = orders
        self._planners, self._asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """Process, and the descriptor for the report of its end, by the descriptor that watches the
        process.
        """

    def serve(self) -> Callable[[], None]:
        """Returns only in the children, with their work; never in this process."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._orders, selectors.EVENT_READ)
            selector.register(self._planners, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd in self._children:
                        selector.unregister(key.fd)
                        self._report(key.fd)
                        continue
                    ordered_by = key.fileobj
                    order, descriptors, _, _ = socket.recv_fds(ordered_by, _MAX_ORDER, 3)
                    if not order:
                        self._end()
                    *given, reporting = descriptors
                    if (pid := os.fork()) == 0:
                        os.close(reporting)
                        self._orders.close()
                        self._planners.close()
                        _be_a_member()
                        if ordered_by is self._planners:
                            return partial(_become_planner, *given)
                        words, environment = json.loads(order)
                        os.environ.clear()
                        os.environ.update(environment)
                        _write_to(*given)
                        return partial(self._become, words, self._asking)
                    _group(pid)
                    for descriptor in given:
                        os.close(descriptor)
                    reports = socket.socket(fileno=reporting)
                    watched = os.pidfd_open(pid)
                    self._children[watched] = pid, reports
                    selector.register(watched, selectors.EVENT_READ)
                    _tell(reports, pid)

    def _report(self, watched: int) -> None:
        pid, reports = self._children.pop(watched)
        os.close(watched)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with reports:
            _tell(reports, code)

    def _end(self) -> NoReturn:
        for pid, _ in self._children.values():
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        os._exit(0)


def _tell(reports: socket.socket, value: int) -> None:
    try:
        reports.send(_STATUS.pack(value))
    except OSError:
        return  # the session is gone


def _group(pid: int) -> None:
    """Give a child a separate process group.

    Both the child and its parent do so: a receiver of the id can then end the group at once.
    """
    with suppress(ProcessLookupError):  # it has ended
        os.setpgid(pid, pid)


def _be_a_member() -> None:
    """Let the testbed find this process, by the environment that the kernel shows."""
    _group(os.getpid())
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    ctypes.memset(libc.getenv(MEMBER_VARIABLE.encode()), ord("1"), 1)


def _write_to(log: int) -> None:
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _become_controller(words: Sequence[str], asking: socket.socket) -> None:
    sys.argv = ["ryu-manager", *words]
    planner._spawn = partial(_forked_planner, asking)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ryu_manager()


def _forked_planner(asking: socket.socket, theirs: Connection) -> Forked:
    ours, reporting = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reporting:
        given = [theirs.fileno(), sys.stderr.fileno(), reporting.fileno()]
        socket.send_fds(asking, [b"a planner"], given)
    return Forked(ours)


def _become_planner(connection: int, log: int) -> None:
    _write_to(log)
    sys.argv = ["planner_process", str(connection)]
    planner_process.main()


def _become_emulator(words: Sequence[str], _asking: socket.socket) -> None:
    module, *arguments = words
    sys.exit(process.run(import_module(module).PRODUCT, arguments))


if __name__ == "__main__" and sys.argv[2] == _EMULATORS:
    from mininet_scenarios.emulators import process
    from mininet_scenarios.emulators.catalogue import EMULATORS

    import_module("mininet_scenarios.emulators.kernel_mirrors")  # half of the imports
    for one in EMULATORS.values():
        if not one.has_directory:
            import_module(one.path)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as below
    _Server(socket.socket(fileno=int(sys.argv[1])), _become_emulator).serve()()
elif __name__ == "__main__":
    from apps.launcher import ryu_manager
    from apps.openflow import framework  # noqa: F401  (imported late by the launcher)
    from apps.openflow.package import HOST

    import_module("apps.main")  # imported by the launcher for the controller only
    HOST.manager()
    for module in _LATE:
        import_module(module)
    from apps.planning import planner, planner_process
    from apps.process.garbage import exempt_present_objects
    from topology.algorithms import ENTRIES

    list(ENTRIES)  # searches all installed packages for algorithms

    exempt_present_objects()  # each controller would scan all imported objects, twice
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # it is for the session, which then ends this process
    _Server(socket.socket(fileno=int(sys.argv[1])), _become_controller).serve()()
