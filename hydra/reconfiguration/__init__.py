"""Reconfiguration: differences of network states, and the executor of changes (HydRA, III.B)."""
