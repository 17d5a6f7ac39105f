"""Jobs of other schedulers (MPI, Slurm, Spark), and their announced traffic."""
