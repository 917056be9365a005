"""CherryPick: the best cluster configuration of a job by Bayesian optimization, found by running a few."""
