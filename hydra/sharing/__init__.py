"""Shared circuits: by bandwidth held by meters, by turns, by schedules of slots."""
