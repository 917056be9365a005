"""How a job is laid out over the devices."""
