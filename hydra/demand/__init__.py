"""Demand: rates from polled counters, what agents report to wait, and who is an elephant."""
