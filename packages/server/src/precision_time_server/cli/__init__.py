"""The command that serves."""
