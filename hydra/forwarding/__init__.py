"""Forwarding: the pipeline, and the rules that each switch holds for a state of the network."""
