"""`precision-time init`: files to start from, and what an editor checks them by."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from ..errors import OutputError
from ..io import packaged, write_atomically
from ..schemas.answers import ANSWERS, answer_schema
from .options import JsonOption, declared
from .output import message, write_json

_KINDS = ("cluster", "job")
_ENDINGS = (".yaml", ".yml")


@declared("init")
def init(
    path: Path,
    *,
    kind: Literal["cluster", "job"] | None = None,
    force: bool = False,
    schema: bool = False,
    json_output: JsonOption = False,
) -> None:
    """Write a commented file to start from: a cluster of your own, or a job."""
    if schema and str(path) in ANSWERS:
        write_json(answer_schema(str(path)))
        return
    found: str | None = kind or next((word for word in _KINDS if word in path.stem.lower()), None)
    if schema and found is not None:
        write_json(schema_of(found))
        return
    if found is None or path.suffix.lower() not in _ENDINGS:
        raise OutputError(
            f"{path} does not say what to write: a cluster or a job, as YAML. To fix: name it cluster.yaml "
            "or job.yaml, or give --kind cluster or --kind job and an ending .yaml."
        )
    if path.exists() and not force:
        raise OutputError(f"{path} exists. To fix: give another name, or --force to replace it.")
    write_atomically(path, template(found))
    use = f"predict MODEL --custom {path}" if found == "cluster" else f"predict {path}"
    if json_output:
        write_json({"path": str(path), "kind": found})
    message(f"Wrote {path}. Use: precision-time {use}")


def template(kind: str) -> str:
    """The file that `init` writes."""
    return packaged(__package__, f"data/{kind}.yaml").read_text(encoding="utf-8")


def schema_of(kind: str) -> dict[str, Any]:
    """JSON schema of a kind of file."""
    if kind == "cluster":
        from ..hardware.custom_schema import CustomFile

        return CustomFile.model_json_schema()

    from ..planning.run.schema import RunOptions
    from ..schemas.job_files import QUEUE_FIELDS, job_file_schema

    return job_file_schema(run=RunOptions.model_fields, queue=QUEUE_FIELDS)
