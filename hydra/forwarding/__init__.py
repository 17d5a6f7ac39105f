"""Forwarding: the rules of the switches, and the substrates that they differ by."""
