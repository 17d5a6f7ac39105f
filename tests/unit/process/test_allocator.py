"""All threads of a manager allocate from one arena, so that no thread hoards free memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITNESS = """
import ctypes, os, threading
from ryu.base import app_manager

THREADS = 8

class Witness(app_manager.RyuApp):
    def start(self):
        super().start()
        together = threading.Barrier(THREADS)

        def allocate():
            held = bytearray(4096)  # past Python's own allocator, which is for up to 512
            together.wait()
            del held

        threads = [threading.Thread(target=allocate) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        libc = ctypes.CDLL(None)
        libc.fdopen.restype = ctypes.c_void_p
        output = ctypes.c_void_p(libc.fdopen(1, b"w"))
        libc.malloc_info(0, output)
        libc.fflush(output)
        os._exit(0)
"""


def test_threads_share_one_arena(tmp_path):
    app = tmp_path / "witness.py"
    app.write_text(WITNESS)
    manager = Path(sys.executable).with_name("ryu-manager")
    done = subprocess.run(
        [manager, "--ofp-tcp-listen-port", "0", app],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "</malloc>" in done.stdout, done.stderr
    assert done.stdout.count("<heap nr=") == 1, done.stdout
