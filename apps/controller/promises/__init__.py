"""Reservations at work: admitted, placed, moved when a circuit dies, and let go."""
