"""Jobs of other schedulers (MPI, Slurm, Spark), and the traffic that they announce."""
