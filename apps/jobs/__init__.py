"""Jobs of other schedulers (MPI, Slurm), and the traffic that they announce."""
