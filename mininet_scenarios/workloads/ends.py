"""The command line of a workload with two ends: a receiver and a sender."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mininet_scenarios.workloads.reports import StopFlag, write_report

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

End = Callable[[argparse.Namespace, StopFlag], "DataclassInstance"]
"""The work of an end with the given arguments, until done or stopped; returns the report."""


class CommandLine:
    """Commands ``receive`` and ``send``; a workload adds further options."""

    def __init__(self, program: str, description: str, port: int) -> None:
        self._parser = argparse.ArgumentParser(prog=program, description=description)
        ends = self._parser.add_subparsers(dest="end", required=True)
        self.send: Final = ends.add_parser("send")
        self.send.add_argument("--to", required=True, help="address of the receiver, v4 or v6")
        self.receive: Final = ends.add_parser("receive")
        self.receive.add_argument("--bind", required=True, help="address to listen on, v4 or v6")
        for end in (self.send, self.receive):
            end.add_argument("--port", type=int, default=port)
            end.add_argument("--ready", type=Path, help="file to create once listening or sending")
            end.add_argument("--report", type=Path, required=True, help="JSON report to write")

    def run(self, arguments: Sequence[str] | None, *, send: End, receive: End) -> None:
        """Run the end named by ``arguments`` (None: the program's), and write the report."""
        given = self._parser.parse_args(arguments)
        stop = StopFlag()
        stop.install()
        end = send if given.end == "send" else receive
        write_report(given.report, asdict(end(given, stop)))
