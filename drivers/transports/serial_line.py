"""Serial lines to devices."""

from __future__ import annotations

import errno
import select
import termios
import time
from typing import Final, Literal

import serial
from pydantic import BaseModel, ConfigDict, Field

from drivers.transports.permit import remaining_s
from drivers.transports.stream import ConnectionLostError, Deadline
from hydra.errors import DeviceUnavailable

_QUIET_S: Final = 0.05
_NOISE_LIMIT_S: Final = 1.0
_PARITIES: Final = {
    "none": serial.PARITY_NONE,
    "even": serial.PARITY_EVEN,
    "odd": serial.PARITY_ODD,
}


class SerialOptions(BaseModel):
    """``options`` of devices at ``serial:`` addresses: how bits are sent over the line."""

    model_config = ConfigDict(extra="forbid", strict=True)

    baud: int = Field(38400, ge=50, le=4_000_000)
    data_bits: Literal[7, 8] = 8
    parity: Literal["none", "even", "odd"] = "none"
    stop_bits: Literal[1, 2] = 1


class SerialStream:
    """A :class:`~drivers.transports.stream.Stream` over a serial line, opened for one program."""

    def __init__(self, device: str, path: str, options: SerialOptions) -> None:
        self._device = device
        self._path = path
        self._options = options
        self._line: serial.Serial | None = None

    @property
    def address(self) -> str:
        return f"serial:{self._path}"

    @property
    def connected(self) -> bool:
        return self._line is not None

    def connect(self, deadline: Deadline) -> None:
        """Open the line, and drop bytes that still answer an earlier session. Raises
        DeviceUnavailable.
        """
        if self._line is not None:
            return
        try:
            self._line = serial.Serial(
                self._path,
                baudrate=self._options.baud,
                bytesize=self._options.data_bits,
                parity=_PARITIES[self._options.parity],
                stopbits=self._options.stop_bits,
                timeout=0,
                write_timeout=0,
                exclusive=True,
            )
            self._wait_for_quiet(deadline)
        except (OSError, ConnectionLostError) as error:
            self.close()
            raise DeviceUnavailable(
                self._device, f"can't open {self._path}: {_reason(error)}"
            ) from error
        except termios.error as error:  # no OSError
            self.close()
            raise DeviceUnavailable(
                self._device,
                f"{self._path} does not take {self._options.baud} baud, {self._options.data_bits} "
                f"data bits, parity {self._options.parity}, {self._options.stop_bits} stop bits: "
                f"{error.args[-1]}; check options",
            ) from error

    def close(self) -> None:
        if self._line is not None:
            line, self._line = self._line, None
            try:
                line.close()
            except OSError:
                return  # a pulled-out adapter can't be closed properly

    def send(self, data: bytes, deadline: Deadline) -> None:
        line = self._opened()
        rest = memoryview(data)
        try:
            while rest:
                remaining_s()
                # pyserial's own time-outs would set up the port anew with each change.
                if not select.select([], [line.fileno()], [], deadline.remaining())[1]:
                    raise TimeoutError
                rest = rest[line.write(rest) :]
        except OSError as error:
            self.close()
            raise ConnectionLostError(_reason(error, deadline)) from error

    def receive(self, deadline: Deadline) -> bytes:
        line = self._opened()
        try:
            if not select.select([line.fileno()], [], [], deadline.remaining())[0]:
                raise TimeoutError
            data: bytes = line.read(line.in_waiting or 1)
        except OSError as error:
            self.close()
            raise ConnectionLostError(_reason(error, deadline)) from error
        return data

    def waiting(self) -> bytes:
        line = self._opened()
        try:
            data: bytes = line.read(line.in_waiting)
        except OSError as error:
            self.close()
            raise ConnectionLostError(_reason(error)) from error
        return data

    def _wait_for_quiet(self, deadline: Deadline) -> None:
        give_up_at = time.monotonic() + min(_NOISE_LIMIT_S, deadline.remaining())
        time.sleep(_QUIET_S)  # a newly opened line has buffered nothing
        while self.waiting() and time.monotonic() < give_up_at:
            time.sleep(_QUIET_S)

    def _opened(self) -> serial.Serial:
        if self._line is None:
            raise ConnectionLostError("there is no connection")
        return self._line


def _reason(error: Exception, deadline: Deadline | None = None) -> str:
    if isinstance(error, TimeoutError) and deadline is not None:
        return deadline.reason(error)
    if isinstance(error, OSError) and error.errno == errno.EAGAIN:
        return "another program has the serial port open"
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        return "permission denied; the controller's user must be in the device file's group"
    if isinstance(error, OSError) and error.errno == errno.ENOENT:
        return "there is no such device file; is the adapter plugged in?"
    return f"{error}; was the adapter unplugged?"
