"""Stores of a controller's journal; :mod:`hydra.journal` says what is asked of them."""
