"""Jobs of a real Slurm cluster, on this host."""
