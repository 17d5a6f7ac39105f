"""Prices of networks, from editable price files: ``hydra price``."""
