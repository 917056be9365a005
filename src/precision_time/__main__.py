"""`python -m precision_time` is the command `precision-time`."""

from .cli.main import main

main()
