"""Where a controller's journal is kept; :mod:`hydra.journal` says what is asked of it."""
