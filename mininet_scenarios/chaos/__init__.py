"""Faults of the field at random moments of the controller's work, and the invariants to hold
meanwhile.
"""
