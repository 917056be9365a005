"""What runs trials: `local` on the device of this machine, `ray` by Ray Train on a cluster."""
