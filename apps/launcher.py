"""Starts the controller: ``ryu-manager`` and ``hydra run`` both end here."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path

from apps.process.allocator import share_one_arena
from apps.process.garbage import uncollected
from apps.process.limits import check_memory, short_of_memory
from apps.workers.settings import VARIABLE as WORKER_VARIABLE
from apps.workers.settings import WorkerOptions, handed_on
from hydra.errors import HydraError

_MAIN = str(Path(__file__).with_name("main.py"))
_WORKER = str(Path(__file__).with_name("workers") / "application.py")


def _check(config: Path | None) -> str:
    """Environment variable with the path of the configuration file, once checked.

    ``config`` None: the variable is set already. Raises HydraError for an unusable file.
    """
    check_memory()
    # Imported late: the imports take a third of a second, wasted on foreign applications.
    with uncollected():
        from apps.process.configuration import (  # noqa: PLC0415
            CONFIG_VARIABLE,
            check_configuration,
            configuration_path,
        )

    check_configuration(config or configuration_path())
    return CONFIG_VARIABLE


def _import_controller() -> None:
    """Import the controller's application before the framework collects garbage."""
    with uncollected():
        import_module("apps.main")  # takes most of a second; workers need no import


def _serve(arguments: list[str]) -> int:
    with uncollected():
        from apps.openflow import framework  # noqa: PLC0415  (a third of a second, too)
    share_one_arena()
    os.umask(0o077)  # the journal, the write-ahead log and copies hold webhooks' keys
    try:
        framework.run_manager(arguments)
    except KeyboardInterrupt:
        return 0
    except HydraError as error:
        print(error, file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        sentence = short_of_memory(error)
        if sentence is None:
            raise
        print(sentence, file=sys.stderr)
        return 1
    finally:
        gc.freeze()  # or the interpreter's end looks for cycles for a second
    return 0


def main(argv: list[str]) -> int:
    """Run the controller of a configuration file until a signal ends the controller.

    Raises HydraError if the file can't be used.
    """
    (config,) = argv
    os.environ[_check(Path(config))] = config
    _import_controller()
    return _serve([_MAIN])


def worker(config: Path, options: WorkerOptions) -> int:
    """Run a worker until a signal ends the worker. Raises HydraError if the file can't be used."""
    os.environ[_check(config)] = str(config)
    os.environ[WORKER_VARIABLE] = handed_on(options)
    return _serve([_WORKER])


def ryu_manager() -> None:
    """The ``ryu-manager`` command: Ryu's command in a prepared process."""
    arguments = sys.argv[1:]
    if any(argument.endswith(("apps/main.py", "apps.main")) for argument in arguments):
        try:
            _check(None)
        except HydraError as error:
            sys.exit(str(error))
        _import_controller()
    sys.exit(_serve(arguments))
