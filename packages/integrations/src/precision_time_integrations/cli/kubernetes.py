"""`precision-time kubernetes annotate`: manifests with what is predicted of their jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from precision_time.cli.options import JsonOption, complete_model
from precision_time.cli.output import message, progress_bar, write_json
from precision_time.cli.request_options import given_options, request_options
from precision_time.errors import ConfigError
from precision_time.io import open_input
from precision_time.planning.run.schema import RunOptions

if TYPE_CHECKING:
    from ..kubernetes.annotations import Annotated as AnnotatedJob

ANNOTATE_EXAMPLES = """\b
Examples:
  precision-time kubernetes annotate job.yaml
  precision-time kubernetes annotate pytorchjob.yaml rayjob.yaml --quantile 0.99 --margin 0.25
  kubectl create job train --image=example.com/train --dry-run=client -o yaml \\
    | precision-time kubernetes annotate - --model resnet50 --device A100 -b 256 --epochs 90
"""


@request_options(also=lambda: RunOptions.model_fields, shown=())
def annotate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Manifests in YAML or JSON; - for stdin.", show_default=False),
    ],
    *,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="What is trained, where the manifest does not say.",
            autocompletion=complete_model,
        ),
    ] = None,
    quantile: Annotated[
        float, typer.Option("--quantile", help="Share of the runs that end before the limit of time.")
    ] = 0.95,
    margin: Annotated[
        float, typer.Option("--margin", help="Added to the limit of time, as a share of it.")
    ] = 0.1,
    json_output: JsonOption = False,
    **fields: Any,
) -> None:
    """Write manifests with what is predicted of their jobs.

    Annotations hold seconds, interval and money; a job without a limit of time (activeDeadlineSeconds) gets
    one. A limit that is there stays, and so does everything that cannot be predicted, with the reason on
    stderr. What is written is YAML for `kubectl apply -f -`; comments of the files are lost.
    """
    from ..kubernetes.annotations import annotate_all
    from ..kubernetes.documents import read_documents, write_documents
    from ..kubernetes.limits import LimitRule

    rule = LimitRule(quantile=quantile, margin=margin)
    given = given_options({"model": model, **fields})
    documents = [each for file in files for each in read_documents(_text(file), source=str(file))]
    with progress_bar("Predicting the jobs") as show:
        changed, found = annotate_all(documents, given=given, rule=rule, show=show)
    if json_output:
        jobs = [{**job.estimate.to_dict(), "warnings": list(job.warnings)} for job in found]
        write_json({"jobs": jobs, "manifests": changed})
    else:
        typer.echo(write_documents(changed), nl=False)
    for job in found:
        _tell(job)
    if not found:
        message("No job among the manifests: they are written as they are.")


def _tell(job: AnnotatedJob) -> None:
    """What somebody who annotates a job should know of it."""
    who = job.estimate.name or job.estimate.source
    for warning in job.warnings:
        message(f"{who}: {warning}")
    for words, texts in (("not read", job.estimate.unread), ("note", job.estimate.notes)):
        for text in texts:
            message(f"{who}: {words}: {text}")


def _text(file: Path) -> str:
    """The text of a file, or of stdin.

    Raises:
        ConfigError: If it cannot be read, or is too large.
    """
    from ..kubernetes.documents import MOST_BYTES

    try:
        if str(file) == "-":
            found = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open_input(file) as stream:
                found = stream.read(MOST_BYTES + 1)
        if len(found) > MOST_BYTES:
            raise ConfigError(f"{file} is larger than {MOST_BYTES // 2**20} MiB. To fix: split it.")
        return found.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}. To fix: check path and encoding.") from None
