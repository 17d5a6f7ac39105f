"""The planning process: ``python -m apps.planning.planner_process FD``.

:mod:`apps.planning.planner` starts the process.

Planning computes for seconds. In a separate process, planning takes neither the global interpreter
lock (GIL) nor a core's time slice from OpenFlow and REST. Requests come and answers go, pickled,
over the socket FD, one at a time; both ends are the same program on the same machine.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection

from apps.planning.engine import Planning
from apps.planning.planner import ENDING, Answer, Request, Setup
from hydra.errors import HydraError


def main() -> None:
    """Answer requests until the controller closes the connection."""
    # A signal reaches the whole process group, but the controller has to end the planner.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    descriptor = int(sys.argv[1])
    threading.Thread(target=_end_with_controller, args=(descriptor,), daemon=True).start()
    connection = Connection(descriptor)
    setup: Setup = connection.recv()
    planning = Planning(setup.fabric, setup.policy)
    planning.warm_up()
    connection.send(Answer())  # ready
    while True:
        try:
            request: Request = connection.recv()
        except EOFError:
            return
        connection.send(_answer(planning, request))


def _answer(planning: Planning, request: Request) -> Answer:
    deadline_s = time.monotonic() + request.budget_s
    try:
        method = getattr(planning, request.method)
        return Answer(method(*request.arguments, expired=lambda: time.monotonic() > deadline_s))
    except HydraError as error:
        return Answer(refusal=error)
    except Exception:  # a defect must not end the process; the controller logs the defect
        return Answer(defect=traceback.format_exc())


def _end_with_controller(descriptor: int) -> None:
    """Exit when the controller's end of the socket closes, even during a computation."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
