"""Mordia (Porter et al., SIGCOMM 2013): slots, planned and on the data plane."""
