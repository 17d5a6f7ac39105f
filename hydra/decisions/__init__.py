"""Decisions about the topology: as data, as records, and explanations of the paths of a rack
pair.
"""
