"""Text that a device prints to a terminal unasked, such as log lines.

A reply begins with the echo of its command. Text before the echo belongs to no reply. Log lines in
a reply are recognised by the beginning of syslog messages (RFC 3164, RFC 5424, and mnemonics of
switches' consoles): a priority, a date with a time, or ``%FACILITY-5-NAME:``.
"""

from __future__ import annotations

import re
from typing import Final

ECHO_COMPARED: Final = 40
_LOGGED: Final = re.compile(
    r"""\s*[*.:]?(?:<[0-9]{1,3}>\s*[0-9]?\s*)?(?:
        (?:[0-9]{4}\s)?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+[0-9]{1,2}\s
            (?:[0-9]{4}\s)?\s*[0-9]{1,2}:[0-9]{2}
        | [0-9]{4}-[0-9]{2}-[0-9]{2}[T\ ][0-9]{2}:[0-9]{2}:[0-9]{2}
        | %[A-Z][A-Z0-9_]*-[0-7]-[A-Z0-9_]+:
        | (?<=>)\S
    )""",
    re.VERBOSE,
)


def is_log_line(line: str) -> bool:
    """True for a line that begins like a log message."""
    return _LOGGED.match(line) is not None


def is_echo(line: str, command: str) -> bool:
    """True if a line shows a command: whole, perhaps behind unasked text, or its wrapped beginning.

    Narrow terminals wrap commands of more than :data:`ECHO_COMPARED` characters.
    """
    if len(line) >= ECHO_COMPARED and command.startswith(line[:ECHO_COMPARED]):
        return True
    return line != "" and line.endswith(command)
