"""A real NETCONF server (yuma123 ``netconfd`` behind OpenSSH) on our YANG modules.

For tests and measurements of the NETCONF drivers: protocol, datastores and errors come from an
independent server; only the device beneath is missing. All files are in a single directory, and the
server uses one port of the loopback interface; nothing of the system is changed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from lxml import etree

from drivers.transports.netconf import NetconfTransport
from drivers.transports.netconf_requests import NETCONF_NS
from drivers.transports.ssh import SshOptions
from hydra.model import Login
from mininet_scenarios.emulators.netconf_relay import Relay
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.patience import PATIENCE_S

YANG: Final = Path(__file__).parent / "yang"
MODULES: Final = (
    "optical-switch",
    "polatis-switch",
    "openconfig-interfaces",
    "openconfig-if-ethernet",
    "openconfig-if-aggregate",
    "openconfig-vlan",
)
_SWITCH: Final = "http://www.polatis.com/yang/optical-switch"
_INTERFACES: Final = "http://openconfig.net/yang/interfaces"
_YUMA_MODULES: Final = Path("/usr/share/yuma/modules")
_SUBSYSTEM: Final = "/usr/sbin/netconf-subsystem"
_NEEDS: Final = ("/usr/sbin/netconfd", _SUBSYSTEM, "/usr/sbin/sshd", "/usr/bin/ssh-keygen")
_STOP_S: Final = 5.0
_POLL_S: Final = 0.02


class NetconfdError(Exception):
    """The server can't be started."""


