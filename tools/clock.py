"""Run a command, print how long it took, and hold that against CONTRIBUTING.md where the machine was idle.

    CI=true python3 tools/clock.py make test

Fails beyond the minutes that CONTRIBUTING.md says only if CI is "true" and other processes used less than a
tenth of the machine meanwhile (known on Linux alone): elsewhere a time says nothing of the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATISTICS = Path("/proc/stat")
MOST_FOR_OTHERS = 0.1
"""Share of the machine's processors that others may use where the time is checked."""


def minutes_said() -> int:
    """What CONTRIBUTING.md says of `make test`."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(r"`make test` takes less than (\d+) minutes", text)
    if found is None:
        raise SystemExit(
            "CONTRIBUTING.md does not say how long `make test` takes. To fix: less than N minutes."
        )
    return int(found.group(1))


def machine_cpu_s() -> float | None:
    """Seconds that all processors worked since the start of the machine, None where that is not told."""
    if not STATISTICS.is_file():
        return None
    user, nice, system, _, _, irq, soft, stolen = STATISTICS.read_text().split()[1:9]
    return sum(map(int, (user, nice, system, irq, soft, stolen))) / os.sysconf("SC_CLK_TCK")


def verdict(wall_s: float, others_s: float | None, cores: int, *, ci: bool) -> tuple[str, bool]:
    """What to print of a command, and whether it took longer than it may."""
    most = minutes_said()
    took = f"{wall_s // 60:.0f} min {wall_s % 60:.0f} s, less than {most} minutes are promised"
    if not ci:
        return f"{took}; not checked: not in CI", False
    if others_s is None or others_s > MOST_FOR_OTHERS * wall_s * cores:
        busy = (
            "no one tells how busy the machine was" if others_s is None else f"others worked {others_s:.0f} s"
        )
        return f"{took}; not checked: {busy}", False
    return took, wall_s >= 60 * most


def main(command: Sequence[str]) -> int:
    """Run the command; its exit code, or 1 if it took too long."""
    before, started = machine_cpu_s(), time.monotonic()
    code = subprocess.run(command, check=False).returncode
    wall_s, after, used = time.monotonic() - started, machine_cpu_s(), os.times()
    others_s = None
    if before is not None and after is not None:
        others_s = after - before - used.children_user - used.children_system
    words, late = verdict(wall_s, others_s, os.cpu_count() or 1, ci=os.environ.get("CI") == "true")
    print(f"{' '.join(command)}: {words}")
    return code or int(late)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
