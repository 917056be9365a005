"""Where people already work: logs and trackers, tuners, schedulers, clouds."""
