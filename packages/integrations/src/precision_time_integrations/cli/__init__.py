"""Commands that meet what others run: logs, schedulers, this machine's device."""
