"""Reads the configuration file: parse, validate, freeze; reports all problems at once.

``hydra check`` and the controller both call :func:`load`: a file that passes the check starts the
controller.
"""

from hydra.config.load import Loaded, load

__all__ = ["Loaded", "load"]
