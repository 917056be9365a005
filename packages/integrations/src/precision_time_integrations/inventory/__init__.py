"""What a cluster is made of, as an inventory file, Slurm, Ray or this machine reports it."""
