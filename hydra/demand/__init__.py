"""Demand: rates from polled counters, backlog reported by agents, and elephants."""
