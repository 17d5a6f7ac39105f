"""Surroundings of a test run: the same for any user and any way of starting it.

`nohup` ignores SIGHUP, a shell's `&` ignores SIGINT, a login sets umask, TZ and LANG, a batch job
sets SLURM_*, a company sets proxies. Programs started by tests inherit all these settings. So a
test run inherits none: :func:`settle` sets signals, file permissions and environment to fixed
values, before any test is imported. A test about such a setting sets it (`monkeypatch.setenv`).
"""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

_KEPT: Final = frozenset(
    {
        "PATH",
        "TMPDIR",
        # settings by which developers select tests
        "HYDRA_SCREENSHOTS",
        "HYDRA_SIMULATION_RUNS",
        "HYDRA_SIMULATION_SEED",
    }
)
_KEPT_PREFIXES: Final = ("PYTEST_XDIST_", "COVERAGE_", "COV_CORE_", "HYPOTHESIS_")
_DOWNLOADS: Final = (
    "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
_SET: Final[Mapping[str, str]] = MappingProxyType(
    {"LANG": "C.UTF-8", "SHELL": "/bin/sh", "TERM": "xterm", "TZ": "UTC"}
)
_SYSTEM_FOLDERS: Final = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
)
"""An ordinary user's PATH lacks the ``sbin`` folders of Open vSwitch and ``ip``."""
_UMASK: Final = 0o022
_MATPLOTLIB: Final = Path(__file__).parents[1] / "build" / "matplotlib"
"""The cache of fonts, which takes seconds to make, and which matplotlib would put into HOME."""
_PYTHONS_OWN: Final = MappingProxyType(
    {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGPIPE: signal.SIG_IGN,
        signal.SIGXFSZ: signal.SIG_IGN,
    }
)
_inherited: dict[str, str] = {}


def settle(home: Path | None = None, keep: Collection[str] = ()) -> None:
    """Give this process, and its children, the fixed surroundings.

    ``home``: the folder for HOME; without it HOME stays, as in a worker whose parent has settled.
    ``keep``: further environment variables to keep. Raises OSError.
    """
    reset_signals()
    os.umask(_UMASK)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))  # tests kill programs in the clone
    _inherited.update(os.environ)
    wanted = environment(os.environ, keep)
    with suppress(OSError):  # a clone without write permission
        _MATPLOTLIB.mkdir(parents=True, exist_ok=True)
        wanted["MPLCONFIGDIR"] = str(_MATPLOTLIB)
    if home is not None:
        wanted["HOME"] = str(home)
    elif "HOME" in os.environ:
        wanted["HOME"] = os.environ["HOME"]
    os.environ.clear()
    os.environ.update(wanted)
    tempfile.tempdir = None  # TMPDIR is looked up anew
    time.tzset()


def reset_signals() -> None:
    """Unblock all signals; give ignored signals the disposition that Python starts with."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _PYTHONS_OWN.get(number, signal.SIG_DFL))


def environment(inherited: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """The variables of ``inherited`` that a test run keeps, and the fixed variables."""
    kept = {
        name: value
        for name, value in inherited.items()
        if name in _KEPT or name in keep or name.startswith(_KEPT_PREFIXES)
    }
    folders = [
        folder for folder in kept.get("PATH", "").split(os.pathsep) if Path(folder).is_absolute()
    ]
    folders += [folder for folder in _SYSTEM_FOLDERS if folder not in folders]
    if not os.access(kept.get("TMPDIR", ""), os.W_OK | os.X_OK):
        kept.pop("TMPDIR", None)
    return kept | _SET | {"PATH": os.pathsep.join(folders)}


def for_downloads() -> dict[str, str]:
    """The inherited variables by which programs reach the Internet: proxies, certificates."""
    return {name: _inherited[name] for name in _DOWNLOADS if name in _inherited}
