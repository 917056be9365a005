"""What a worker may use of its machine: an enforced share of its cores, and the cores that it runs on.

Ray only counts the CPUs of a worker: one that is promised half a core uses as much as it finds. A control
group of Linux enforces the share: in every period the threads of the process run for a quota, together, and
then wait for the next period. Source: Linux, Documentation/scheduler/sched-bwc.rst (version 1:
cpu.cfs_quota_us and cpu.cfs_period_us) and Documentation/admin-guide/cgroup-v2.rst (version 2: cpu.max).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from precision_time.errors import ConfigError

CGROUPS = Path("/sys/fs/cgroup")
_NAME = "precision-time"
_PERIOD_US = 5_000
"""Short, so that a step of tens of milliseconds sees a steady share; the usual 100 ms would not."""
_LEAST_QUOTA_US = 1_000
"""Of the kernel."""
_LONGEST_PERIOD_US = 1_000_000


def limit_cpu(share: float, *, root: Path = CGROUPS) -> str:
    """Confine this process, all threads that it has and will have, to a share of one core or of several.

    Args:
        share: Cores, such as 0.25.
        root: Where control groups are mounted.

    Returns:
        How the share is enforced, as the column `cpu_limit` says it.

    Raises:
        ConfigError: If this process may not make a control group, or the share is too small for one.
    """
    period = max(_PERIOD_US, math.ceil(_LEAST_QUOTA_US / share))
    if period > _LONGEST_PERIOD_US:
        raise ConfigError(
            f"A share of {share:g} cores cannot be enforced: a quota is at least {_LEAST_QUOTA_US} us in a "
            f"period of at most {_LONGEST_PERIOD_US} us. To fix: at least "
            f"{_LEAST_QUOTA_US / _LONGEST_PERIOD_US:g} cores."
        )
    quota, process = round(share * period), str(os.getpid())
    name = f"{_NAME}-{process}"
    # The files of a group, in the order in which they are written; a process joins its group last.
    old, new = root / "cpu" / name, root / name
    layouts: Mapping[str, Sequence[tuple[Path, str]]] = {
        "cgroup-v1": (
            (old / "cpu.cfs_period_us", str(period)),
            (old / "cpu.cfs_quota_us", str(quota)),
            (old / "cgroup.procs", process),
        ),
        "cgroup-v2": (
            (root / "cgroup.subtree_control", "+cpu"),
            (new / "cpu.max", f"{quota} {period}"),
            (new / "cgroup.procs", process),
        ),
    }
    version = "cgroup-v2" if (root / "cgroup.controllers").is_file() else "cgroup-v1"
    release_cpu(root=root)
    try:
        layouts[version][-1][0].parent.mkdir()
        for path, text in layouts[version]:
            path.write_text(text, encoding="ascii")
    except OSError as error:
        raise ConfigError(
            f"cpu_limit: cgroup asks for {share:g} enforced cores per worker, and this process may not make "
            f"a control group below {root} on this node: {error.strerror}. To fix: run the nodes of Ray as "
            "root, or leave cpu_limit out (Ray then counts CPUs and enforces none)."
        ) from error
    return f"{version} {quota}/{period} us"


def release_cpu(*, root: Path = CGROUPS) -> None:
    """Remove the groups of processes that have ended; another worker may be joining its own right now."""
    for path in (*root.glob(f"cpu/{_NAME}-*"), *root.glob(f"{_NAME}-*")):
        if not Path("/proc", path.name.removeprefix(f"{_NAME}-")).exists():
            with suppress(OSError):
                path.rmdir()


def pin_cores(cores: Sequence[int]) -> None:
    """Let this process, all its threads, run on these cores of its machine only.

    Raises:
        ConfigError: If the machine lacks one, or this process may not use it.
    """
    try:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), cores)
    except (OSError, AttributeError) as error:
        raise ConfigError(
            f"The workers cannot run on the cores {list(cores)} of this node: {error}. To fix: name cores "
            "that the node has and may use in worker_cores, or leave it out."
        ) from error
