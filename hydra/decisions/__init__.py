"""Decisions about the topology: as data, as records, and why two racks are joined as they are."""
