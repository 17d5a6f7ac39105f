"""Every algorithm and every policy on every workload."""
