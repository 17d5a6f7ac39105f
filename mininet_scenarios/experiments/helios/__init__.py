"""Helios (Farrington et al., SIGCOMM 2010): patterns of demand, throughput by stability."""
