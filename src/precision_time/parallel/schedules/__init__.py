"""Pipeline schedules: one file each, with the order of the work, its bubble by formula, and a simulation."""
