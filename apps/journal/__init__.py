"""Stores of a controller's journal; :mod:`hydra.journal` has the interface."""
