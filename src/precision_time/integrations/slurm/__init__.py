"""Slurm: time limits from predictions, for `sbatch` and for `job_submit.lua`; ended jobs against predictions."""
