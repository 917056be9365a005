"""The command `precision-time`, which `python -m precision_time` is, too."""

from __future__ import annotations

import gc
import sys


def run() -> None:
    """Run the command line; an interrupt while it is being loaded is one line, too."""
    try:
        from .cli.main import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        raise SystemExit(130) from None
    finally:
        gc.freeze()  # no search for cycles in what is left: the process ends, a fifth of an answer sooner


if __name__ == "__main__":
    run()
