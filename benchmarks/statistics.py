"""Flow statistics decoded per second, ours against Ryu's, on the same bytes.

``python -m benchmarks.statistics``. The replies are what a vswitch of the reference fabric sends
for its account table: a rule for each of 638 foreign prefixes (319 racks, IPv4 and IPv6) and one
for the rest; and for 5000 rules.
"""

from __future__ import annotations

import struct
import sys

from apps.openflow import decode_flow_stats
from benchmarks import _ryu
from benchmarks._report import Result, report
from benchmarks._timing import median_ms

RUNS = 25
TARGET_PER_S = 1_000_000.0
_ENTRY = struct.Struct("!HBxIIHHHHxxxxQQQ")
_MATCH = struct.pack("!HHHBBHHBBII", 1, 22, 0x8000, 5 << 1, 2, 0x0800, 0x8000, 12 << 1 | 1, 8, 0, 0)
_INSTRUCTIONS = struct.pack("!HHxxxxQQ", 2, 24, 7, 2**64 - 1) + struct.pack("!HHBxxx", 1, 8, 2)


def reply(rules: int) -> bytes:
    """The body of a reply: entries that match an IPv4 prefix, write metadata and go on."""
    tail = _MATCH + bytes(-len(_MATCH) % 8) + _INSTRUCTIONS
    length = _ENTRY.size + len(tail)
    return b"".join(
        _ENTRY.pack(length, 1, 60, 0, 100, 0, 0, 0, cookie, 3 * cookie, 4000 * cookie) + tail
        for cookie in range(rules)
    )


def measure(rules: int) -> Result:
    body = reply(rules)
    found = decode_flow_stats(body)
    columns = (found.cookie.tolist(), found.packets.tolist(), found.bytes.tolist())
    if list(zip(*columns, strict=True)) != _ryu.decode_flow_stats(body):
        raise SystemExit("the two decoders disagree: there is nothing to compare")
    times = median_ms(
        {
            "ours": lambda _run: decode_flow_stats(body),
            "ryu": lambda _run: _ryu.decode_flow_stats(body),
        },
        RUNS,
    )
    ours, ryu = (rules / times[way] * 1000 for way in ("ours", "ryu"))
    metric = f"flow statistics decoded, median of {RUNS}"
    return Result(f"{rules} rules", metric, "/s", "higher", ours, ryu, "Ryu", TARGET_PER_S)


def main() -> None:
    report("statistics", [measure(rules) for rules in (639, 5000)])


if __name__ == "__main__":
    sys.exit(main())
