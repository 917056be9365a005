"""How long a whole training takes: phases, start-up, checkpoints, failures, and how sure that is."""
