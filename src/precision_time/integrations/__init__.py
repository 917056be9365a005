"""Where training is already launched and watched: trainers, tuners, schedulers, clusters, logs."""
