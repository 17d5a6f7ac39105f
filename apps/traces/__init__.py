"""Traces of flows between racks: read as a stream, cut into windows, planned for."""
