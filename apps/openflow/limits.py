"""Limits of switches' connections: handshakes, echoes, time-outs, message rates."""

from __future__ import annotations

from typing import Final

HANDSHAKE_S = 10.0
HANDSHAKES: Final = 64
"""Handshakes at a time: of thousands at once, none would be done within HANDSHAKE_S."""
HANDSHAKES_LOOK_S: Final = 0.02
BACKLOG: Final = 4096
"""Connections that the system holds until accepted; the default limit of Linux. Clients beyond the
limit try again after ever longer waits, up to minutes.
"""
MOST_PORTS: Final = 10_000
"""Most ports of a switch; each port takes memory as long as the switch is connected."""
ECHO_S: Final = 2.0
"""Time for a connection to answer an echo when a second connection claims to be its switch."""
ECHO_LOOKS: Final = 20
ECHO_EVERY_S: Final = 15.0
UNANSWERED_ECHOES: Final = 4
"""A switch that leaves more echoes unanswered, sent 15 s apart, is gone."""
SOCKET_S: Final = 60.0
"""Time for which a switch may read nothing while its connection is full. A connection without input
is checked as often.
"""
MOST_WAITING_BYTES: Final = 1 << 28
"""Most bytes waiting for a switch that does not read; the rules of a switch are a thousandth."""
IN_A_ROW: Final = 32
"""Messages of a switch, or posted functions, before other work has its turn. Ryu reads 2048."""
MESSAGES_PER_S: Final = 1000.0
"""Messages handled per switch, in the long run. Beyond the rate, the switch's connection is read no
further for a while, so that a flood takes neither memory nor the time of other switches. Polls,
probes and barriers of a switch are a tenth of the rate.
"""
BURST: Final = 8192.0
"""Messages that a switch may send at once: a refusal for each rule of a large table."""
SILENT_WORDS: Final = f"the switch left {UNANSWERED_ECHOES + 1} echo requests unanswered"
FLOODED_WORDS: Final = (
    f"{MOST_WAITING_BYTES >> 20} MiB wait for the switch, and the switch reads nothing"
)
