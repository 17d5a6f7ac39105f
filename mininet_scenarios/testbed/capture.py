"""Captures of frames, with tcpdump."""

from __future__ import annotations

import contextlib
import re
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.testbed.shell import TestbedError, member_environment

_BUFFER_KIB: Final = 64 * 1024
_BATCH_S: Final = 1.0
"""tcpdump's time for which the kernel keeps frames that do not fill a block of the buffer."""
_FILE_HEADER: Final = struct.Struct("<IHHiIII")
_FRAME_HEADER: Final = struct.Struct("<IIII")
_MAGIC_NANOSECONDS: Final = 0xA1B23C4D


@dataclass(frozen=True, slots=True)
class Frame:
    time_s: float
    """Wall clock of the kernel's stamp."""
    data: bytes
    """Bytes from the destination MAC on, VLAN tag included."""


class Capture:
    """Frames on one interface from ``with`` until its end, by default in both directions.

    ``direction`` is tcpdump's: ``in``, ``out`` or ``inout``. :meth:`frames` is complete after the
    block; a frame dropped by the kernel for want of space is an error, never a silent gap. With
    ``batched``, tcpdump is woken up once for many frames: cheap enough for a capture of hours. Then
    :attr:`dropped` counts the frames dropped by the kernel, without an error.
    """

    def __init__(
        self,
        interface: str,
        *,
        namespace_pid: int | None = None,
        expression: str = "",
        direction: str = "inout",
        snap_bytes: int = 256,
        batched: bool = False,
    ) -> None:
        self.dropped = 0
        """Frames dropped by the kernel for want of space; known after the block."""
        self._batched = batched
        enter: Sequence[str] = () if namespace_pid is None else ("mnexec", "-a", str(namespace_pid))
        self._interface = interface
        self._command = [*enter, "tcpdump", "-i", interface, "-Q", direction, "-s", str(snap_bytes)]
        self._command += ["-n", *(() if batched else ("-U", "--immediate-mode"))]
        self._command += ["--nano", "-B", str(_BUFFER_KIB)]
        self._command += ["-Z", "root", "-w", "-", *([expression] if expression else [])]
        self._process: subprocess.Popen[bytes] | None = None
        self._file: bytes | None = None
        self._frames: tuple[Frame, ...] | None = None

    def __enter__(self) -> Self:
        self._file = self._frames = None
        self._directory = tempfile.TemporaryDirectory(prefix="hydra-capture-")
        with self._pcap.open("wb") as pcap, self._words.open("wb") as words:
            self._process = subprocess.Popen(
                self._command,
                stdout=pcap,
                stderr=words,
                env=member_environment(),
                start_new_session=True,  # Ctrl-C is for us, not for tcpdump
            )
        try:
            self._wait_until_listening(self._process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._batched:
            time.sleep(2 * _BATCH_S)  # timed: until tcpdump has all frames kept by the kernel
        try:
            _stop(process)
            self._file = self._pcap.read_bytes()
            words = self._words.read_text()
        finally:
            self._directory.cleanup()
        lost = re.search(r"(\d+) packets dropped by kernel", words)
        self.dropped = 0 if lost is None else int(lost[1])
        if self.dropped and not self._batched:
            raise TestbedError(
                f"capture on {self._interface} lost {self.dropped} frames: not a witness"
            )

    def frames(self) -> tuple[Frame, ...]:
        if self._frames is None:
            self._frames = tuple(self.each())
        return self._frames

    def each(self) -> Iterator[Frame]:
        """As :meth:`frames`, and keeps none."""
        return _parse(self.pcap())

    def pcap(self) -> bytes:
        """The file written by tcpdump."""
        if self._file is None:
            raise TestbedError(f"capture on {self._interface} has not ended: read it after `with`")
        return self._file

    def _wait_until_listening(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while "listening on" not in (words := self._words.read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise TestbedError(f"tcpdump does not listen on {self._interface}: {words.strip()}")
            time.sleep(0.01)

    @property
    def _pcap(self) -> Path:
        return Path(self._directory.name) / "frames.pcap"

    @property
    def _words(self) -> Path:
        return Path(self._directory.name) / "stderr"


class JointCapture:
    """Frames on several interfaces, in order of time."""

    def __init__(self, captures: Sequence[Capture]) -> None:
        self._captures = captures
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for capture in self._captures:
                stack.enter_context(capture)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def frames(self) -> tuple[Frame, ...]:
        every = (frame for capture in self._captures for frame in capture.frames())
        return tuple(sorted(every, key=lambda frame: frame.time_s))


def _let_it_catch_up(process: subprocess.Popen[bytes]) -> None:
    """Wait until tcpdump sleeps: frames not read before the end would be missing.

    On a busy machine, frames wait in tcpdump's socket for the processor, and tcpdump is runnable
    meanwhile.
    """
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "S":
            return
        time.sleep(0.005)


def _stop(process: subprocess.Popen[bytes]) -> None:
    _let_it_catch_up(process)
    process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _parse(pcap: bytes) -> Iterator[Frame]:
    if len(pcap) < _FILE_HEADER.size:
        return
    if _FILE_HEADER.unpack_from(pcap)[0] != _MAGIC_NANOSECONDS:
        raise TestbedError("tcpdump wrote something that is not a little-endian nanosecond pcap")
    offset = _FILE_HEADER.size
    while offset + _FRAME_HEADER.size <= len(pcap):
        seconds, nanoseconds, captured, _ = _FRAME_HEADER.unpack_from(pcap, offset)
        offset += _FRAME_HEADER.size
        yield Frame(seconds + nanoseconds / 1e9, pcap[offset : offset + captured])
        offset += captured
