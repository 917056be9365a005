"""Commands of the integrations: data, from which the root makes its help."""

from __future__ import annotations

from typing import Any

from precision_time.plugins import Command


def _command(path: str, module: str, attribute: str, summary: str, **more: Any) -> Command:
    module = f"{__package__}.{module}"
    section = "Measure, watch, schedule"
    return Command(path=path, module=module, attribute=attribute, summary=summary, section=section, **more)


COMMANDS = (
    _command("measure", "measure", "measure", "Time kernels and training steps on this device."),
    _command("import", "import_", "import_", "Read logs and exports of training runs as measurements."),
    _command("watch", "watch", "watch", "Watch a log: when the run in it will end."),
    _command("share", "share", "share", "Write your own runs without what tells whose they are."),
    _command(
        "estimate",
        "estimate",
        "estimate",
        "Estimate the jobs of a SkyPilot, Slurm or Kubernetes file, or the run of a recipe.",
    ),
    _command("mfu", "mfu", "mfu", "Say how much of the peak a measured step uses."),
    _command("mcp", "mcp", "mcp", "Serve the tools that agents ask by."),
    _command(
        "slurm submit", "sbatch", "sbatch", "Submit a Slurm job with a predicted time limit.", hands_on=True
    ),
    _command(
        "slurm history",
        "slurm",
        "history",
        "Compare ended jobs with what was predicted of them.",
    ),
    _command(
        "kubernetes annotate",
        "kubernetes",
        "annotate",
        "Write manifests with what is predicted of their jobs.",
        examples="ANNOTATE_EXAMPLES",
    ),
)
