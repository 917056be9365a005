"""What outlives a process of the service: clusters, measured steps, calibrations, models, servers."""
