"""Slurm: time limits from predictions, for `sbatch`; ended jobs against predictions."""
