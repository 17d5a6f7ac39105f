"""c-Through (Wang et al., SIGCOMM 2010): Fig. 5, 6, 8 and 10, Table 2."""
