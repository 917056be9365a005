"""`Request`: everything that can be asked of a training job, validated, and the only way to a `Job`."""
