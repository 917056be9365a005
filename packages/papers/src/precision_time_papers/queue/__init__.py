"""A queue of jobs on one cluster: which starts when, on which devices, in which precision."""
