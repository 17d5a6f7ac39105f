"""Faults: dead paths, quarantined ports, device alarms, and the resulting conditions."""
