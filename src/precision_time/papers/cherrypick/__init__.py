"""CherryPick: the best cluster configuration of a job by Bayesian optimisation, found by running a few."""
