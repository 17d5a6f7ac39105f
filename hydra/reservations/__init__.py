"""Reservations: what is asked for, whether it fits, and what is promised when."""
