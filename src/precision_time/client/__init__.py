"""Asking a service (`precision-time serve`): from Python, and from the command line with `--server`."""
