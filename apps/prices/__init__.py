"""Prices of networks, from price files that can be edited: ``hydra price``."""
