"""Runs a command on a server, in new namespaces; mpirun starts the agent in place of ssh.

    python -m mininet_scenarios.workloads.mpi_agent SERVERS NAME COMMAND…

``SERVERS`` is a JSON file: by a server's name, the id of a process in the server's network
namespace. Besides the server's network, a rank gets its own host name, System V objects, processes,
and ``/dev/shm``: so MPI finds nothing that looks like memory shared between ranks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mininet_scenarios.workloads.reports import WorkloadError

_SETTLE: Final = (
    'hostname "$1" && mount -t tmpfs hydra-rank /dev/shm && exec sh -c "$2"'  # as ssh runs words
)


def write_places(path: Path, places: Mapping[str, int]) -> None:
    """Write the agent's input file: by name, the id of a process of the server."""
    path.write_text(json.dumps(dict(places)), encoding="utf-8")


def place_of(path: Path, name: str) -> int:
    """Id of a process in the server's network namespace.

    Raises WorkloadError for a server missing in the file.
    """
    places: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
    if name not in places:
        raise WorkloadError(f"{name} is none of the servers in {path}: {', '.join(places)}")
    return places[name]


def in_own_namespaces(name: str, command: str) -> list[str]:
    """A command that runs the shell's ``command`` as a host called ``name``.

    All processes end with the first process, however the first process ends.
    """
    own = ["unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child"]
    # Files of MPI are private, and go with the namespace.
    return [*own, "env", "TMPDIR=/dev/shm", "sh", "-c", _SETTLE, "sh", name, command]


def main(arguments: Sequence[str]) -> None:
    """Become the command; does not return."""
    servers, name, *words = arguments
    pid = place_of(Path(servers), name)
    command = ["mnexec", "-a", str(pid), *in_own_namespaces(name, " ".join(words))]
    os.execvp(command[0], command)  # noqa: S606  # as the command itself, so that signals reach it


if __name__ == "__main__":
    main(sys.argv[1:])
