"""Connections to OpenFlow switches, served by a thread of C (apps/openflow/native/lines.h)."""

OPEN: int
CLOSED: int
FAILED: int
SILENT: int
STALLED: int
FLOODED: int
MALFORMED: int
FOREIGN: int

class Lines:
    def __init__(
        self,
        *,
        echo_s: float,
        unanswered: int,
        stalled_s: float,
        most_ready: int,
        most_ready_in_all: int,
        most_waiting: int,
        messages_per_s: float,
        burst: float,
    ) -> None: ...
    def fileno(self) -> int: ...
    def adopt(self, descriptor: int, greeting: bytes | bytearray) -> int: ...
    def send(self, line: int, data: bytes | bytearray, last: bool = False) -> bool: ...
    def ignore(self, line: int) -> None: ...
    def release(self, line: int) -> None: ...
    def take(self, lines: int, messages: int) -> list[tuple[int, list[bytes], int, int]]: ...
    def close(self) -> None: ...
