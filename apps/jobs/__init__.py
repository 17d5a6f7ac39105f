"""Jobs of other schedulers (MPI, Slurm): what they say of the traffic they will make."""
