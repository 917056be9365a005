"""Commands that start trainings, read as requests: `read.py: read_command(...)`. Nothing is executed."""
