"""Runs a command on a server, in namespaces of its own; mpirun starts it in place of ssh.

    python -m mininet_scenarios.workloads.mpi_agent SERVERS ADDRESS COMMAND…

``SERVERS`` is a JSON file of :class:`Place` by address. Beside the server's network, a rank gets a
host name, System V objects, processes, and a ``/dev/shm`` that it shares with no other: so MPI
finds nothing that it could take for memory shared between ranks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mininet_scenarios.workloads.reports import WorkloadError

_SETTLE: Final = (
    'hostname "$1" && mount -t tmpfs hydra-rank /dev/shm && exec sh -c "$2"'  # as ssh runs words
)


@dataclass(frozen=True, slots=True)
class Place:
    """A server of the testbed."""

    name: str
    pid: int
    """Id of a process in its network namespace."""


def write_places(path: Path, places: Mapping[str, Place]) -> None:
    """Write the file that the agent reads; ``places`` by address."""
    path.write_text(json.dumps({key: asdict(one) for key, one in places.items()}), "utf-8")


def place_of(path: Path, address: str) -> Place:
    """The place of ``address``. Raises WorkloadError for a server that the file does not name."""
    places = json.loads(path.read_text(encoding="utf-8"))
    if address not in places:
        raise WorkloadError(f"{address} is none of the servers in {path}: {', '.join(places)}")
    return Place(**places[address])


def in_own_namespaces(name: str, command: str) -> list[str]:
    """A command that runs the shell's ``command`` as a host called ``name``.

    All of it ends with its first process, however that ends.
    """
    own = ["unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child"]
    # Files of MPI go where nobody else can see them, and go with the namespace.
    return [*own, "env", "TMPDIR=/dev/shm", "sh", "-c", _SETTLE, "sh", name, command]


def main(arguments: Sequence[str]) -> None:
    """Become the command; does not return."""
    servers, address, *words = arguments
    place = place_of(Path(servers), address)
    command = ["mnexec", "-a", str(place.pid), *in_own_namespaces(place.name, " ".join(words))]
    os.execvp(command[0], command)  # noqa: S606  # as the command itself, so that signals reach it


if __name__ == "__main__":
    main(sys.argv[1:])
