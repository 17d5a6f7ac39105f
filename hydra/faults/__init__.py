"""Faults: when a running path is dead, which ports are left out, what devices warn of."""
