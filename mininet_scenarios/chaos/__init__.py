"""Faults of the field at random moments of the controller's work, and what must hold meanwhile."""