class Netconfd:
    """A server, as a context manager; ``target``: ``candidate``, ``running`` (writable-running).

    netconfd needs the port on which sshd listens; otherwise netconfd closes each session at hello.
    """

    def __init__(self, directory: Path, target: str = "candidate") -> None:
        self._directory = directory
        self._target = target
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._client: NetconfTransport | None = None
        self._relay: Relay | None = None
        self.address = f"127.0.0.1:{self._port}"
        self.login = Login("root", key_file=str(directory / "user"))

    @property
    def host_key(self) -> str:
        """The host key in the form of ``options.host_key``."""
        kind, key, *_ = (self._directory / "host.pub").read_text().split()
        return f"{kind} {key}"

    def __enter__(self) -> Netconfd:
        missing = [path for path in _NEEDS if not Path(path).exists()]
        if missing:
            raise NetconfdError(f"{', '.join(missing)} is missing: run make bootstrap")
        for name in ("host", "user"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._directory / name))
        (self._directory / "sshd_config").write_text(self._sshd_config())
        # Where systemd does not run sshd, the directory required by sshd is missing.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        try:
            self.start()
        except NetconfdError:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start with empty datastores, and return when sessions are taken."""
        modules = [f"--module={name}" for name in MODULES]
        self._spawn(
            "netconfd",
            *modules,
            f"--modpath={YANG}:{_YUMA_MODULES}",
            "--no-startup",
            "--superuser=root",
            "--access-control=off",
            f"--target={self._target}",
            f"--port={self._port}",
            f"--ncxserver-sockname={self._socket}",
            f"--log={self._directory / 'netconfd.log'}",
        )
        self._wait_for(self._socket.exists)
        self._relay = Relay(self._door, self._socket)
        self._spawn("/usr/sbin/sshd", "-D", "-e", "-f", str(self._directory / "sshd_config"))
        self._wait_for(self._accepts)

    def stop(self) -> None:
        """End both processes and every session."""
        if self._client is not None:
            self._client.close()
            self._client = None
        # netconfd last: sshd's sessions end with netconfd.
        for process in reversed(self._processes):
            _end(process)
        self._processes.clear()
        if self._relay is not None:
            self._relay.close()
            self._relay = None
        self._socket.unlink(missing_ok=True)

    def write(self, config: str) -> None:
        """Merge XML elements into the configuration, as an experimenter, bypassing the driver."""
        if self._client is None:
            options = SshOptions(host_key=self.host_key)
            self._client = NetconfTransport(
                "netconfd", self.address, self.login, options, timeout_s=PATIENCE_S
            )
        root = etree.fromstring(f'<config xmlns="{NETCONF_NS}">{config}</config>')
        self._client.edit(root, lambda: None)

    def become_polatis(self, size: int, dbm: float = -3.5) -> None:
        """Present itself as ``size`` ports on each side, all enabled, and ``dbm`` at each."""
        ports = range(1, 2 * size + 1)
        states = "".join(
            f"<port><port-id>{port}</port-id><status>ENABLED</status></port>" for port in ports
        )
        power = "".join(
            f"<port><port-id>{port}</port-id><power>{dbm:.2f}</power></port>" for port in ports
        )
        self.write(
            f'<product-information xmlns="{_SWITCH}"><manufacturer>Polatis</manufacturer>'
            f"<serial-number>000042</serial-number>"
            f"<model-name>I-OST-{size}x{size}-LU1-DMHNS</model-name>"
            f"<software-version>6.5.2.18</software-version></product-information>"
            f'<port-config xmlns="{_SWITCH}">{states}</port-config>'
            f'<opm-power xmlns="{_SWITCH}">{power}</opm-power>'
        )

    def become_switch(self, ports: Sequence[str], lags: Sequence[str] = ()) -> None:
        """Present the interfaces ``ports`` and ``lags``, all up, without VLANs."""
        kinds = dict.fromkeys(ports, "ethernetCsmacd") | dict.fromkeys(lags, "ieee8023adLag")
        listed = "".join(
            f"<interface><name>{port}</name><config><name>{port}</name>"
            f"<type>iana-if-type:{kind}</type></config>"
            f"<state><oper-status>UP</oper-status></state></interface>"
            for port, kind in kinds.items()
        )
        self.write(f'<interfaces xmlns="{_INTERFACES}">{listed}</interfaces>')

    def freeze(self, *, frozen: bool) -> None:
        """Stop or resume answering; connections stay."""
        number = signal.SIGSTOP if frozen else signal.SIGCONT
        self._processes[0].send_signal(number)

    @property
    def _environment(self) -> dict[str, str]:
        """Environment with a home of its own.

        If netconfd was ended in the middle of a write, a file in ``~/.yuma`` is incomplete, and
        netconfd refuses to start.
        """
        return os.environ | {"HOME": str(self._directory)}

    @property
    def _socket(self) -> Path:
        return self._directory / "ncx.sock"

    @property
    def _door(self) -> Path:
        """Socket to which sshd's sessions connect."""
        return self._directory / "relay.sock"

    def _sshd_config(self) -> str:
        lines = (
            f"Port {self._port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self._directory / 'host'}",
            f"AuthorizedKeysFile {self._directory / 'user.pub'}",
            "AuthenticationMethods publickey",
            # Without PAM, sshd refuses root if Debian's installer left root without a password.
            f"UsePAM {'yes' if _root_is_locked() else 'no'}",
            "StrictModes no",
            "PidFile none",
            # Not the outermost shell: bash would read the user's ~/.bashrc before each session.
            "SetEnv SHLVL=1",
            # Unquoted: OpenSSH of Debian 13 takes quotes for a part of the command.
            f"Subsystem netconf {_SUBSYSTEM} --ncxserver-sockname={self._port}@{self._door}",
        )
        return "".join(f"{line}\n" for line in lines)

    def _spawn(self, *command: str) -> None:
        log = self._directory / f"{Path(command[0]).name}.out"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                cwd=self._directory,
            )
        self._processes.append(process)

    @property
    def _logs(self) -> list[Path]:
        return sorted([*self._directory.glob("*.out"), *self._directory.glob("*.log")])

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            ended = any(process.poll() is not None for process in self._processes)
            if ended or time.monotonic() > deadline:
                logs = "\n".join(path.read_text() for path in self._logs)
                raise NetconfdError(f"the NETCONF server does not start: {logs[-2000:]}")
            time.sleep(_POLL_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGCONT, signal.SIGTERM):
        process.send_signal(number)
    try:
        process.wait(_STOP_S)  # timed: then killed
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _root_is_locked() -> bool:
    try:
        entries = Path("/etc/shadow").read_text().splitlines()
    except OSError:
        return False
    return any(entry.startswith("root:!") for entry in entries)
