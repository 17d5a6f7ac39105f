"""Readings of traffic: port and rule counters from the switches, backlog from servers' agents."""
