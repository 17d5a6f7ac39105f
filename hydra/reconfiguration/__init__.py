"""Reconfiguration: what differs, and the executor that moves the network there (HydRA, III.B)."""
