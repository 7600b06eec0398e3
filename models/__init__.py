"""Model adapters: names of families and weight formats live here and nowhere else."""
