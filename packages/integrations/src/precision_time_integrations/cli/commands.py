"""Commands of the integrations: data, from which the root makes its help."""

from __future__ import annotations

from precision_time.plugins import Command

COMMANDS = (
    Command(
        path="estimate",
        module=f"{__package__}.estimate",
        attribute="estimate",
        summary="Estimate the jobs of a SkyPilot, Slurm or Kubernetes file.",
        after="run",
    ),
    Command(
        path="sbatch",
        module=f"{__package__}.sbatch",
        attribute="sbatch",
        summary="Submit a Slurm job with a predicted time limit.",
        hands_on=True,
        after="estimate",
    ),
    Command(
        path="slurm",
        module=f"{__package__}.slurm",
        attribute="app",
        summary="Compare ended Slurm jobs with predictions; write job_submit.lua.",
        after="sbatch",
    ),
    Command(
        path="measure",
        module=f"{__package__}.measure",
        attribute="measure",
        summary="Time kernels and training steps on this device.",
        after="report",
    ),
    Command(
        path="trainers",
        module=f"{__package__}.trainers",
        attribute="trainers",
        summary="List the adapters that watch a run in its trainer.",
        after="predictors",
    ),
    Command(
        path="kubernetes",
        module=f"{__package__}.kubernetes",
        attribute="app",
        summary="Annotate manifests of Kubernetes, set up the webhook.",
        after="serve",
    ),
    Command(
        path="import",
        module=f"{__package__}.import_",
        attribute="import_",
        summary="Read logs and exports of training runs as measurements.",
        after="collect",
    ),
    Command(
        path="watch",
        module=f"{__package__}.watch",
        attribute="watch",
        summary="Watch a log: when the run in it will end.",
        after="import",
    ),
    Command(
        path="share",
        module=f"{__package__}.share",
        attribute="share",
        summary="Write your own runs without what tells whose they are.",
        after="calibrate",
    ),
)
