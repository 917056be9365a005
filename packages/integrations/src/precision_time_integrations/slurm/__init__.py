"""Slurm: time limits from predictions, for `sbatch` and `job_submit.lua`; ended jobs against predictions."""
