"""Reads the configuration file: parse, validate, freeze; all problems at once.

``hydra check`` and the controller both call :func:`load`, so what passes the one starts the other.
"""

from hydra.config.load import Loaded, load

__all__ = ["Loaded", "load"]
